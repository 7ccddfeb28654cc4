"""Wrong clocks: ours was years ahead and is set back, or ids lie in the future. Nothing lives for ever."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from streamer.delivery.outcomes.dead_letter import with_ttl_from_now
from streamer.uprotocol.message import Options, UMessage, publish, request
from streamer.uprotocol.uuid import created_ms, new_id
from tests.clock import START_MS, FakeClock
from tests.flow.harness import CLIMATE, CLOUD_APP, ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import DOWN, journaled_run, order
from tests.flow.pausing import EVERYTHING

DAY_MS = 86_400_000
AHEAD = pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, 20 * 365 * DAY_MS], ids=["two days", "twenty years"])
ROUTE = "cloud-vehicle"
YEAR_9999_MS = 253_402_300_799_000
YEARS_MS = 56 * 365 * 86_400_000


def made_ahead(message: UMessage, ahead_ms: int) -> UMessage:
    made_ms = int.from_bytes(message.id[:6], "big") + ahead_ms
    return UMessage(made_ms.to_bytes(6, "big") + message.id[6:], message.attributes, message.payload)


@AHEAD
async def test_what_is_queued_expires_when_it_has_waited_for_its_ttl(ahead_ms: int) -> None:
    async with RouterHarness(clock=FakeClock(START_MS + ahead_ms)) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", order(harness, b"x", ttl=5000))
        harness.pass_time(1000)
        harness.clock.ms -= ahead_ms
        harness.pass_time(4000)
        assert harness.queued(DOWN) == 1
        harness.pass_time(1)
        assert harness.outcomes(DOWN) == {"expired": 1}


@AHEAD
async def test_what_is_queued_expires_also_after_a_restart(tmp_path: Path, ahead_ms: int) -> None:
    clock = FakeClock(START_MS + ahead_ms)
    async with journaled_run(tmp_path / "j.db", clock=clock) as first:
        first.hold()
        first.harness.arrive("cloud", order(first.harness, b"x", ttl=5000))
        await first.flush()
    clock.ms -= ahead_ms
    async with journaled_run(tmp_path / "j.db", clock=clock, pause_rules=[EVERYTHING]) as second:
        second.harness.pass_time(5000)
        assert second.harness.queued(DOWN) == 1
        second.harness.pass_time(1)
        assert second.harness.outcomes(DOWN) == {"expired": 1}
        assert second.harness.router.set_backs == 1


@AHEAD
async def test_an_id_from_the_future_has_its_ttl_once_however_often_we_restart(tmp_path: Path, ahead_ms: int) -> None:
    clock = FakeClock()
    for n in range(4):
        async with journaled_run(tmp_path / "j.db", clock=clock, pause_rules=[EVERYTHING]) as run:
            if not n:
                made = order(run.harness, b"x", ttl=5000)
                run.harness.arrive("cloud", made_ahead(made, ahead_ms))
            run.harness.pass_time(1600)
            await run.flush()
            assert run.harness.queued(DOWN) == (n < 3)
    assert run.harness.outcomes(DOWN) == {"expired": 1}


@AHEAD
async def test_what_waits_outside_of_a_full_queue_expires_and_is_not_given_its_ttl_twice(ahead_ms: int) -> None:
    """The same for ids that only their sender's clock puts into the future."""
    config = configuration(queue_policy={"queue": {"messages": 1}})
    async with RouterHarness(config) as harness:
        cloud = harness.transports["cloud"]
        cloud.lose_link()
        first, second, third = (
            publish(harness.clock.ms + ahead_ms, SPEED, payload, Options(ttl=ttl))
            for payload, ttl in ((b"1", 2000), (b"2", 5000), (b"3", 1000))
        )
        harness.arrive("vehicle", first, second, third)
        assert harness.queued("vehicle-cloud") == 1
        harness.pass_time(1001)
        assert len(harness.router.ingresses["vehicle"].backlog) == 1
        harness.pass_time(1000)
        assert harness.queued("vehicle-cloud") == 1
        assert len(harness.router.ingresses["vehicle"].backlog) == 0
        harness.pass_time(2999)
        assert harness.queued("vehicle-cloud") == 1
        harness.pass_time(1)
        assert harness.queued("vehicle-cloud") == 0
        cloud.restore_link()
        assert harness.sent("cloud") == []


async def subscribe(harness: RouterHarness, interested: dict[str, int]) -> None:
    harness.router.set_interest(SPEED, interested, "test", is_new=True)
    await asyncio.sleep(0)
    await harness.router.listening.catch_up()


@pytest.mark.needs("utwin", "usubscription")
@AHEAD
@pytest.mark.parametrize("after_ms", [3000, 5001], ids=["in time", "expired"])
async def test_initial_value_is_sent_only_before_its_ttl_has_passed(ahead_ms: int, after_ms: int) -> None:
    config = configuration(
        utwin={},
        usubscription={"initial": True},
        routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}],
    )
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        await subscribe(harness, {"backend": 0})
        harness.arrive("vehicle", publish(harness.clock.ms + ahead_ms, SPEED, b"1", Options(ttl=5000)))
        harness.pass_time(after_ms)
        await subscribe(harness, {"backend": 0, "workshop": 0})
        harness.pass_time(1000)
        assert len(harness.sent("cloud")) == 1 + (after_ms < 5000)


async def test_letter_of_an_id_from_the_future_needs_another_ttl_as_any_other(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.lose_link()
        message = order(run.harness, b"x", ttl=5000)
        ahead = made_ahead(message, 2 * DAY_MS)
        run.harness.arrive("cloud", ahead)
        run.harness.pass_time(5001)
        await run.flush()
        vehicle.restore_link()
        run.harness.router.redrive.take(run.letters[:1], [None])
        await run.flush()
        assert run.harness.sent("vehicle") == []
        run.harness.router.redrive.take(run.letters[:1], [10_000])
        await run.flush()
        assert [message.id for message in run.harness.sent("vehicle")] == [ahead.id]


async def test_each_set_back_is_said_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    async with RouterHarness() as harness:
        for step_ms in (-500, 3_600_000, -3_600_000, 0, 0, -2 * DAY_MS):
            harness.clock.ms += step_ms
            harness.pass_time(100)
        said = [record.getMessage() for record in caplog.records if "clock_set_back" in record.getMessage()]
        assert [line.partition(" consequence")[0] for line in said] == [
            "clock_set_back seconds=3600",
            "clock_set_back seconds=172800",
        ]
        assert harness.router.set_backs == 2


def ask(made_ms: int, ttl: int = 1000) -> UMessage:
    return request(made_ms, CLOUD_APP, CLIMATE, ttl)


async def test_request_of_the_year_9999_expires_while_it_waits_and_is_answered() -> None:
    async with RouterHarness() as harness:
        harness.transports["vehicle"].lose_link()
        asked = ask(YEAR_9999_MS)
        harness.arrive("cloud", asked)
        harness.pass_time(1000)
        assert harness.queued(ROUTE) == 1
        harness.pass_time(1)
        assert harness.queued(ROUTE) == 0
        assert harness.outcomes(ROUTE) == {"expired": 1}
        (answer,) = [message for message in harness.sent("cloud") if message.attributes.reqid == asked.id]
        assert answer.attributes.sink == CLOUD_APP


async def test_no_id_spoils_the_sum_of_the_latencies() -> None:
    async with RouterHarness() as harness:
        harness.arrive("cloud", ask(YEAR_9999_MS), replace(harness.notify(sink=VEHICLE_APP, source=ORDERS), id=new_id(0)))
        assert harness.outcomes(ROUTE) == {"delivered": 2}
        (account,) = (account for account in harness.router.accounts() if account.name == ROUTE)
        assert account.stats.end_to_end.sum == 86_400


async def test_gateway_that_boots_in_1970_loses_nothing_when_its_clock_is_set() -> None:
    async with RouterHarness(clock=FakeClock(START_MS - YEARS_MS)) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", ask(START_MS))
        harness.pass_time(500)
        harness.clock.ms += YEARS_MS
        harness.pass_time(400)
        harness.transports["vehicle"].restore_link()
        harness.pass_time(0)
        assert harness.outcomes(ROUTE) == {"delivered": 1}


@pytest.mark.parametrize(
    ("made_ms", "ttl"),
    [(START_MS - 5000, 15_000), (START_MS, 10_000), (YEAR_9999_MS, 10_000)],
    ids=["past", "now", "future"],
)
def test_redriven_message_lives_for_its_new_ttl_from_now_on(made_ms: int, ttl: int) -> None:
    message = with_ttl_from_now(ask(made_ms), 10_000, START_MS)
    assert message.attributes.ttl == ttl
    assert created_ms(message.id) == made_ms
    assert new_id(made_ms)[:6] == message.id[:6]
