"""A journal at its bound, a queue larger than memory, held flows: which sources have to wait, and which do not."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from streamer.transports.base import Presence
from streamer.uprotocol.message import OVERHEAD_BYTES
from streamer.uprotocol.protobuf import id_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import ORDERS, VEHICLE_APP
from tests.flow.journaled_run import DOWN, journaled_run, order


async def test_with_the_journal_at_its_bound_sources_are_not_acknowledged_until_there_is_room(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=8 * 1024) as run:
        run.hold()
        received = run.harness.arrive("cloud", *(order(run.harness, bytes(1000)) for _ in range(20)))
        await run.flush()
        told = [each.acknowledged for each in received]
        assert 0 < sum(told) < 20
        assert told == sorted(told, reverse=True)
        run.harness.transports["vehicle"].release_withheld()
        await run.flush()
        assert all(each.acknowledged for each in received)
        assert run.harness.outcomes(DOWN) == {"delivered": 20}
        run.hold()
        (again,) = run.harness.arrive("cloud", order(run.harness, bytes(1000)))
        await run.flush()
        assert again.acknowledged


async def test_a_starved_message_is_written_when_another_one_has_left(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=8 * 1024) as run:
        run.hold()
        received = run.harness.arrive("cloud", *(order(run.harness, bytes(1000)) for _ in range(20)))
        await run.flush()
        told = sum(each.acknowledged for each in received)
        run.harness.transports["vehicle"].release_withheld(3)
        await run.flush()
        assert sum(each.acknowledged for each in received) == told + 3


async def test_a_message_without_room_in_the_journal_keeps_the_rest_of_its_flow_out(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", max_bytes=8 * 1024) as run:
        run.hold()
        large, small = order(run.harness, bytes(10_000)), order(run.harness, b"small")
        other = run.harness.notify(b"other", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        received = run.harness.arrive("cloud", large, small, other)
        await run.flush()
        assert [each.acknowledged for each in received] == [False, False, True]


@pytest.mark.parametrize(("policy", "kept"), [("reject", "oldest"), ("evict", "newest")])
async def test_a_full_journal_follows_the_policy_of_the_route(tmp_path: Path, policy: str, kept: str) -> None:
    queue_policy = {"queue": {"on_full": policy}, "window": 1}
    async with journaled_run(tmp_path / "j.db", max_bytes=8 * 1024, queue_policy=queue_policy) as run:
        run.hold()
        messages = [order(run.harness, bytes([number]) * 1000) for number in range(20)]
        received = run.harness.arrive("cloud", *messages)
        await run.flush()
        for _ in range(30):
            await run.flush()
        assert all(each.acknowledged for each in received)
        given_up = run.harness.outcomes(DOWN)["dead_lettered"]
        run.harness.transports["vehicle"].release_withheld()
        arrived = run.harness.sent("vehicle")
        assert len(arrived) + given_up == 20
        assert arrived[0] == messages[0]  # in flight, and never evicted
        assert (arrived[-1] == messages[-1]) is (kept == "newest")


async def test_a_queue_may_be_larger_than_memory(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", memory=10 * (1000 + OVERHEAD_BYTES)) as run:
        run.hold()
        run.harness.transports["vehicle"].lose_link()
        messages = [
            order(run.harness, number.to_bytes(2, "big") * 500, ttl=90_000 if number == 99 else None)
            for number in range(100)
        ]
        run.harness.arrive("cloud", *messages)
        await run.flush()
        assert run.harness.router.custody.payloads.spilled == 90
        run.harness.pass_time(90_050)
        assert [m.message.payload for m in run.harness.dead_letters("cloud")] == [messages[99].payload]
        run.harness.transports["vehicle"].is_withholding = False
        run.harness.transports["vehicle"].restore_link()
        assert run.harness.sent("vehicle") == messages[:99]
        await run.flush()
        assert (
            run.harness.router.custody.payloads.spilled,
            run.harness.router.custody.payloads.in_memory,
            run.journal.rows_written,
        ) == (0, 0, 100)


@pytest.mark.parametrize("damaged", [{0}, {0, 1, 2}, {5, 39}, set(range(40))])
async def test_a_payload_that_was_lost_on_the_disk_holds_up_none_behind_it(tmp_path: Path, damaged: set[int]) -> None:
    async with journaled_run(tmp_path / "j.db", memory=1) as run:
        run.harness.transports["vehicle"].lose_link()
        messages = [order(run.harness, b"%d" % number) for number in range(40)]
        run.harness.arrive("cloud", *messages)
        await run.flush()
        connection = sqlite3.connect(tmp_path / "j.db")
        with closing(connection), connection:
            numbers = [number for (number,) in connection.execute("SELECT number FROM rows ORDER BY number")]
            for at in damaged:
                connection.execute("UPDATE rows SET body = zeroblob(length(body)) WHERE number = ?", (numbers[at],))
        run.harness.transports["vehicle"].restore_link()
        assert run.harness.sent("vehicle") == [message for at, message in enumerate(messages) if at not in damaged]
        lost = [message.id for at, message in enumerate(messages) if at in damaged]
        letters = run.harness.dead_letters("cloud")
        assert [(id_from_proto(each.message.attributes.id), each.status.code) for each in letters] == [
            (id_, UCode.DATA_LOSS) for id_ in lost
        ]
        assert run.harness.queued(DOWN) == 0
        await run.flush()


async def test_held_messages_take_no_room_from_those_that_move(tmp_path: Path) -> None:
    queue_policy = {"queue": {"messages": 10, "stalled_factor": 3}}
    async with journaled_run(tmp_path / "j.db", queue_policy=queue_policy) as run:
        harness = run.harness
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        stuck = []
        for number in range(60):
            stuck += harness.arrive("cloud", order(harness, b"%d" % number))
            harness.pass_time(50)
            await run.flush()
        told = sum(each.acknowledged for each in stuck)
        assert told == 40  # three times the bound on top, and the bound itself: then the source waits
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
        assert [int(message.payload or b"") for message in harness.sent("vehicle")] == list(range(60))
        assert all(each.acknowledged for each in stuck)


async def test_a_held_flow_holds_up_no_other(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", queue_policy={"queue": {"messages": 10}}) as run:
        harness = run.harness
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        for number in range(50):
            harness.arrive("cloud", order(harness, b"%d" % number))
            harness.pass_time(50)
            await run.flush()
        moving = harness.notify(b"moving", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        harness.arrive("cloud", moving)
        assert harness.sent("vehicle") == [moving]


async def test_an_endpoint_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "cloud", "to": "vehicle"}, {"from": "cloud", "to": "phone"}],
        "queue_policy": {"queue": {"messages": 10}},
    }
    async with journaled_run(tmp_path / "j.db", **changes) as run:
        harness = run.harness
        harness.transports["vehicle"].lose_link()
        for number in range(100):
            (received,) = harness.arrive("cloud", order(harness, b"%d" % number))
            harness.pass_time(50)
            await run.flush()
            assert received.acknowledged
        moving = harness.notify(b"moving", sink=UUri("phone1", 0xC, 1, 0), source=ORDERS)
        harness.arrive("cloud", moving)
        assert harness.sent("phone") == [moving]


@pytest.mark.parametrize("large", [0, 2])
async def test_a_message_with_room_for_only_one_route_is_taken_again_after_a_kill(tmp_path: Path, large: int) -> None:
    changes: dict[str, Any] = {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "cloud", "to": name, "publish": [str(ORDERS)]} for name in ("vehicle", "phone")],
    }
    async with journaled_run(tmp_path / "j.db", max_bytes=8 * 1024, **changes) as run:
        for name in ("vehicle", "phone"):
            run.hold(name)
        orders = [run.harness.speed(bytes(1000 * (number != large)), source=ORDERS) for number in range(5)]
        received = run.harness.arrive("cloud", *orders)
        await run.flush()
        left = [each.message for each in received if not each.acknowledged]
        assert 0 < len(left) < 5
    async with journaled_run(tmp_path / "j.db", **changes) as run:
        run.harness.arrive("cloud", *left)
        assert [run.harness.sent(name) for name in ("vehicle", "phone")] == [orders, orders]
