"""Queues, lanes, bounds, retry, priority and time, through the whole router."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from streamer.delivery.lifecycle.departure import Drain
from streamer.delivery.lifecycle.reload import Reload
from streamer.transports.base import LinkState, ListenerOptions
from streamer.transports.errors import RefusedError, SendError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness, configuration, three_networks

DOOR = UUri("veh1", 0xD, 1, 0x8000)


def refusing(times: int, source: UUri) -> Callable[[UMessage], SendError | None]:
    """Refuse the messages of one source so many times."""
    left = [times]

    def refuse(message: UMessage) -> SendError | None:
        if message.attributes.source == source and left[0] > 0:
            left[0] -= 1
            return RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
        return None

    return refuse


async def test_lost_link_waits_without_using_up_attempts_and_keeps_order() -> None:
    config = configuration(queue_policy={"retry": {"attempts": 1}})
    async with RouterHarness(config) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(50)]
        harness.arrive("vehicle", *messages)
        for _ in range(5):
            cloud.lose_link()
            harness.pass_time(60_000)
            cloud.restore_link()
        cloud.release_withheld()
        assert harness.sent("cloud") == messages
        assert harness.outcomes("vehicle-cloud") == {"delivered": 50}


async def test_refused_head_is_sent_again_with_back_off_and_nothing_overtakes_it() -> None:
    async with RouterHarness() as harness:
        messages = [harness.speed(bytes([n])) for n in range(20)]
        harness.transports["cloud"].refuse = refusing(3, messages[0].attributes.source)
        harness.arrive("vehicle", *messages)
        for wait_ms in (500, 1000, 2000):
            assert harness.sent("cloud") == []
            harness.pass_time(wait_ms - 1)
            assert harness.sent("cloud") == []
            harness.pass_time(1)
        assert harness.sent("cloud") == messages
        (account,) = [a for a in harness.router.accounts() if a.name == "vehicle-cloud"]
        assert account.stats.retries == 3


async def test_flow_whose_messages_are_refused_does_not_delay_the_others() -> None:
    async with RouterHarness() as harness:
        refused = [harness.speed() for _ in range(5)]
        harness.transports["cloud"].refuse = refusing(10**6, refused[0].attributes.source)
        others = [harness.speed(source=DOOR) for _ in range(100)]
        harness.arrive("vehicle", *refused, *others)
        assert harness.sent("cloud") == others


async def test_highest_class_overtakes_a_full_queue_of_the_lowest() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        low = [harness.speed(priority=UPriority.CS0) for _ in range(500)]
        urgent = harness.speed(source=DOOR, priority=UPriority.CS6)
        harness.arrive("vehicle", *low, urgent)
        cloud.restore_link()
        assert harness.sent("cloud") == [urgent, *low]


async def test_order_inside_a_flow_is_never_traded_for_priority() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        flow = [harness.speed(priority=UPriority.CS0), harness.speed(priority=UPriority.CS6), harness.speed()]
        other = harness.speed(source=DOOR, priority=UPriority.CS3)
        harness.arrive("vehicle", other, *flow)
        cloud.restore_link()
        sent = harness.sent("cloud")
        assert [m for m in sent if m in flow] == flow
        assert sent.index(flow[1]) < sent.index(other)  # the urgent one pulls its flow forward


async def test_expired_messages_never_leave() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.set_state(LinkState.DOWN)
        dying = [harness.speed(ttl=100) for _ in range(10)]
        living = [harness.speed(ttl=0), harness.speed(), harness.speed(ttl=10_000)]
        harness.arrive("vehicle", *dying, *living)
        harness.clock.ms += 101  # no tick in between: the check before sending has to see it
        cloud.restore_link()
        assert harness.sent("cloud") == living
        assert harness.outcomes("vehicle-cloud") == {"expired": 10, "delivered": 3}
        assert len(harness.dead_letters("vehicle")) == 10


async def test_messages_expire_while_they_wait_behind_others() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        harness.arrive("vehicle", harness.speed(), harness.speed(ttl=100), harness.speed())
        harness.pass_time(101)
        assert harness.outcomes("vehicle-cloud") == {"expired": 1}
        assert harness.queued("vehicle-cloud") == 2


async def test_wall_clock_that_jumps_back_neither_expires_nor_hangs_anything() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = refusing(1, harness.speed().attributes.source)
        message = harness.speed(ttl=5000)
        harness.arrive("vehicle", message)
        harness.clock.ms -= 3_600_000
        harness.pass_time(500)
        assert harness.sent("cloud") == [message]


async def test_backpressure_loses_nothing_and_keeps_the_bound() -> None:
    config = configuration(queue_policy={"queue": {"messages": 100}})
    async with RouterHarness(config) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        messages = [harness.speed(n.to_bytes(4, "big")) for n in range(1000)]
        received = [harness.arrive("vehicle", message)[0] for message in messages]
        assert harness.queued("vehicle-cloud") == 100
        assert not any(r.acknowledged for r in received)
        cloud.release_withheld()
        assert harness.sent("cloud") == messages
        assert all(r.acknowledged for r in received)
        assert harness.outcomes("vehicle-cloud") == {"delivered": 1000}


async def test_backpressure_on_one_route_does_not_hold_up_another() -> None:
    config = three_networks(
        routes=[{"from": "vehicle", "to": "cloud", "queue": {"messages": 1}}, {"from": "vehicle", "to": "phone"}]
    )
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].is_withholding = True
        stuck = [harness.notify() for _ in range(5)]
        free = [harness.notify(sink=UUri("phone1", 1, 1, 0)) for _ in range(5)]
        harness.arrive("vehicle", *stuck, *free)
        assert harness.sent("phone") == free
        harness.transports["cloud"].release_withheld()
        assert harness.sent("cloud") == stuck


async def test_backpressure_by_bytes_lets_a_single_large_message_pass() -> None:
    config = configuration(queue_policy={"queue": {"bytes": 1000}})
    async with RouterHarness(config) as harness:
        large = [harness.speed(b"x" * 5000) for _ in range(3)]
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", *large)
        assert harness.queued("vehicle-cloud") == 1
        harness.transports["cloud"].release_withheld()
        assert harness.sent("cloud") == large


async def test_reject_turns_newcomers_away_and_every_one_is_a_dead_letter() -> None:
    config = configuration(queue_policy={"queue": {"messages": 10, "on_full": "reject"}})
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(30)]
        received = harness.arrive("vehicle", *messages)
        assert harness.outcomes("vehicle-cloud") == {"rejected": 20}
        assert [letter.message.payload for letter in harness.dead_letters("vehicle")] == [
            message.payload for message in messages[10:]
        ]
        assert [r.acknowledged for r in received] == [False] * 10 + [True] * 20
        harness.transports["cloud"].release_withheld()
        assert harness.sent("cloud") == messages[:10]


async def test_evict_gives_up_the_lowest_class_the_oldest_first() -> None:
    config = configuration(queue_policy={"queue": {"messages": 4, "on_full": "evict"}})
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        low = [harness.speed(bytes([n]), priority=UPriority.CS0) for n in range(3)]
        middle = harness.speed(b"middle", source=DOOR, priority=UPriority.CS3)
        harness.arrive("vehicle", *low, middle)
        urgent = harness.speed(b"urgent", source=DOOR, priority=UPriority.CS6)
        harness.arrive("vehicle", urgent, harness.speed(b"newer", priority=UPriority.CS0))
        evicted = [letter.message.payload for letter in harness.dead_letters("vehicle")]
        assert evicted == [b"\x00", b"\x01"]
        assert {letter.status.code for letter in harness.dead_letters("vehicle")} == {UCode.RESOURCE_EXHAUSTED}
        harness.transports["cloud"].restore_link()
        assert [m.payload for m in harness.sent("cloud")] == [b"middle", b"urgent", b"\x02", b"newer"]


async def test_evict_turns_the_newcomer_away_if_everything_else_is_more_important() -> None:
    config = configuration(queue_policy={"queue": {"messages": 2, "on_full": "evict"}})
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        important = [harness.speed(priority=UPriority.CS5), harness.speed(priority=UPriority.CS5)]
        unimportant = harness.speed(source=DOOR, priority=UPriority.CS0)
        harness.arrive("vehicle", *important, unimportant)
        assert harness.outcomes("vehicle-cloud") == {"rejected": 1}
        harness.transports["cloud"].restore_link()
        assert harness.sent("cloud") == important


async def test_window_bounds_what_is_unconfirmed() -> None:
    config = configuration(queue_policy={"window": 7})
    async with RouterHarness(config) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        sources = [UUri("veh1", 0x100 + n, 1, 0x8000) for n in range(20)]
        harness.arrive("vehicle", *(harness.speed(source=source) for source in sources))
        assert harness.router.egresses["cloud"].in_flight == 7
        cloud.release_withheld(3)
        assert harness.router.egresses["cloud"].in_flight == 7
        cloud.release_withheld()
        assert harness.router.egresses["cloud"].in_flight == 0
        assert len(harness.sent("cloud")) == 20


async def test_message_that_cannot_be_delivered_at_once_is_taken_into_custody() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = refusing(10**6, harness.speed().attributes.source)
        refused, fine = harness.arrive("vehicle", harness.speed(), harness.speed(source=DOOR))
        assert not refused.acknowledged
        assert fine.acknowledged
        harness.router.custody.flush()
        assert refused.acknowledged  # so that it does not hold up what came behind it
        (again,) = harness.arrive("vehicle", refused.message)
        assert again.acknowledged
        assert harness.queued("vehicle-cloud") == 1


async def test_message_in_the_backlog_is_not_taken_into_custody() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        harness.transports["cloud"].is_withholding = True
        first, held_back = harness.arrive("vehicle", harness.speed(), harness.speed())
        harness.router.custody.flush()
        assert first.acknowledged
        assert not held_back.acknowledged


async def test_stop_leaves_to_its_source_what_was_not_acknowledged() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        (received,) = harness.arrive("vehicle", harness.speed())
        assert await Drain(harness.router).run(0) == 1
        assert not received.acknowledged
        (late,) = harness.arrive("vehicle", harness.speed())
        assert not late.acknowledged
        assert harness.queued("vehicle-cloud") == 1
        assert harness.dead_letters("vehicle") == []


async def test_stop_makes_dead_letters_of_what_was_in_custody() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(3)]
        harness.arrive("vehicle", *messages)
        harness.router.custody.flush()
        assert await Drain(harness.router).run(0) == 3
        letters = harness.dead_letters("vehicle")
        assert [letter.message.payload for letter in letters] == [message.payload for message in messages]
        assert {letter.status.code for letter in letters} == {UCode.UNAVAILABLE}
        harness.check_books()


async def test_stop_delivers_the_backlog() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 2}})) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(10)]
        harness.arrive("vehicle", *messages)
        draining = asyncio.create_task(Drain(harness.router).run(10))
        await asyncio.sleep(0)
        cloud.release_withheld()
        assert await draining == 0
        assert harness.sent("cloud") == messages


async def test_stop_makes_dead_letters_of_what_no_source_retransmits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryReceived, "source_retransmits", False)
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 2}})) as harness:
        harness.transports["cloud"].is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(5)]
        harness.arrive("vehicle", *messages)
        assert await Drain(harness.router).run(0) == 5
        assert sorted(letter.message.payload for letter in harness.dead_letters("vehicle")) == [m.payload for m in messages]
        harness.check_books()


async def test_backpressure_waits_until_every_copy_of_a_publish_has_room() -> None:
    route = {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"], "publish_to": ["a", "b"]}
    config = configuration(routes=[route], queue_policy={"queue": {"messages": 5}})
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        harness.transports["cloud"].is_withholding = True
        messages = [harness.speed(bytes([n])) for n in range(20)]
        harness.arrive("vehicle", *messages)
        assert harness.queued("vehicle-cloud") == 4
        harness.transports["cloud"].release_withheld()
        for authority in ("a", "b"):
            sent = [m.id for m in harness.sent("cloud") if m.attributes.sink and m.attributes.sink.authority == authority]
            assert sent == [m.id for m in messages]
        assert harness.dead_letters("vehicle") == []


async def test_delivered_messages_with_a_long_ttl_are_not_kept_in_memory() -> None:
    async with RouterHarness() as harness:
        for _ in range(50):
            harness.transports["cloud"].is_withholding = True
            message = harness.speed(bytes(100_000), ttl=3_600_000)
            harness.arrive("vehicle", message)
            harness.router.custody.flush()
            harness.pass_time(50)  # it is listed with its deadline
            harness.transports["cloud"].release_withheld()
            harness.transports["cloud"].sent[-1] = harness.speed()  # the books count it, nothing keeps it
        harness.pass_time(50)
        payloads = [o for o in gc.get_objects() if isinstance(o, UMessage) and len(o.payload or b"") == 100_000]
        assert len(payloads) <= 1  # the loop's own last one


async def test_reload_that_a_transport_cannot_follow_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        vehicle = harness.transports["vehicle"]
        before = set(vehicle.registry.filters())
        monkeypatch.setattr(vehicle.registry, "_limits", ListenerOptions(max_listeners=len(before) + 1))
        patterns = [f"//veh1/{n:X}/1/FFFF" for n in range(1, 5)]
        with pytest.raises(UStatusError):
            await Reload(
                harness.router, configuration(routes=[{"from": "vehicle", "to": "cloud", "publish": patterns}])
            ).run()
        assert set(vehicle.registry.filters()) == before
        message = harness.speed()
        harness.arrive("vehicle", message)
        assert harness.sent("cloud") == [message]


async def test_policy_that_changes_is_applied_to_the_backlog() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 2}})) as harness:
        harness.transports["cloud"].is_withholding = True
        received = harness.arrive("vehicle", *(harness.speed(bytes([n])) for n in range(5)))
        await Reload(harness.router, configuration(queue_policy={"queue": {"messages": 2, "on_full": "reject"}})).run()
        assert [r.acknowledged for r in received] == [False] * 2 + [True] * 3
        assert harness.outcomes("vehicle-cloud") == {"rejected": 3}


async def test_message_in_the_backlog_expires_in_time() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        first, dying, living = harness.arrive("vehicle", harness.speed(), harness.speed(ttl=100), harness.speed())
        harness.pass_time(101)
        assert dying.acknowledged
        assert harness.outcomes("none") == {"expired": 1}
        assert len(harness.dead_letters("vehicle")) == 1
        harness.transports["cloud"].restore_link()
        assert harness.sent("cloud") == [first.message, living.message]
        assert harness.router.ingresses["vehicle"].backlog.bytes == 0
