"""Corners in which a message could be acknowledged too early, wait for ever, or overtake an older one."""

from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.lanes import queue
from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK
from streamer.delivery.lifecycle.departure import Drain
from streamer.transports.base import UNCONFIRMED, Done, Parcel, Presence
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.flow.harness import CLOUD_APP, ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration, three_networks
from tests.flow.journaled_run import DOWN, journaled_run

OTHER = UUri("veh1", 0xC, 1, 0)
OTHER_TOPIC = SPEED._replace(resource=0x8001)
BOTH = [
    {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
    {"from": "vehicle", "to": "phone", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
]
NETWORKS = {
    "vehicle": {"transport": "memory", "authorities": ["veh1"]},
    "cloud": {"transport": "memory", "authorities": ["*"]},
    "phone": {"transport": "memory", "authorities": ["phone1"]},
}


def order(harness: RouterHarness, text: bytes = b"", sink: UUri = VEHICLE_APP, **options: Any) -> UMessage:
    return harness.notify(text, sink=sink, source=ORDERS, **options)


async def test_a_message_with_two_destinations_is_acknowledged_when_it_is_written_for_all_left(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=16_000, endpoints=NETWORKS, routes=BOTH) as run:
        run.hold("cloud")
        run.hold("phone")
        (received,) = run.harness.arrive("vehicle", run.harness.speed(bytes(10_000)))
        await run.flush()
        assert (run.journal.rows_written, received.acknowledged) == (0, False)
        run.harness.transports["cloud"].release_withheld()
        await run.flush()
        assert (run.journal.rows_written, received.acknowledged) == (1, True)


async def test_acknowledged_message_stays_in_a_full_journal_when_it_has_to_be_redelivered(tmp_path: Path) -> None:
    clock = FakeClock()
    async with journaled_run(tmp_path / "j.db", max_bytes=40_000, unconfirmed_s=10, clock=clock) as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.set_presence(ORDERS, OTHER, Presence.ABSENT)
        precious = order(run.harness, b"precious" * 200)
        (received,) = run.harness.arrive("cloud", precious)
        await run.flush()
        assert received.acknowledged
        run.harness.arrive("cloud", *(order(run.harness, bytes(1000), sink=OTHER) for _ in range(60)))
        await run.flush()
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        vehicle.is_withholding = True
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        await run.flush()
    async with journaled_run(tmp_path / "j.db", max_bytes=40_000, unconfirmed_s=10, clock=clock) as run:
        run.harness.pass_time(50)
        assert precious in run.harness.sent("vehicle")


async def test_a_redriven_message_gets_its_row_in_a_full_journal(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=40_000) as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        precious = order(run.harness, b"precious")
        run.harness.arrive("cloud", precious)
        await run.flush()
        vehicle.refuse = lambda message: None
        run.hold()
        run.harness.arrive("cloud", *(order(run.harness, bytes(1000), sink=OTHER) for _ in range(60)))
        await run.flush()
        run.harness.router.redrive.take(run.letters, [None])
        await run.flush()
    async with journaled_run(tmp_path / "j.db", max_bytes=40_000) as run:
        assert precious in run.harness.sent("vehicle")


async def test_while_a_commit_hangs_delivered_messages_are_acknowledged_and_forgotten(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        harness, custody = run.harness, run.harness.router.custody
        run.journal.is_busy = True
        received = []
        for _ in range(20):
            received += harness.arrive("cloud", *(order(harness, b"x") for _ in range(200)))
            custody.flush()
            harness.pass_time(11_000)
        harness.pass_time(11_000)
        harness.pass_time(11_000)
        assert harness.outcomes(DOWN) == {"delivered": 4000}
        assert all(each.acknowledged for each in received)
        custody.flush()
        assert len(custody._recent) <= 2000
        run.journal.is_busy = False


async def test_a_message_that_expires_at_the_head_of_the_backlog_holds_up_nothing() -> None:
    config = three_networks(queue_policy={"queue": {"messages": 1}}, routes=BOTH)
    async with RouterHarness(config) as harness:
        for name in ("cloud", "phone"):
            harness.transports[name].is_withholding = True
        to_phone = UUri("phone1", 5, 1, 0)
        harness.arrive("vehicle", harness.notify(b"0", sink=CLOUD_APP))
        harness.arrive("vehicle", harness.notify(b"1", sink=to_phone))
        both = harness.speed(b"both")
        harness.arrive("vehicle", both)
        harness.arrive("vehicle", harness.notify(b"short-lived", sink=to_phone, ttl=500))
        harness.clock.ms += 600
        for ingress in harness.router.ingresses.values():
            ingress.expire_backlog()
        harness.transports["cloud"].release_withheld()
        harness.transports["phone"].release_withheld()
        assert both in harness.sent("cloud")
        assert both in harness.sent("phone")


async def test_an_ingress_goes_on_when_its_whole_backlog_has_expired() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        calls: list[str] = []
        harness.transports["vehicle"].set_receiving = (  # type: ignore[method-assign]
            lambda is_receiving: calls.append("resume" if is_receiving else "pause")
        )
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", *(harness.speed(b"x", ttl=500) for _ in range(1200)))
        for _ in range(2):  # not all of them at once
            assert calls == ["pause"]
            harness.pass_time(600)
        assert calls == ["pause", "resume"]


@pytest.mark.parametrize("comes_back", [False, True], ids=["receiver stays away", "receiver comes back"])
async def test_ttls_that_all_pass_at_one_moment_hold_up_nothing_else(comes_back: bool) -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        vehicle = harness.transports["vehicle"]
        vehicle.set_presence(ORDERS, OTHER, Presence.ABSENT)
        harness.arrive("cloud", *(order(harness, sink=OTHER, ttl=1000) for _ in range(2 * EXPIRED_MESSAGES_PER_TICK + 1)))
        harness.clock.advance(1100)
        if comes_back:
            vehicle.set_presence(ORDERS, OTHER, Presence.PRESENT)
        else:
            harness.pass_time(0)
        assert harness.outcomes("cloud-vehicle") == {"expired": EXPIRED_MESSAGES_PER_TICK}
        honest = order(harness)
        harness.arrive("cloud", honest)
        harness.pass_time(50)
        harness.pass_time(50)
        assert harness.outcomes("cloud-vehicle") == {"expired": 2 * EXPIRED_MESSAGES_PER_TICK + 1}
        assert harness.sent("vehicle") == [honest]


@pytest.mark.parametrize("is_down", [True, False], ids=["the link comes back", "a confirmation comes"])
async def test_nor_do_those_that_are_found_while_it_sends(is_down: bool) -> None:
    """Each turn of the pump that settles something leads to another one."""
    async with RouterHarness(configuration(queue_policy={"window": 1})) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        first = harness.notify(source=OTHER_TOPIC)
        harness.arrive("vehicle", first)
        if is_down:
            cloud.lose_link()
            cloud.is_withholding = False
        harness.arrive("vehicle", *(harness.notify(ttl=1000) for _ in range(5 * EXPIRED_MESSAGES_PER_TICK)))
        harness.clock.advance(1100)
        if is_down:
            cloud.restore_link()
        else:
            cloud.release_withheld()
        assert harness.outcomes("vehicle-cloud")["expired"] == EXPIRED_MESSAGES_PER_TICK
        last = harness.notify(source=OTHER_TOPIC)
        harness.arrive("vehicle", last)
        for expired in (3, 5):  # as many in the queue, and as many that were about to be sent
            harness.pass_time(50)
            assert harness.outcomes("vehicle-cloud")["expired"] == expired * EXPIRED_MESSAGES_PER_TICK
        assert harness.sent("cloud") == [first, last]


async def test_many_flows_are_recovered_each_into_one_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = [UUri("veh1", 0x100 + number, 1, 0) for number in range(8)]
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        sent = [order(run.harness, b"%d" % turn, sink=sink) for turn in range(2) for sink in sinks]
        run.harness.arrive("cloud", *sent)
        await run.flush()
    monkeypatch.setattr(queue, "_MAX_LANES", 3)
    async with journaled_run(tmp_path / "j.db") as run:
        arrived = run.harness.sent("vehicle")
        assert set(arrived) == set(sent)
        for sink in sinks:
            assert [message.payload for message in arrived if message.attributes.sink == sink] == [b"0", b"1"]


async def test_nothing_overtakes_messages_in_flight_when_the_receiver_was_lost_and_came_back() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        vehicle = harness.transports["vehicle"]
        harness.arrive("cloud", *(order(harness, b"%d" % number) for number in range(3)))
        late: list[tuple[list[Parcel], Done]] = []
        wire: list[bytes | None] = []

        def submit(parcels: list[Parcel], done: Done) -> None:
            late.append((list(parcels), done))
            wire.extend(parcel.message.payload for parcel in parcels)

        vehicle.submit = submit  # type: ignore[method-assign,assignment]
        harness.arrive("cloud", order(harness, b"3"), order(harness, b"4"))
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        harness.arrive("cloud", order(harness, b"5"))
        while late:
            parcels, done = late.pop(0)
            done(parcels, UNCONFIRMED)
        assert wire == [b"3", b"4", b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_at_the_stop_without_a_journal_unconfirmed_messages_of_a_lost_receiver_end_as_unconfirmed() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", *(order(harness, b"%d" % number) for number in range(600)))
        harness.router.custody.flush()
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        assert await Drain(harness.router).run(0.05) == 600
        assert harness.dead_letters("cloud") == []
        assert harness.outcomes(DOWN) == {"unconfirmed": 600}


async def test_of_many_copies_the_latest_is_the_one_that_waits(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=1000) as run:
        run.harness.transports["vehicle"].lose_link()
        message = order(run.harness, bytes(2000))
        received = [run.harness.arrive("cloud", message)[0] for _ in range(40)]
        await run.flush()
        assert not received[-1].acknowledged
        assert not received[0].acknowledged
