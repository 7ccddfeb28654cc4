"""`ttl_clock: arrival`: the TTL of messages from devices without a clock counts from their arrival."""

from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.uprotocol.message import Options, UMessage, notification, publish, request, response
from tests.clock import START_MS, FakeClock
from tests.flow.harness import CLOUD_APP, CLOUD_METHOD, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import journaled_run

UP = "vehicle-cloud"
BOOT_MS = 40_000  # the device's clock: 40 s after the beginning of 1970
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AGES = pytest.mark.parametrize(
    "made_ms",
    [BOOT_MS, START_MS - HOUR_MS, START_MS - 30, START_MS, START_MS + HOUR_MS, START_MS + 2 * DAY_MS],
    ids=["1970", "an hour behind", "under way", "right", "an hour ahead", "two days ahead"],
)


def endpoints(ttl_clock: str = "arrival") -> dict[str, Any]:
    return {
        "vehicle": {"transport": "memory", "authorities": ["veh1"], "ttl_clock": ttl_clock},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    }


def harness(ttl_clock: str = "arrival") -> RouterHarness:
    return RouterHarness(configuration(endpoints=endpoints(ttl_clock)))


def speed(made_ms: int, ttl: int = 1000) -> UMessage:
    return publish(made_ms, SPEED, b"fast", Options(ttl=ttl))


async def test_a_device_that_boots_in_1970_loses_everything_with_a_ttl_unless_it_counts_from_the_arrival() -> None:
    async with harness("id") as before:
        before.arrive("vehicle", speed(BOOT_MS))
        assert before.outcomes("none") == {"expired": 1}
    async with harness() as now:
        now.arrive("vehicle", speed(BOOT_MS))
        assert now.outcomes(UP) == {"delivered": 1}
        (left,) = now.sent("cloud")
        assert (left.payload, left.attributes.wire_ttl) == (b"fast", 0)


async def test_without_a_ttl_nothing_changes() -> None:
    async with harness() as h:
        messages = [publish(BOOT_MS, SPEED, b"a"), publish(BOOT_MS, SPEED, b"b", Options(ttl=0))]
        h.arrive("vehicle", *messages)
        assert h.sent("cloud") == messages


@AGES
async def test_it_expires_in_its_queue_when_its_ttl_has_passed_since_it_arrived(made_ms: int) -> None:
    async with harness() as h:
        h.transports["cloud"].lose_link()
        h.arrive("vehicle", speed(made_ms))
        h.pass_time(1000)
        assert h.queued(UP) == 1
        h.pass_time(51)
        assert h.queued(UP) == 0
        assert h.outcomes(UP) == {"expired": 1}


@AGES
async def test_it_is_sent_when_the_link_is_back_in_time(made_ms: int) -> None:
    async with harness() as h:
        h.transports["cloud"].lose_link()
        h.arrive("vehicle", speed(made_ms))
        h.pass_time(900)
        h.transports["cloud"].restore_link()
        h.pass_time(0)
        assert h.outcomes(UP) == {"delivered": 1}


async def test_other_endpoints_count_from_the_id() -> None:
    async with harness() as h:
        h.arrive("cloud", notification(BOOT_MS, CLOUD_APP._replace(resource=0x8000), VEHICLE_APP, b"x", Options(ttl=1000)))
        assert h.outcomes("none") == {"expired": 1}


async def test_a_copy_of_it_is_a_duplicate_however_late_it_comes() -> None:
    async with harness() as h:
        message = speed(BOOT_MS)
        h.arrive("vehicle", message)
        h.pass_time(5000)
        h.arrive("vehicle", message)
        assert h.outcomes(UP) == {"delivered": 1}
        assert h.outcomes("none") == {"duplicate": 1}


async def test_a_request_from_1970_is_answered() -> None:
    async with harness() as h:
        asked = request(BOOT_MS, VEHICLE_APP, CLOUD_METHOD, 1000)
        h.arrive("vehicle", asked)
        (left,) = h.sent("cloud")
        assert (left.id, left.attributes.wire_ttl) == (asked.id, 0xFFFF_FFFF)
        h.arrive("cloud", response(h.clock.wall_ms(), left, b"done"))
        (answer,) = h.sent("vehicle")
        assert (answer.attributes.reqid, answer.payload) == (asked.id, b"done")


async def test_a_request_from_1970_that_waits_too_long_is_answered_as_late() -> None:
    async with harness() as h:
        h.transports["cloud"].lose_link()
        asked = request(BOOT_MS, VEHICLE_APP, CLOUD_METHOD, 1000)
        h.arrive("vehicle", asked)
        h.pass_time(1051)
        (answer,) = h.sent("vehicle")
        assert (answer.attributes.reqid, answer.attributes.commstatus is not None) == (asked.id, True)


async def test_a_reload_changes_it_for_what_arrives_from_then_on() -> None:
    async with harness("id") as h:
        h.arrive("vehicle", speed(BOOT_MS))
        await Reload(h.router, configuration(endpoints=endpoints())).run()
        h.arrive("vehicle", speed(BOOT_MS))
        await Reload(h.router, configuration(endpoints=endpoints("id"))).run()
        h.arrive("vehicle", speed(BOOT_MS))
        assert (h.outcomes(UP), h.outcomes("none")) == ({"delivered": 1}, {"expired": 2})


@pytest.mark.parametrize("made_ms", [BOOT_MS, START_MS - HOUR_MS, START_MS, START_MS + HOUR_MS])
@pytest.mark.parametrize(("away_ms", "outcome"), [(400, "delivered"), (551, "expired")])
async def test_a_restart_does_not_give_it_more_time(tmp_path: Path, made_ms: int, away_ms: int, outcome: str) -> None:
    clock = FakeClock()
    async with journaled_run(tmp_path / "j.db", endpoints=endpoints(), clock=clock) as run:
        run.harness.transports["cloud"].lose_link()
        run.harness.arrive("vehicle", speed(made_ms))
        await run.flush()
        run.harness.pass_time(500)
    clock.advance(away_ms)
    async with journaled_run(tmp_path / "j.db", endpoints=endpoints("id"), clock=clock) as run:
        run.harness.pass_time(0)
        await run.flush()
        assert run.harness.outcomes(UP) == {outcome: 1}


async def test_its_dead_letter_is_redriven_with_a_ttl_from_now_on(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", endpoints=endpoints()) as run:
        cloud = run.harness.transports["cloud"]
        cloud.lose_link()
        message = speed(BOOT_MS)
        run.harness.arrive("vehicle", message)
        run.harness.pass_time(1051)
        await run.flush()
        assert [letter.text for letter in run.letters] == ["its TTL passed while the link to cloud was down"]
        run.harness.router.redrive.take(run.letters, [None])  # as it was, it has expired
        assert run.harness.queued(UP) == 0
        run.harness.router.redrive.take(run.letters, [5000])
        run.harness.pass_time(4000)
        assert run.harness.queued(UP) == 1
        cloud.restore_link()
        run.harness.pass_time(0)
        (left,) = run.harness.sent("cloud")
        assert (left.id, left.payload, left.attributes.wire_ttl) == (message.id, b"fast", 0)
        await run.flush()


async def test_messages_of_a_flow_share_their_attributes() -> None:
    """What is found out for a flow is used again, although every message has another age."""
    async with harness() as h:
        for number in range(200):
            h.arrive("vehicle", publish(BOOT_MS + number * 10 + number % 7, SPEED, b"x", Options(ttl=1000)))
            h.clock.advance(10)
        assert h.outcomes(UP) == {"delivered": 200}
        assert len({message.attributes.ttl for message in h.sent("cloud")}) <= 2
