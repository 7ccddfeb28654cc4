"""Corners in which a message could be acknowledged too early, stand still for ever, or overtake an older one."""

from pathlib import Path

import pytest

from streamer.delivery import queue
from streamer.transports.base import UNCONFIRMED, Done, Parcel, Presence
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.life import DOWN, life
from tests.flow.stage import CLOUD_APP, ORDERS, VEHICLE_APP, Stage, WoundClock, configuration, three_networks

OTHER = UUri("veh1", 0xC, 1, 0)
BOTH = [
    {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
    {"from": "vehicle", "to": "phone", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
]
NETWORKS = {
    "vehicle": {"transport": "memory", "authorities": ["veh1"]},
    "cloud": {"transport": "memory", "authorities": ["*"]},
    "phone": {"transport": "memory", "authorities": ["phone1"]},
}


def order(stage: Stage, text: bytes = b"", sink: UUri = VEHICLE_APP, **options: object) -> UMessage:
    return stage.notify(text, sink=sink, source=ORDERS, **options)


async def test_a_message_with_two_destinations_is_acknowledged_when_it_is_written_for_both(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=16_000, endpoints=NETWORKS, routes=BOTH) as now:
        now.hold("cloud")
        now.hold("phone")
        (received,) = now.stage.arrive("vehicle", now.stage.speed(bytes(10_000)))
        await now.flush()
        assert (now.journal.rows_written, received.acknowledged) == (1, False)
        now.stage.transports["cloud"].release_held()
        await now.flush()
        assert (now.journal.rows_written, received.acknowledged) == (2, True)


async def test_what_was_acknowledged_stays_in_a_full_journal_when_it_has_to_leave_again(tmp_path: Path) -> None:
    clock = WoundClock()
    async with life(tmp_path / "j.db", max_bytes=40_000, unconfirmed_s=10, clock=clock) as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.set_presence(ORDERS, OTHER, Presence.ABSENT)
        precious = order(now.stage, b"precious" * 200)
        (received,) = now.stage.arrive("cloud", precious)
        await now.flush()
        assert received.acknowledged
        now.stage.arrive("cloud", *(order(now.stage, bytes(1000), sink=OTHER) for _ in range(60)))
        await now.flush()
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        vehicle.hold = True
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        await now.flush()
    async with life(tmp_path / "j.db", max_bytes=40_000, unconfirmed_s=10, clock=clock) as now:
        now.stage.pass_time(50)
        assert precious in now.stage.sent("vehicle")


async def test_a_redriven_message_gets_its_row_in_a_full_journal(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=40_000) as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        precious = order(now.stage, b"precious")
        now.stage.arrive("cloud", precious)
        await now.flush()
        vehicle.refuse = lambda message: None
        now.hold()
        now.stage.arrive("cloud", *(order(now.stage, bytes(1000), sink=OTHER) for _ in range(60)))
        await now.flush()
        now.stage.router.redrive.take(now.letters, [None])
        await now.flush()
    async with life(tmp_path / "j.db", max_bytes=40_000) as now:
        assert precious in now.stage.sent("vehicle")


async def test_while_a_commit_hangs_what_is_delivered_is_acknowledged_and_forgotten(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", unconfirmed_s=10) as now:
        stage, custody = now.stage, now.stage.router.custody
        now.journal.is_busy = True
        received = []
        for _ in range(20):
            received += stage.arrive("cloud", *(order(stage, b"x") for _ in range(200)))
            custody.flush()
            stage.pass_time(11_000)
        stage.pass_time(11_000)
        stage.pass_time(11_000)
        assert stage.outcomes(DOWN) == {"delivered": 4000}
        assert all(each.acknowledged for each in received)
        custody.flush()
        assert len(custody._recent) <= 2000
        now.journal.is_busy = False


async def test_a_message_that_expires_at_the_head_of_what_is_held_back_stops_nothing() -> None:
    config = three_networks(queue_policy={"retry": {"jitter": 0}, "queue": {"messages": 1}}, routes=BOTH)
    async with Stage(config) as stage:
        for name in ("cloud", "phone"):
            stage.transports[name].hold = True
        to_phone = UUri("phone1", 5, 1, 0)
        stage.arrive("vehicle", stage.notify(b"0", sink=CLOUD_APP))
        stage.arrive("vehicle", stage.notify(b"1", sink=to_phone))
        both = stage.speed(b"both")
        stage.arrive("vehicle", both)
        stage.arrive("vehicle", stage.notify(b"short-lived", sink=to_phone, ttl=500))
        stage.clock.ms += 600
        for ingress in stage.router.ingresses.values():
            ingress.expire_backlog()
        stage.transports["cloud"].release_held()
        stage.transports["phone"].release_held()
        assert both in stage.sent("cloud")
        assert both in stage.sent("phone")


async def test_an_ingress_goes_on_when_everything_that_it_held_back_has_expired() -> None:
    async with Stage(configuration(queue_policy={"retry": {"jitter": 0}, "queue": {"messages": 1}})) as stage:
        calls: list[str] = []
        stage.transports["vehicle"].pause_receiving = lambda: calls.append("pause")  # type: ignore[method-assign]
        stage.transports["vehicle"].resume_receiving = lambda: calls.append("resume")  # type: ignore[method-assign]
        stage.transports["cloud"].hold = True
        stage.arrive("vehicle", *(stage.speed(b"x", ttl=500) for _ in range(1200)))
        stage.pass_time(600)
        assert calls == ["pause", "resume"]


async def test_many_flows_are_recovered_each_into_one_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = [UUri("veh1", 0x100 + number, 1, 0) for number in range(8)]
    async with life(tmp_path / "j.db") as now:
        now.hold()
        sent = [order(now.stage, b"%d" % turn, sink=sink) for turn in range(2) for sink in sinks]
        now.stage.arrive("cloud", *sent)
        await now.flush()
    monkeypatch.setattr(queue, "_MAX_LANES", 3)
    async with life(tmp_path / "j.db") as now:
        arrived = now.stage.sent("vehicle")
        assert set(arrived) == set(sent)
        for sink in sinks:
            assert [message.payload for message in arrived if message.attributes.sink == sink] == [b"0", b"1"]


async def test_nothing_overtakes_what_was_in_flight_when_a_doubt_came_and_went() -> None:
    async with Stage(unconfirmed_s=10) as stage:
        vehicle = stage.transports["vehicle"]
        stage.arrive("cloud", *(order(stage, b"%d" % number) for number in range(3)))
        late: list[tuple[list[Parcel], Done]] = []
        wire: list[bytes | None] = []

        def submit(parcels: list[Parcel], done: Done) -> None:
            late.append((list(parcels), done))
            wire.extend(parcel.message.payload for parcel in parcels)

        vehicle.submit = submit  # type: ignore[method-assign,assignment]
        stage.arrive("cloud", order(stage, b"3"), order(stage, b"4"))
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        vehicle.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        stage.arrive("cloud", order(stage, b"5"))
        while late:
            parcels, done = late.pop(0)
            done(parcels, UNCONFIRMED)
        assert wire == [b"3", b"4", b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_at_the_stop_without_a_journal_what_is_doubted_becomes_dead_letters_too() -> None:
    async with Stage(unconfirmed_s=10) as stage:
        stage.arrive("cloud", *(order(stage, b"%d" % number) for number in range(600)))
        stage.router.custody.flush()
        stage.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        assert await stage.router.drain(0.05) == 600
        assert len(stage.dead_letters("cloud")) == 600
        assert stage.outcomes(DOWN) == {"dead_lettered": 600}


async def test_of_many_copies_the_latest_is_the_one_that_waits(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=1000) as now:
        now.stage.transports["vehicle"].lose_link()
        message = order(now.stage, bytes(2000))
        received = [now.stage.arrive("cloud", message)[0] for _ in range(40)]
        await now.flush()
        assert not received[-1].acknowledged
        assert not received[0].acknowledged
