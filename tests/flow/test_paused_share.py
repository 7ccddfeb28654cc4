"""How much of a queue paused flows may take: never so much that they hold up anything else."""

from pathlib import Path

import pytest

from streamer.routing.pause_rules import PauseRule
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.life import life
from tests.flow.stage import CLOUD_APP, CLOUD_METHOD, ORDERS, SPEED, VEHICLE_APP, Stage, configuration
from tests.flow.test_paused import DOORS, EVERYTHING, UP, pause, resume, waiting

FULL = "it is paused and its share of the queue is full"


def small(**queue: object) -> dict[str, object]:
    return {"queue_policy": {"queue": {"messages": 8} | queue}}


def many(stage: Stage, number: int, source: UUri = SPEED, **options: object) -> list[UMessage]:
    return [stage.speed(b"%d" % each, source, **options) for each in range(number)]


@pytest.mark.parametrize("on_full", ["backpressure", "reject"])
async def test_beyond_half_of_the_queue_what_is_stopped_is_refused_and_the_rest_goes_on(on_full: str) -> None:
    async with Stage(configuration(**small(on_full=on_full))) as stage:
        pause(stage.router, SPEED)
        messages = many(stage, 20)
        batch = stage.arrive("vehicle", *messages)
        doors = many(stage, 20, DOORS)
        for door in doors:
            stage.arrive("vehicle", door)
        assert stage.sent("cloud") == doors
        assert waiting(stage.router) == 4
        assert stage.outcomes(UP) == {"rejected": 16, "delivered": 20}
        assert all(received.acknowledged for received in batch[4:])
        letters = stage.dead_letters("vehicle")
        assert {(letter.status.code, letter.status.message) for letter in letters} == {(UCode.RESOURCE_EXHAUSTED, FULL)}
        resume(stage.router, SPEED)
        stage.check_books()
        assert stage.sent("cloud") == doors + messages[:4]


async def test_a_stopped_topic_never_stops_its_endpoint() -> None:
    """With what the queue holds by default."""
    async with Stage() as stage:
        paused: list[str] = []
        vehicle = stage.transports["vehicle"]
        vehicle.pause_receiving = lambda: paused.append("paused")  # type: ignore[method-assign]
        pause(stage.router, SPEED)
        bound = stage.config.queue_policy.queue.messages
        vehicle.inject(*(MemoryReceived(message) for message in many(stage, 2 * bound)))
        other = stage.speed(source=DOORS)
        stage.arrive("vehicle", other)
        assert (paused, stage.sent("cloud"), waiting(stage.router)) == ([], [other], bound // 2)


async def test_all_stopped_flows_of_a_route_share_one_half() -> None:
    async with Stage(configuration(**small())) as stage:
        pause(stage.router, SPEED)
        pause(stage.router, DOORS)
        stage.arrive("vehicle", *many(stage, 3), *many(stage, 3, DOORS))
        assert (waiting(stage.router), stage.outcomes(UP)) == (4, {"rejected": 2})


async def test_half_of_the_bytes_is_a_bound_too() -> None:
    async with Stage(configuration(**small(messages=1000, bytes=40_000))) as stage:
        pause(stage.router, SPEED)
        large = [stage.speed(bytes(9_000)) for _ in range(4)]
        stage.arrive("vehicle", *large)
        assert (waiting(stage.router), stage.outcomes(UP)) == (2, {"rejected": 2})


async def test_room_comes_back_when_what_is_stopped_expires() -> None:
    async with Stage(configuration(**small())) as stage:
        pause(stage.router, SPEED)
        stage.arrive("vehicle", *many(stage, 6, ttl=1000))
        stage.pass_time(2000)
        assert stage.outcomes(UP) == {"expired": 4, "rejected": 2}
        stage.arrive("vehicle", *many(stage, 6))
        assert waiting(stage.router) == 4


async def test_a_flow_that_was_stopped_and_goes_on_has_the_whole_queue_again() -> None:
    async with Stage(configuration(**small())) as stage:
        pause(stage.router, SPEED)
        stage.arrive("vehicle", *many(stage, 6))
        stage.transports["cloud"].lose_link()
        resume(stage.router, SPEED)
        stage.arrive("vehicle", *many(stage, 4))
        assert (stage.queued(UP), stage.outcomes(UP)) == (8, {"rejected": 2})


async def test_what_waited_when_it_was_stopped_counts_and_so_does_what_comes_back() -> None:
    async with Stage(configuration(**small())) as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        stage.arrive("vehicle", *many(stage, 4))
        pause(stage.router, SPEED)
        cloud.lose_link()
        assert waiting(stage.router) == 4
        stage.arrive("vehicle", *many(stage, 1))
        assert (waiting(stage.router), stage.outcomes(UP)) == (4, {"rejected": 1})


async def test_a_request_that_is_refused_for_it_is_answered() -> None:
    async with Stage(configuration(**small(messages=2))) as stage:
        pause(stage.router, EVERYTHING)
        waits, refused = (stage.ask(VEHICLE_APP, CLOUD_METHOD) for _ in range(2))
        stage.arrive("vehicle", waits, refused)
        (answer,) = stage.sent("vehicle")
        assert (answer.attributes.reqid, answer.attributes.commstatus) == (refused.id, UCode.RESOURCE_EXHAUSTED)


async def test_evict_lets_the_oldest_go_as_ever() -> None:
    async with Stage(configuration(**small(on_full="evict"))) as stage:
        pause(stage.router, SPEED)
        messages = many(stage, 20)
        stage.arrive("vehicle", *messages)
        other = stage.notify(sink=CLOUD_APP, source=DOORS)
        stage.arrive("vehicle", other)
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == [other, *messages[13:]]


async def test_with_a_journal_the_room_for_what_stands_still_comes_on_top(tmp_path: Path) -> None:
    queue_policy = {"queue": {"messages": 8, "stalled_factor": 3}}
    async with life(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)], queue_policy=queue_policy) as now:
        stage = now.stage
        orders = [stage.notify(b"%d" % each, sink=VEHICLE_APP, source=ORDERS) for each in range(40)]
        for order in orders:
            stage.arrive("cloud", order)
            stage.pass_time(50)
            await now.flush()
        assert waiting(stage.router) == 8 // 2 + 3 * 8
        others = [
            stage.notify(b"%d" % each, sink=VEHICLE_APP, source=ORDERS._replace(resource=0x9001)) for each in range(20)
        ]
        stage.arrive("cloud", *others)
        assert stage.sent("vehicle") == others
