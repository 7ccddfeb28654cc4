"""A journal at its bound, a queue larger than memory, and what stands still: who has to wait, and who does not."""

from pathlib import Path

import pytest

from streamer.delivery.queue import OVERHEAD_BYTES
from streamer.transports.base import Presence
from streamer.uprotocol.uri import UUri
from tests.flow.life import DOWN, life, order
from tests.flow.stage import ORDERS, VEHICLE_APP


async def test_with_the_journal_at_its_bound_sources_are_not_told_until_there_is_room(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        received = now.stage.arrive("cloud", *(order(now.stage, bytes(1000)) for _ in range(20)))
        await now.flush()
        told = [each.acknowledged for each in received]
        assert 0 < sum(told) < 20
        assert told == sorted(told, reverse=True)
        now.stage.transports["vehicle"].release_held()
        await now.flush()
        assert all(each.acknowledged for each in received)
        assert now.stage.outcomes(DOWN) == {"delivered": 20}
        now.hold()
        (again,) = now.stage.arrive("cloud", order(now.stage, bytes(1000)))
        await now.flush()
        assert again.acknowledged


async def test_a_starved_message_is_written_when_another_one_has_left(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        received = now.stage.arrive("cloud", *(order(now.stage, bytes(1000)) for _ in range(20)))
        await now.flush()
        told = sum(each.acknowledged for each in received)
        now.stage.transports["vehicle"].release_held(3)
        await now.flush()
        assert sum(each.acknowledged for each in received) == told + 3


async def test_what_has_no_room_in_the_journal_keeps_the_rest_of_its_flow_out(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        large, small = order(now.stage, bytes(10_000)), order(now.stage, b"small")
        other = now.stage.notify(b"other", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        received = now.stage.arrive("cloud", large, small, other)
        await now.flush()
        assert [each.acknowledged for each in received] == [False, False, True]


@pytest.mark.parametrize(("policy", "kept"), [("reject", "oldest"), ("evict", "newest")])
async def test_a_full_journal_follows_the_policy_of_the_route(tmp_path: Path, policy: str, kept: str) -> None:
    queue_policy = {"queue": {"on_full": policy}, "window": 1, "retry": {"jitter": 0}}
    async with life(tmp_path / "j.db", max_bytes=8 * 1024, queue_policy=queue_policy) as now:
        now.hold()
        messages = [order(now.stage, bytes([number]) * 1000) for number in range(20)]
        received = now.stage.arrive("cloud", *messages)
        await now.flush()
        for _ in range(30):
            await now.flush()
        assert all(each.acknowledged for each in received)
        given_up = now.stage.outcomes(DOWN)["dead_lettered"]
        now.stage.transports["vehicle"].release_held()
        arrived = now.stage.sent("vehicle")
        assert len(arrived) + given_up == 20
        assert arrived[0] == messages[0]  # in flight, and never evicted
        assert (arrived[-1] == messages[-1]) is (kept == "newest")


async def test_a_queue_may_be_larger_than_memory(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", memory=10 * (1000 + OVERHEAD_BYTES)) as now:
        now.hold()
        now.stage.transports["vehicle"].lose_link()
        messages = [
            order(now.stage, number.to_bytes(2, "big") * 500, ttl=90_000 if number == 99 else None) for number in range(100)
        ]
        now.stage.arrive("cloud", *messages)
        await now.flush()
        assert now.stage.router.custody.spilled == 90
        now.stage.pass_time(90_050)
        assert [m.message.payload for m in now.stage.dead_letters("cloud")] == [messages[99].payload]
        now.stage.transports["vehicle"].hold = False
        now.stage.transports["vehicle"].restore_link()
        assert now.stage.sent("vehicle") == messages[:99]
        await now.flush()
        assert (now.stage.router.custody.spilled, now.stage.router.custody.in_memory, now.journal.rows_written) == (
            0,
            0,
            100,
        )


async def test_what_stands_still_costs_what_moves_no_room(tmp_path: Path) -> None:
    queue_policy = {"queue": {"messages": 10, "stalled_factor": 3}, "retry": {"jitter": 0}}
    async with life(tmp_path / "j.db", queue_policy=queue_policy) as now:
        stage = now.stage
        stage.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        stuck = []
        for number in range(60):
            stuck += stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
        told = sum(each.acknowledged for each in stuck)
        assert told == 40  # three times the bound on top, and the bound itself: then the source waits
        stage.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        assert [int(message.payload or b"") for message in stage.sent("vehicle")] == list(range(60))
        assert all(each.acknowledged for each in stuck)


async def test_a_flow_that_stands_still_holds_up_no_other(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", queue_policy={"queue": {"messages": 10}, "retry": {"jitter": 0}}) as now:
        stage = now.stage
        stage.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        for number in range(50):
            stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
        moving = stage.notify(b"moving", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        stage.arrive("cloud", moving)
        assert stage.sent("vehicle") == [moving]


async def test_an_endpoint_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    changes = {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "cloud", "to": "vehicle"}, {"from": "cloud", "to": "phone"}],
        "queue_policy": {"queue": {"messages": 10}, "retry": {"jitter": 0}},
    }
    async with life(tmp_path / "j.db", **changes) as now:
        stage = now.stage
        stage.transports["vehicle"].lose_link()
        for number in range(100):
            (received,) = stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
            assert received.acknowledged
        moving = stage.notify(b"moving", sink=UUri("phone1", 0xC, 1, 0), source=ORDERS)
        stage.arrive("cloud", moving)
        assert stage.sent("phone") == [moving]
