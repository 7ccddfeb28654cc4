"""How much of a queue paused flows may take, and what a journal keeps of them over restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.lifecycle.departure import Drain
from streamer.routing.pause_rules import PauseRule
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLOUD_APP, CLOUD_METHOD, ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import journaled_run
from tests.flow.pausing import DOORS, EVERYTHING, UP, pause, resume, waiting

FULL = "it is paused, and the room for paused messages is full"


def small(**queue: Any) -> dict[str, object]:
    return {"queue_policy": {"queue": {"messages": 8} | queue}}


def many(harness: RouterHarness, number: int, source: UUri = SPEED, **options: Any) -> list[UMessage]:
    return [harness.speed(b"%d" % each, source, **options) for each in range(number)]


@pytest.mark.parametrize("on_full", ["backpressure", "reject"])
async def test_beyond_half_of_the_queue_paused_flows_are_refused_and_the_rest_goes_on(on_full: str) -> None:
    async with RouterHarness(configuration(**small(on_full=on_full))) as harness:
        pause(harness.router, SPEED)
        messages = many(harness, 20)
        batch = harness.arrive("vehicle", *messages)
        doors = many(harness, 20, DOORS)
        for door in doors:
            harness.arrive("vehicle", door)
        assert harness.sent("cloud") == doors
        assert waiting(harness.router) == 4
        assert harness.outcomes(UP) == {"rejected": 16, "delivered": 20}
        assert all(received.acknowledged for received in batch[4:])
        letters = harness.dead_letters("vehicle")
        assert {(letter.status.code, letter.status.message) for letter in letters} == {(UCode.RESOURCE_EXHAUSTED, FULL)}
        resume(harness.router, SPEED)
        harness.check_books()
        assert harness.sent("cloud") == doors + messages[:4]


async def test_a_paused_topic_never_pauses_its_endpoint() -> None:
    """With what the queue holds by default."""
    async with RouterHarness() as harness:
        paused: list[str] = []
        vehicle = harness.transports["vehicle"]
        vehicle.set_receiving = lambda is_receiving: paused.append("paused")  # type: ignore[method-assign]
        pause(harness.router, SPEED)
        bound = harness.config.queue_policy.queue.messages
        vehicle.inject(*(MemoryReceived(message) for message in many(harness, 2 * bound)))
        other = harness.speed(source=DOORS)
        harness.arrive("vehicle", other)
        assert (paused, harness.sent("cloud"), waiting(harness.router)) == ([], [other], bound // 2)


async def test_all_paused_flows_of_a_route_share_one_half() -> None:
    async with RouterHarness(configuration(**small())) as harness:
        pause(harness.router, SPEED)
        pause(harness.router, DOORS)
        harness.arrive("vehicle", *many(harness, 3), *many(harness, 3, DOORS))
        assert (waiting(harness.router), harness.outcomes(UP)) == (4, {"rejected": 2})


async def test_half_of_the_bytes_is_a_bound_too() -> None:
    async with RouterHarness(configuration(**small(messages=1000, bytes=40_000))) as harness:
        pause(harness.router, SPEED)
        large = [harness.speed(bytes(9_000)) for _ in range(4)]
        harness.arrive("vehicle", *large)
        assert (waiting(harness.router), harness.outcomes(UP)) == (2, {"rejected": 2})


async def test_room_comes_back_when_paused_messages_expire() -> None:
    async with RouterHarness(configuration(**small())) as harness:
        pause(harness.router, SPEED)
        harness.arrive("vehicle", *many(harness, 6, ttl=1000))
        harness.pass_time(2000)
        assert harness.outcomes(UP) == {"expired": 4, "rejected": 2}
        harness.arrive("vehicle", *many(harness, 6))
        assert waiting(harness.router) == 4


async def test_a_flow_that_was_resumed_has_the_whole_queue_again() -> None:
    async with RouterHarness(configuration(**small())) as harness:
        pause(harness.router, SPEED)
        harness.arrive("vehicle", *many(harness, 6))
        harness.transports["cloud"].lose_link()
        resume(harness.router, SPEED)
        harness.arrive("vehicle", *many(harness, 4))
        assert (harness.queued(UP), harness.outcomes(UP)) == (8, {"rejected": 2})


async def test_messages_that_waited_before_the_pause_count_and_so_do_those_that_come_back() -> None:
    async with RouterHarness(configuration(**small())) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", *many(harness, 4))
        pause(harness.router, SPEED)
        cloud.lose_link()
        assert waiting(harness.router) == 4
        harness.arrive("vehicle", *many(harness, 1))
        assert (waiting(harness.router), harness.outcomes(UP)) == (4, {"rejected": 1})


async def test_a_request_that_is_refused_for_a_full_half_is_answered() -> None:
    async with RouterHarness(configuration(**small(messages=2))) as harness:
        pause(harness.router, EVERYTHING)
        waits, refused = (harness.ask(VEHICLE_APP, CLOUD_METHOD) for _ in range(2))
        harness.arrive("vehicle", waits, refused)
        (answer,) = harness.sent("vehicle")
        assert (answer.attributes.reqid, answer.attributes.commstatus) == (refused.id, UCode.RESOURCE_EXHAUSTED)


async def test_evict_gives_up_the_oldest_as_without_a_pause() -> None:
    async with RouterHarness(configuration(**small(on_full="evict"))) as harness:
        pause(harness.router, SPEED)
        messages = many(harness, 20)
        harness.arrive("vehicle", *messages)
        other = harness.notify(sink=CLOUD_APP, source=DOORS)
        harness.arrive("vehicle", other)
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == [other, *messages[13:]]


async def test_with_a_journal_the_room_for_held_messages_comes_on_top(tmp_path: Path) -> None:
    queue_policy = {"queue": {"messages": 8, "stalled_factor": 3}}
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)], queue_policy=queue_policy) as run:
        harness = run.harness
        orders = [harness.notify(b"%d" % each, sink=VEHICLE_APP, source=ORDERS) for each in range(40)]
        for order in orders:
            harness.arrive("cloud", order)
            harness.pass_time(50)
            await run.flush()
        assert waiting(harness.router) == 8 // 2 + 3 * 8
        others = [
            harness.notify(b"%d" % each, sink=VEHICLE_APP, source=ORDERS._replace(resource=0x9001)) for each in range(20)
        ]
        harness.arrive("cloud", *others)
        assert harness.sent("vehicle") == others


async def test_rules_hold_over_a_restart_with_what_the_journal_has_kept(tmp_path: Path) -> None:
    """As the daemon does it: the rules are there before the router recovers."""
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as run:
        kept = [run.harness.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        batch = run.harness.arrive("cloud", *kept)
        await run.flush()
        assert all(received.acknowledged for received in batch)
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as run:
        newer = run.harness.notify(b"newer", sink=VEHICLE_APP, source=ORDERS)
        run.harness.arrive("cloud", newer)
        run.harness.pass_time(1000)
        assert run.harness.sent("vehicle") == []
        assert waiting(run.harness.router) == 4
        resume(run.harness.router, ORDERS)
        assert run.harness.sent("vehicle") == [*kept, newer]


async def test_unconfirmed_messages_of_before_a_crash_wait_packed_while_they_are_paused(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        left = [run.harness.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        run.harness.arrive("cloud", *left)
        await run.flush()
        assert run.harness.sent("vehicle") == left
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10, pause_rules=[PauseRule(ORDERS)]) as run:
        run.harness.pass_time(1000)
        assert run.harness.sent("vehicle") == []
        assert waiting(run.harness.router) == 3
        resume(run.harness.router, ORDERS)
        assert run.harness.sent("vehicle") == left


async def test_a_drain_with_a_journal_does_not_wait_for_what_is_paused(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        pause(run.harness.router, ORDERS)
        run.harness.arrive("cloud", run.harness.notify(sink=VEHICLE_APP, source=ORDERS))
        await run.flush()
        async with asyncio.timeout(30):
            assert await Drain(run.harness.router).run(600) == 1
