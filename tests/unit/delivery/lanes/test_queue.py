"""A route's queue: bounds, victims, expiry, and memory that stays bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.lanes import queue as queue_module
from streamer.delivery.lanes.lane import Delivery, Hold, Lane
from streamer.delivery.lanes.queue import Room, RouteQueue
from streamer.uprotocol.form import IS_COMPILED
from streamer.uprotocol.message import OVERHEAD_BYTES
from streamer.uprotocol.uri import UUri
from tests.unit.delivery.messages import NOW_MS, message, push, queue_policy, route_queue, topic


def take(queue: RouteQueue, delivery: Delivery) -> None:
    """Send the head of a lane, which has to be ``delivery``."""
    out: list[Delivery] = []
    delivery.lane.take(1, NOW_MS, 0.0, out, [])
    assert out == [delivery]


def settle(queue: RouteQueue, delivery: Delivery) -> None:
    queue.leave(delivery)
    delivery.lane.succeeded()


def payloads(deliveries: list[Delivery] | None) -> list[bytes | None] | None:
    return None if deliveries is None else [delivery.message.payload for delivery in deliveries]


# bounds


@pytest.mark.parametrize(
    ("on_full", "answer"), [("backpressure", Room.NO), ("reject", Room.NO), ("evict", Room.AFTER_EVICTION)]
)
def test_bound_in_messages(on_full: str, answer: Room) -> None:
    queue = route_queue(queue={"messages": 2, "on_full": on_full})
    push(queue, message())
    assert queue.room_for(1) is Room.YES
    push(queue, message())
    assert queue.room_for(1) is answer


def test_bound_in_bytes_counts_the_overhead_and_is_exact() -> None:
    queue = route_queue(queue={"bytes": 2 * OVERHEAD_BYTES + 10})
    push(queue, message(payload=b"12345"))
    assert queue.bytes == OVERHEAD_BYTES + 5
    assert queue.room_for(OVERHEAD_BYTES + 5) is Room.YES
    assert queue.room_for(OVERHEAD_BYTES + 6) is Room.NO


def test_empty_queue_takes_a_message_of_any_size() -> None:
    queue = route_queue(queue={"bytes": 1})
    assert queue.room_for(10**9) is Room.YES
    push(queue, message())
    assert queue.room_for(1) is Room.NO


def test_what_is_in_flight_counts_until_it_is_settled() -> None:
    queue = route_queue(queue={"messages": 1})
    delivery = push(queue, message())
    take(queue, delivery)
    assert queue.room_for(1) is Room.NO
    settle(queue, delivery)
    assert queue.room_for(1) is Room.YES
    assert (queue.messages, queue.bytes, queue.stats.accepted) == (0, 0, 1)


# victims


def full(*levels: int, **keys: Any) -> tuple[RouteQueue, list[Delivery]]:
    """A queue that these priority classes fill, one message each, payload = position."""
    queue = route_queue(queue={"messages": len(levels), "on_full": "evict"} | keys)
    return queue, [push(queue, message(flow=n, level=level, payload=bytes([n]))) for n, level in enumerate(levels)]


@pytest.mark.parametrize(
    ("levels", "newcomer", "victim"),
    [
        ((3, 0, 0, 6), 6, b"\x01"),  # the lowest class, the oldest of it
        ((3, 2, 1, 0), 3, b"\x03"),
        ((2, 2, 2), 2, b"\x00"),  # its own class will do
        ((5, 5), 4, None),  # never a higher class
        ((6,), 6, b"\x00"),
    ],
)
def test_victim_is_of_the_lowest_class_and_the_oldest_of_it(
    levels: tuple[int, ...], newcomer: int, victim: bytes | None
) -> None:
    queue, _ = full(*levels)
    assert payloads(queue.victims(OVERHEAD_BYTES, newcomer)) == (None if victim is None else [victim])


def test_what_is_in_flight_is_never_a_victim() -> None:
    queue, (first, *_) = full(0, 0, 0)
    take(queue, first)
    assert payloads(queue.victims(OVERHEAD_BYTES, 6)) == [b"\x01"]
    first.lane.returned()
    first.lane.put_back(first)
    queue.requeued(first)
    assert payloads(queue.victims(OVERHEAD_BYTES, 6)) == [b"\x00"]


def test_large_newcomer_takes_as_many_victims_as_it_needs_and_none_if_they_are_not_enough() -> None:
    queue = route_queue(queue={"messages": 100, "bytes": 4 * OVERHEAD_BYTES, "on_full": "evict"})
    for n, level in enumerate((1, 0, 2, 6)):
        push(queue, message(flow=n, level=level, payload=None))
    assert [d.seq for d in queue.victims(3 * OVERHEAD_BYTES, 3) or []] == [2, 1, 3]
    assert queue.victims(4 * OVERHEAD_BYTES, 5) is None
    assert [d.seq for d in queue.victims(99 * OVERHEAD_BYTES, 6) or []] == [2, 1, 3, 4]  # alone it may be of any size


@pytest.mark.skipif(IS_COMPILED, reason="compiled code knows only its own class")
@pytest.mark.parametrize("size", [50 * OVERHEAD_BYTES, 1000 * OVERHEAD_BYTES], ids=["fits", "does not fit"])
def test_many_victims_are_not_compared_with_each_other(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = 0

    class Compared(Delivery):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return self is other

        def __hash__(self) -> int:
            return id(self)

    monkeypatch.setattr(queue_module, "Delivery", Compared)
    queue = route_queue(queue={"messages": 200, "bytes": 100 * OVERHEAD_BYTES, "on_full": "evict"})
    in_flight = push(queue, message(flow=1))
    in_flight.lane.take(1, NOW_MS, 0.0, [], [])
    for _ in range(99):
        push(queue, message())
    victims = queue.victims(size, 6)
    assert (None if victims is None else len(victims)) == (50 if size < queue.policy.queue.bytes else None)
    assert comparisons < 99


def test_victims_are_proposed_and_not_taken() -> None:
    queue, _ = full(0, 0)
    assert queue.victims(OVERHEAD_BYTES, 0) == queue.victims(OVERHEAD_BYTES, 0)
    assert queue.messages == 2


def test_what_came_back_from_a_batch_or_the_journal_is_evicted_before_what_is_younger() -> None:
    queue, _ = full(2, messages=4)
    sent = [push(queue, message(flow=1)) for _ in range(2)]
    for each in sent:
        take(queue, each)
        each.lane.succeeded()
        queue.pack_away(each)
    lane = sent[0].lane
    back = [Delivery(each.received, each.message, lane, each.seq, each.size, 0.0, NOW_MS) for each in sent]
    queue.put_back_all(lane, back)
    push(queue, message(flow=3))
    assert (queue.victims(1, 1), queue.least(1)) == (back[:1], back[0])


def test_queue_that_begins_to_evict_knows_what_it_held_before() -> None:
    queue = route_queue(queue={"messages": 3})
    for n, level in enumerate((1, 0, 0)):
        push(queue, message(flow=n, level=level, payload=bytes([n])))
    queue.use(queue_policy(queue={"messages": 3, "on_full": "evict"}))
    assert queue.room_for(OVERHEAD_BYTES) is Room.AFTER_EVICTION
    assert payloads(queue.victims(OVERHEAD_BYTES, 1)) == [b"\x01"]
    queue.use(queue_policy(queue={"messages": 3}))
    queue.use(queue_policy(queue={"messages": 3, "on_full": "evict"}))
    assert payloads(queue.victims(OVERHEAD_BYTES, 1)) == [b"\x01"]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=12),
    st.integers(0, 6),
    st.integers(1, 12),
)
def test_victims_are_the_shortest_prefix_by_class_and_age_that_makes_room(
    waiting: list[tuple[int, int]], newcomer: int, most: int
) -> None:
    queue = route_queue(queue={"messages": len(waiting), "bytes": 10**6, "on_full": "evict"})
    held = [push(queue, message(flow=n, level=level, payload=b"x" * size)) for n, (level, size) in enumerate(waiting)]
    queue.use(queue_policy(queue={"messages": min(most, len(waiting)), "bytes": 10**6, "on_full": "evict"}))
    order = sorted((d for d in held), key=lambda d: (d.message.attributes.priority_class, d.seq))
    needed = len(waiting) - min(most, len(waiting)) + 1
    allowed = [d for d in order if d.message.attributes.priority_class <= newcomer]
    assert queue.victims(1, newcomer) == (allowed[:needed] if len(allowed) >= needed else None)


# expiry


def test_expired_are_taken_in_the_order_of_their_deadlines_and_only_once() -> None:
    queue = route_queue()
    ttls = [30, 10, None, 20, 0, 40]
    held = [push(queue, message(flow=n, ttl=ttl)) for n, ttl in enumerate(ttls)]
    assert queue.take_expired(NOW_MS + 10, 0.0) == []
    assert queue.take_expired(NOW_MS + 31, 0.0) == [held[1], held[3], held[0]]
    assert queue.take_expired(NOW_MS + 31, 0.0) == []
    assert queue.take_expired(NOW_MS + 10**9, 0.0) == [held[5]]
    assert [d.lane.queued_messages for d in held] == [0, 0, 1, 0, 1, 0]


def test_what_expires_in_flight_waits_for_its_answer_and_is_looked_at_again() -> None:
    queue = route_queue()
    delivery = push(queue, message(ttl=10))
    take(queue, delivery)
    assert queue.take_expired(NOW_MS + 11, 0.0) == []
    delivery.lane.refused()
    delivery.lane.put_back(delivery)
    assert queue.take_expired(NOW_MS + 12, 0.0) == [delivery]


def test_settled_messages_with_a_long_ttl_do_not_pile_up() -> None:
    queue = route_queue(queue={"messages": 100_000, "on_full": "evict"})
    for round_number in range(20):
        for n in range(1000):
            delivery = push(queue, message(flow=n % 7, level=n % 3, ttl=10**9))
            take(queue, delivery)
            settle(queue, delivery)
        queue.take_expired(NOW_MS + round_number, 0.0)
        assert len(queue.deadlines) <= 2000
        assert sum(len(by_age) for by_age in queue._by_age) <= 3 * 1000
    assert queue.messages == 0


def test_settled_before_the_next_tick_never_reach_the_heap() -> None:
    queue = route_queue()
    for _ in range(1000):
        delivery = push(queue, message(ttl=10**6))
        take(queue, delivery)
        settle(queue, delivery)
    queue.take_expired(NOW_MS, 0.0)
    assert len(queue.deadlines) == 0


# lanes


def test_one_lane_per_flow() -> None:
    queue = route_queue()
    assert queue.lane((topic(), None)) is queue.lane((topic(), None))
    assert queue.lane((topic(), None)) is not queue.lane((topic(1), None))
    assert queue.lane((topic(), topic(1))) is not queue.lane((topic(), None))


def test_idle_lanes_are_retired_when_there_are_many_and_busy_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    queue = route_queue()
    waiting = push(queue, message(flow=0))
    flying = push(queue, message(flow=1))
    take(queue, flying)
    held = queue.lane((topic(2), None))
    held.hold |= Hold.BACKOFF
    idle = queue.lane((topic(3), None))
    for n in range(4, 500):
        queue.lane((topic(n), None))
        assert len(queue.lanes) <= 10
    assert [lane.retired for lane in (waiting.lane, flying.lane, held, idle)] == [False, False, False, True]
    assert queue.lane((topic(3), None)) is not idle


def test_looking_for_idle_lanes_costs_little_when_all_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 8)
    queue = route_queue()
    bounds: set[int] = set()  # at how many lanes the queue looks: each look raises it
    for n in range(1000):
        push(queue, message(flow=n))
        bounds.add(queue._retire_at)
    assert len(queue.lanes) == 1000
    assert len(bounds) <= 10
    assert queue._retire_at > 1000


# what others ask


def test_waiting_and_oldest_pass_over_what_is_settled_or_in_flight() -> None:
    queue = route_queue()
    first, second, third = (push(queue, message(flow=n)) for n in range(3))
    first.entered_s, second.entered_s, third.entered_s = 1.0, 2.0, 3.0
    assert queue.oldest_entered_s() == 1.0
    first.lane.drop(first)
    queue.leave(first)
    take(queue, second)
    assert list(queue.waiting()) == [third]
    assert queue.oldest_entered_s() == 3.0
    take(queue, third)
    assert queue.oldest_entered_s() is None


def test_smaller_flow_window_holds_for_lanes_that_are_open_already() -> None:
    queue = route_queue()
    lane = queue.lane((topic(), None))
    for _ in range(10):
        take(queue, push(queue, message()))
        lane.succeeded()
    queue.use(queue_policy(flow_window=1))
    assert (lane.window, lane.max_window) == (1, 1)


@pytest.mark.parametrize("on_full", ["reject", "evict"])
def test_extra_room_ends_when_the_queue_is_patient_no_more(on_full: str) -> None:
    queue = route_queue(has_journal=True, queue={"messages": 10, "bytes": 100_000})
    while queue.fits(600):
        push(queue, message())
        queue.judge_stalled(is_endpoint_up=False)
    assert queue.stalled.messages > 10
    queue.use(queue_policy(queue={"messages": 10, "bytes": 100_000, "on_full": on_full}))
    assert not queue.fits(600)
    for delivery in list(queue.waiting()):
        delivery.lane.drop(delivery)
        queue.leave(delivery)
    queue.judge_stalled(is_endpoint_up=True)
    room = 0
    while queue.fits(600):
        push(queue, message())
        room += 1
    assert room == 10


# many flows


def test_what_cannot_move_has_no_extra_room_once_there_are_too_many_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    many = route_queue(has_journal=True, queue={"messages": 10, "bytes": 10_000})
    few = route_queue(has_journal=True, queue={"messages": 10, "bytes": 10_000})
    for number in range(50):
        for queue, flow in ((many, number), (few, 0)):
            queue.judge_stalled(is_endpoint_up=False)
            if queue.fits(600):
                push(queue, message(flow))
    assert (len(many.lanes), many.messages) == (16, 16)
    assert (len(few.lanes), few.messages) == (1, 50)


def test_the_extra_room_comes_back_when_the_flows_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    queue = route_queue(has_journal=True, queue={"messages": 10, "bytes": 10_000})
    for number in range(20):
        delivery = push(queue, message(number))
        delivery.lane.drop(delivery)
        queue.leave(delivery)
    for _ in range(9):
        push(queue, message(0))
    queue.judge_stalled(is_endpoint_up=False)
    assert len(queue.lanes) == 1
    assert queue.stalled.messages == 9


def unconfirmed_lanes(queue: RouteQueue, count: int) -> list[Lane]:
    lanes = []
    for number in range(count):
        lanes.append(queue.lane((topic(number), None)))
        lanes[-1].unconfirmed = 1
    return lanes


def test_lanes_that_are_not_idle_are_looked_at_as_rarely_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    queue = route_queue(has_journal=True, queue={"messages": 10, "bytes": 10_000})
    lanes = unconfirmed_lanes(queue, 2000)
    queue.judge_stalled(is_endpoint_up=True)
    lanes[0].unconfirmed = 0
    for _ in range(10):
        queue.judge_stalled(is_endpoint_up=True)
        assert len(queue.lanes) == 2000
    queue.judge_stalled(is_endpoint_up=True)
    assert len(queue.lanes) == 1999


@pytest.mark.parametrize("count", [12, 150])
def test_few_lanes_are_retired_at_the_next_tick(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    queue = route_queue(has_journal=True, queue={"messages": 10, "bytes": 10_000})
    lanes = unconfirmed_lanes(queue, count)
    queue.judge_stalled(is_endpoint_up=True)
    for lane in lanes:
        lane.unconfirmed = 0
    queue.judge_stalled(is_endpoint_up=True)
    assert not queue.lanes


def test_whoever_has_few_flows_keeps_their_lanes_when_those_of_others_are_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MAX_LANES", 10)
    queue = route_queue()
    honest = queue.lane((UUri("honest", 1, 1, 0x8000), None))
    queue._retire_at = 10
    for number in range(10):
        queue.lane((topic(number), None))
    assert not honest.retired
    assert len(queue.lanes) == 2
