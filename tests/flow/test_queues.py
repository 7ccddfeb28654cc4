"""Queues, lanes, bounds, retry, priority and time: a dialogue on memory transports."""

import asyncio
import gc

import pytest

from streamer.transports.base import LinkState, ListenerOptions
from streamer.transports.errors import RefusedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.flow.stage import Stage, configuration, three_networks

DOOR = UUri("veh1", 0xD, 1, 0x8000)


def refusing(times: int, source: UUri):
    """Refuse the messages of one source so many times."""
    left = [times]

    def refuse(message):
        if message.attributes.source == source and left[0] > 0:
            left[0] -= 1
            return RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
        return None

    return refuse


async def test_lost_link_waits_without_using_up_attempts_and_keeps_order() -> None:
    config = configuration(queue_policy={"retry": {"attempts": 1}})
    async with Stage(config) as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        messages = [stage.speed(bytes([n])) for n in range(50)]
        stage.arrive("vehicle", *messages)
        for _ in range(5):
            cloud.lose_link()
            stage.pass_time(60_000)
            cloud.restore_link()
        cloud.release_held()
        assert stage.sent("cloud") == messages
        assert stage.outcomes("vehicle-cloud") == {"delivered": 50}


async def test_refused_head_is_sent_again_with_back_off_and_nothing_overtakes_it() -> None:
    async with Stage() as stage:
        messages = [stage.speed(bytes([n])) for n in range(20)]
        stage.transports["cloud"].refuse = refusing(3, messages[0].attributes.source)
        stage.arrive("vehicle", *messages)
        for wait_ms in (500, 1000, 2000):
            assert stage.sent("cloud") == []
            stage.pass_time(wait_ms - 1)
            assert stage.sent("cloud") == []
            stage.pass_time(1)
        assert stage.sent("cloud") == messages
        (account,) = [a for a in stage.router.accounts() if a.name == "vehicle-cloud"]
        assert account.stats.retries == 3


async def test_flow_whose_messages_are_refused_does_not_delay_the_others() -> None:
    async with Stage() as stage:
        refused = [stage.speed() for _ in range(5)]
        stage.transports["cloud"].refuse = refusing(10**6, refused[0].attributes.source)
        others = [stage.speed(source=DOOR) for _ in range(100)]
        stage.arrive("vehicle", *refused, *others)
        assert stage.sent("cloud") == others


async def test_highest_class_overtakes_a_full_queue_of_the_lowest() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        low = [stage.speed(priority=UPriority.CS0) for _ in range(500)]
        urgent = stage.speed(source=DOOR, priority=UPriority.CS6)
        stage.arrive("vehicle", *low, urgent)
        cloud.restore_link()
        assert stage.sent("cloud") == [urgent, *low]


async def test_order_inside_a_flow_is_never_traded_for_priority() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        flow = [stage.speed(priority=UPriority.CS0), stage.speed(priority=UPriority.CS6), stage.speed()]
        other = stage.speed(source=DOOR, priority=UPriority.CS3)
        stage.arrive("vehicle", other, *flow)
        cloud.restore_link()
        sent = stage.sent("cloud")
        assert [m for m in sent if m in flow] == flow
        assert sent.index(flow[1]) < sent.index(other)  # the urgent one pulls its flow forward


async def test_expired_messages_never_leave() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        dying = [stage.speed(ttl=100) for _ in range(10)]
        living = [stage.speed(ttl=0), stage.speed(), stage.speed(ttl=10_000)]
        stage.arrive("vehicle", *dying, *living)
        stage.clock.ms += 101  # no tick in between: the check before sending has to see it
        cloud.restore_link()
        assert stage.sent("cloud") == living
        assert stage.outcomes("vehicle-cloud") == {"expired": 10, "delivered": 3}
        assert len(stage.dead_letters("vehicle")) == 10


async def test_messages_expire_while_they_wait_behind_others() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].set_state(LinkState.DOWN)
        stage.arrive("vehicle", stage.speed(), stage.speed(ttl=100), stage.speed())
        stage.pass_time(101)
        assert stage.outcomes("vehicle-cloud") == {"expired": 1}
        assert stage.queued("vehicle-cloud") == 2


async def test_wall_clock_that_jumps_back_neither_expires_nor_hangs_anything() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].refuse = refusing(1, stage.speed().attributes.source)
        message = stage.speed(ttl=5000)
        stage.arrive("vehicle", message)
        stage.clock.ms -= 3_600_000
        stage.pass_time(500)
        assert stage.sent("cloud") == [message]


async def test_backpressure_loses_nothing_and_keeps_the_bound() -> None:
    config = configuration(queue_policy={"queue": {"messages": 100}})
    async with Stage(config) as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        messages = [stage.speed(n.to_bytes(4, "big")) for n in range(1000)]
        received = [stage.arrive("vehicle", message)[0] for message in messages]
        assert stage.queued("vehicle-cloud") == 100
        assert not any(r.acknowledged for r in received)
        cloud.release_held()
        assert stage.sent("cloud") == messages
        assert all(r.acknowledged for r in received)
        assert stage.outcomes("vehicle-cloud") == {"delivered": 1000}


async def test_backpressure_on_one_route_does_not_hold_up_another() -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "queue": {"messages": 1}},
            {"from": "vehicle", "to": "phone"},
        ],
    )
    async with Stage(config) as stage:
        stage.transports["cloud"].hold = True
        stuck = [stage.notify() for _ in range(5)]
        free = [stage.notify(sink=UUri("phone1", 1, 1, 0)) for _ in range(5)]
        stage.arrive("vehicle", *stuck, *free)
        assert stage.sent("phone") == free
        stage.transports["cloud"].release_held()
        assert stage.sent("cloud") == stuck


async def test_backpressure_by_bytes_lets_a_single_large_message_pass() -> None:
    config = configuration(queue_policy={"queue": {"bytes": 1000}})
    async with Stage(config) as stage:
        large = [stage.speed(b"x" * 5000) for _ in range(3)]
        stage.transports["cloud"].hold = True
        stage.arrive("vehicle", *large)
        assert stage.queued("vehicle-cloud") == 1
        stage.transports["cloud"].release_held()
        assert stage.sent("cloud") == large


async def test_reject_turns_newcomers_away_and_every_one_is_a_dead_letter() -> None:
    config = configuration(queue_policy={"queue": {"messages": 10, "on_full": "reject"}})
    async with Stage(config) as stage:
        stage.transports["cloud"].hold = True
        messages = [stage.speed(bytes([n])) for n in range(30)]
        received = stage.arrive("vehicle", *messages)
        assert stage.outcomes("vehicle-cloud") == {"rejected": 20}
        assert [letter.message.payload for letter in stage.dead_letters("vehicle")] == [
            message.payload for message in messages[10:]
        ]
        assert [r.acknowledged for r in received] == [False] * 10 + [True] * 20
        stage.transports["cloud"].release_held()
        assert stage.sent("cloud") == messages[:10]


async def test_evict_lets_the_lowest_class_go_the_oldest_first() -> None:
    config = configuration(queue_policy={"queue": {"messages": 4, "on_full": "evict"}})
    async with Stage(config) as stage:
        stage.transports["cloud"].set_state(LinkState.DOWN)
        low = [stage.speed(bytes([n]), priority=UPriority.CS0) for n in range(3)]
        middle = stage.speed(b"middle", source=DOOR, priority=UPriority.CS3)
        stage.arrive("vehicle", *low, middle)
        urgent = stage.speed(b"urgent", source=DOOR, priority=UPriority.CS6)
        stage.arrive("vehicle", urgent, stage.speed(b"newer", priority=UPriority.CS0))
        evicted = [letter.message.payload for letter in stage.dead_letters("vehicle")]
        assert evicted == [b"\x00", b"\x01"]
        assert {letter.status.code for letter in stage.dead_letters("vehicle")} == {UCode.RESOURCE_EXHAUSTED}
        stage.transports["cloud"].restore_link()
        assert [m.payload for m in stage.sent("cloud")] == [b"middle", b"urgent", b"\x02", b"newer"]


async def test_evict_turns_the_newcomer_away_if_everything_else_is_more_important() -> None:
    config = configuration(queue_policy={"queue": {"messages": 2, "on_full": "evict"}})
    async with Stage(config) as stage:
        stage.transports["cloud"].set_state(LinkState.DOWN)
        important = [stage.speed(priority=UPriority.CS5), stage.speed(priority=UPriority.CS5)]
        unimportant = stage.speed(source=DOOR, priority=UPriority.CS0)
        stage.arrive("vehicle", *important, unimportant)
        assert stage.outcomes("vehicle-cloud") == {"rejected": 1}
        stage.transports["cloud"].restore_link()
        assert stage.sent("cloud") == important


async def test_window_bounds_what_is_unconfirmed() -> None:
    config = configuration(queue_policy={"window": 7})
    async with Stage(config) as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        sources = [UUri("veh1", 0x100 + n, 1, 0x8000) for n in range(20)]
        stage.arrive("vehicle", *(stage.speed(source=source) for source in sources))
        assert stage.router.egresses["cloud"].in_flight == 7
        cloud.release_held(3)
        assert stage.router.egresses["cloud"].in_flight == 7
        cloud.release_held()
        assert stage.router.egresses["cloud"].in_flight == 0
        assert len(stage.sent("cloud")) == 20


async def test_message_that_cannot_be_delivered_at_once_is_taken_into_custody() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].refuse = refusing(10**6, stage.speed().attributes.source)
        refused, fine = stage.arrive("vehicle", stage.speed(), stage.speed(source=DOOR))
        assert not refused.acknowledged
        assert fine.acknowledged
        stage.router.custody.flush()
        assert refused.acknowledged  # so that it does not hold up what came behind it
        (again,) = stage.arrive("vehicle", refused.message)
        assert again.acknowledged
        assert stage.queued("vehicle-cloud") == 1


async def test_message_that_is_held_back_is_not_taken_into_custody() -> None:
    async with Stage(configuration(queue_policy={"queue": {"messages": 1}})) as stage:
        stage.transports["cloud"].hold = True
        first, held_back = stage.arrive("vehicle", stage.speed(), stage.speed())
        stage.router.custody.flush()
        assert first.acknowledged
        assert not held_back.acknowledged


async def test_stop_leaves_to_its_source_what_was_not_acknowledged() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].set_state(LinkState.DOWN)
        (received,) = stage.arrive("vehicle", stage.speed())
        assert await stage.router.drain(0) == 1
        assert not received.acknowledged
        (late,) = stage.arrive("vehicle", stage.speed())
        assert not late.acknowledged
        assert stage.queued("vehicle-cloud") == 1
        assert stage.dead_letters("vehicle") == []


async def test_stop_makes_dead_letters_of_what_was_in_custody() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].hold = True
        messages = [stage.speed(bytes([n])) for n in range(3)]
        stage.arrive("vehicle", *messages)
        stage.router.custody.flush()
        assert await stage.router.drain(0) == 3
        letters = stage.dead_letters("vehicle")
        assert [letter.message.payload for letter in letters] == [message.payload for message in messages]
        assert {letter.status.code for letter in letters} == {UCode.UNAVAILABLE}
        stage.check_books()


async def test_stop_delivers_what_was_held_back() -> None:
    async with Stage(configuration(queue_policy={"queue": {"messages": 2}})) as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        messages = [stage.speed(bytes([n])) for n in range(10)]
        stage.arrive("vehicle", *messages)
        draining = asyncio.create_task(stage.router.drain(10))
        await asyncio.sleep(0)
        cloud.release_held()
        assert await draining == 0
        assert stage.sent("cloud") == messages


async def test_stop_makes_dead_letters_of_what_no_source_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryReceived, "source_keeps", False)
    async with Stage(configuration(queue_policy={"queue": {"messages": 2}})) as stage:
        stage.transports["cloud"].hold = True
        messages = [stage.speed(bytes([n])) for n in range(5)]
        stage.arrive("vehicle", *messages)
        assert await stage.router.drain(0) == 5
        assert sorted(letter.message.payload for letter in stage.dead_letters("vehicle")) == [m.payload for m in messages]
        stage.check_books()


async def test_backpressure_waits_until_every_copy_of_a_publish_has_room() -> None:
    route = {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"], "publish_to": ["a", "b"]}
    config = configuration(routes=[route], queue_policy={"queue": {"messages": 5}})
    async with Stage(config, addressed=("cloud",)) as stage:
        stage.transports["cloud"].hold = True
        messages = [stage.speed(bytes([n])) for n in range(20)]
        stage.arrive("vehicle", *messages)
        assert stage.queued("vehicle-cloud") == 4
        stage.transports["cloud"].release_held()
        for authority in ("a", "b"):
            sent = [m.id for m in stage.sent("cloud") if m.attributes.sink.authority == authority]
            assert sent == [m.id for m in messages]
        assert stage.dead_letters("vehicle") == []


async def test_delivered_messages_with_a_long_ttl_are_not_kept_in_memory() -> None:
    async with Stage() as stage:
        for _ in range(50):
            stage.transports["cloud"].hold = True
            message = stage.speed(bytes(100_000), ttl=3_600_000)
            stage.arrive("vehicle", message)
            stage.router.custody.flush()
            stage.pass_time(50)  # it is listed with its deadline
            stage.transports["cloud"].release_held()
            stage.transports["cloud"].sent.clear()
        stage.pass_time(50)
        payloads = [o for o in gc.get_objects() if isinstance(o, UMessage) and len(o.payload or b"") == 100_000]
        assert len(payloads) <= 1  # the loop's own last one


async def test_reload_that_a_transport_cannot_follow_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage() as stage:
        vehicle = stage.transports["vehicle"]
        before = set(vehicle.registry.filters())
        monkeypatch.setattr(vehicle.registry, "_limits", ListenerOptions(max_listeners=len(before) + 1))
        patterns = [f"//veh1/{n:X}/1/FFFF" for n in range(1, 5)]
        with pytest.raises(UStatusError):
            await stage.router.reload(configuration(routes=[{"from": "vehicle", "to": "cloud", "publish": patterns}]))
        assert set(vehicle.registry.filters()) == before
        message = stage.speed()
        stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]


async def test_policy_that_changes_while_messages_are_held_back_is_applied_to_them() -> None:
    async with Stage(configuration(queue_policy={"queue": {"messages": 2}})) as stage:
        stage.transports["cloud"].hold = True
        received = stage.arrive("vehicle", *(stage.speed(bytes([n])) for n in range(5)))
        await stage.router.reload(configuration(queue_policy={"queue": {"messages": 2, "on_full": "reject"}}))
        assert [r.acknowledged for r in received] == [False] * 2 + [True] * 3
        assert stage.outcomes("vehicle-cloud") == {"rejected": 3}


async def test_message_that_is_held_back_expires_in_time() -> None:
    async with Stage(configuration(queue_policy={"queue": {"messages": 1}})) as stage:
        stage.transports["cloud"].set_state(LinkState.DOWN)
        first, dying, living = stage.arrive("vehicle", stage.speed(), stage.speed(ttl=100), stage.speed())
        stage.pass_time(101)
        assert dying.acknowledged
        assert stage.outcomes("none") == {"expired": 1}
        assert len(stage.dead_letters("vehicle")) == 1
        stage.transports["cloud"].restore_link()
        assert stage.sent("cloud") == [first.message, living.message]
        assert stage.router.ingresses["vehicle"].backlog.bytes == 0
