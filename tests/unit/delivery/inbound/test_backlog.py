"""The backlog: messages enter full queues by position, once, as they get room, and its bytes are exact."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.lanes.queue import RouteQueue
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import OVERHEAD_BYTES
from streamer.uprotocol.uri import UUri
from tests.unit.delivery.messages import NOW_MS, message, push, queue_policy, route_queue


def full_queue(name: str = "up", messages: int = 1, **keys: object) -> RouteQueue:
    queue = route_queue(name, queue={"messages": messages} | keys)
    for _ in range(messages):
        push(queue, message())
    return queue


def make_room(queue: RouteQueue) -> None:
    """Settle the oldest message of a queue that has one lane."""
    (lane,) = queue.lanes.values()
    sent: list[Delivery] = []
    lane.take(1, NOW_MS, 0.0, sent, [])
    queue.leave(sent[0])
    lane.succeeded()


def arrived(size: int = 0) -> Received:
    return MemoryReceived(message(payload=b"x" * size))


def wait(backlog: Backlog, queue: RouteQueue, *several: Received) -> None:
    for received in several:
        assert backlog.add(received.message.id, received, queue) is None


# positions


def test_nothing_is_taken_while_the_queue_is_full() -> None:
    backlog, queue = Backlog(), full_queue()
    wait(backlog, queue, arrived())
    assert backlog.take(queue) == []
    assert len(backlog) == 1


def test_messages_enter_in_the_order_in_which_they_came_as_far_as_there_is_room() -> None:
    backlog, queue = Backlog(), full_queue(messages=2)
    first, second, third = arrived(), arrived(), arrived()
    wait(backlog, queue, first, second, third)
    make_room(queue)
    assert backlog.take(queue) == [first]
    make_room(queue)
    assert backlog.take(queue) == [second, third]
    assert backlog.take(queue) == []


def test_room_is_measured_in_bytes_too() -> None:
    backlog, queue = Backlog(), full_queue(messages=10, bytes=10 * OVERHEAD_BYTES)
    small, large, other = arrived(), arrived(OVERHEAD_BYTES), arrived()
    wait(backlog, queue, small, large, other)
    make_room(queue)
    make_room(queue)
    assert backlog.take(queue) == [small]  # and not the small one that is behind the large one


def test_an_empty_queue_takes_one_message_of_any_size_and_no_second() -> None:
    backlog, queue = Backlog(), full_queue(bytes=1)
    huge, other = arrived(10**6), arrived()
    wait(backlog, queue, huge, other)
    make_room(queue)
    assert backlog.take(queue) == [huge]


def test_what_waits_for_one_queue_does_not_wait_for_another() -> None:
    backlog, narrow, wide = Backlog(), full_queue("narrow"), full_queue("wide")
    for_narrow, for_wide = arrived(), arrived()
    wait(backlog, narrow, for_narrow)
    wait(backlog, wide, for_wide)
    make_room(wide)
    assert backlog.take(wide) == [for_wide]
    assert backlog.queues() == [narrow]


def test_a_newcomer_is_behind_what_waits_for_the_same_queue_and_only_there() -> None:
    backlog, queue, other = Backlog(), full_queue(), full_queue("other")
    wait(backlog, queue, arrived())
    make_room(queue)
    assert backlog.is_behind(arrived().message.id, queue)
    assert not backlog.is_behind(arrived().message.id, other)


def test_a_queue_that_holds_nobody_back_any_more_takes_the_whole_backlog() -> None:
    backlog, queue = Backlog(), full_queue()
    waiting = [arrived(), arrived(), arrived()]
    wait(backlog, queue, *waiting)
    queue.use(queue_policy(queue={"messages": 1, "on_full": "reject"}))
    assert backlog.take(queue) == waiting


# from one queue to the next


def test_a_message_that_has_to_wait_for_another_queue_keeps_its_position() -> None:
    backlog, first_queue, second_queue = Backlog(), full_queue("first"), full_queue("second", 2)
    for_both, for_second = arrived(), arrived()
    wait(backlog, first_queue, for_both)
    wait(backlog, second_queue, for_second)
    make_room(first_queue)
    assert backlog.take(first_queue) == [for_both]
    assert not backlog.is_behind(for_both.message.id, second_queue)
    wait(backlog, second_queue, for_both)
    make_room(second_queue)
    make_room(second_queue)
    assert backlog.take(second_queue) == [for_both, for_second]


def test_what_was_taken_is_behind_what_has_waited_longer_for_the_next_queue() -> None:
    backlog, first_queue, second_queue = Backlog(), full_queue("first"), full_queue("second")
    older, younger = arrived(), arrived()
    wait(backlog, second_queue, older)
    wait(backlog, first_queue, younger)
    make_room(first_queue)
    assert backlog.take(first_queue) == [younger]
    assert backlog.is_behind(younger.message.id, second_queue)


def test_a_position_is_kept_until_the_next_take_and_no_longer() -> None:
    backlog, queue, other = Backlog(), full_queue(messages=3), full_queue("other")
    first, second = arrived(), arrived()
    wait(backlog, queue, first)
    make_room(queue)
    assert backlog.take(queue) == [first]
    wait(backlog, queue, second)
    assert backlog.take(other) == []
    wait(backlog, queue, first)
    make_room(queue)
    assert backlog.take(queue) == [second, first]


# copies


def test_a_copy_takes_the_place_of_the_message_that_waits() -> None:
    backlog, queue = Backlog(), full_queue(messages=2)
    first, second = arrived(5), arrived()
    wait(backlog, queue, first, second)
    before = backlog.bytes
    copy = MemoryReceived(first.message)
    assert backlog.add(first.message.id, copy, queue) is first
    assert (len(backlog), backlog.bytes) == (2, before)
    make_room(queue)
    make_room(queue)
    assert backlog.take(queue) == [copy, second]


def test_a_copy_counts_with_its_own_size() -> None:
    backlog, queue = Backlog(), full_queue()
    first = arrived()
    wait(backlog, queue, first)
    before = backlog.bytes
    size = len(first.message.payload or b"")
    backlog.add(first.message.id, MemoryReceived(replace(first.message, payload=bytes(10_000))), queue)
    assert backlog.bytes == before + 10_000 - size
    make_room(queue)
    backlog.take(queue)
    assert backlog.bytes == 0


def test_a_copy_is_behind_its_message_also_where_nothing_waits() -> None:
    backlog, queue, other = Backlog(), full_queue(), route_queue("other")
    first = arrived()
    wait(backlog, queue, first)
    assert backlog.get(first.message.id) is first
    assert backlog.is_behind(first.message.id, other)


# leaving without having entered


def test_what_is_removed_comes_in_order_each_with_its_queue_and_the_rest_keeps_its_order() -> None:
    backlog, queue, other = Backlog(), full_queue(messages=2), full_queue("other")
    waiting = [arrived(n) for n in range(5)]
    for received, target in zip(waiting, (queue, other, queue, queue, queue), strict=True):
        wait(backlog, target, received)
    gone = {id(waiting[0]), id(waiting[1]), id(waiting[3])}
    removed = backlog.remove(lambda received: id(received) in gone)
    assert removed == [(waiting[0], queue), (waiting[1], other), (waiting[3], queue)]
    assert backlog.bytes == 2 * OVERHEAD_BYTES + 2 + 4
    assert backlog.queues() == [queue]
    make_room(queue)
    make_room(queue)
    assert backlog.take(queue) == [waiting[2], waiting[4]]


def test_what_is_removed_comes_in_order_also_if_it_has_moved_to_another_queue_since() -> None:
    backlog, queue, other = Backlog(), full_queue(messages=2), full_queue("other")
    first, second = arrived(), arrived()
    wait(backlog, queue, first, second)
    make_room(queue)
    assert backlog.take(queue) == [first]
    wait(backlog, other, first)
    assert backlog.remove(lambda received: True) == [(first, other), (second, queue)]


def test_what_was_removed_waits_for_no_queue_but_the_one_it_is_given_then() -> None:
    backlog, queue, other = Backlog(), full_queue(), full_queue("other")
    received = arrived()
    wait(backlog, queue, received)
    make_room(queue)
    assert backlog.take(queue) == [received]
    wait(backlog, queue, received)
    backlog.remove(lambda received: True)
    wait(backlog, other, received)
    assert backlog.queues() == [other]
    assert backlog.take(queue) == []


def test_what_was_removed_and_comes_again_has_lost_its_turn() -> None:
    backlog, queue = Backlog(), full_queue(messages=2)
    first, second = arrived(), arrived()
    wait(backlog, queue, first, second)
    backlog.remove(lambda received: received is first)
    wait(backlog, queue, first)
    make_room(queue)
    make_room(queue)
    assert backlog.take(queue) == [second, first]


@pytest.mark.parametrize("leaves", ["taken", "removed"])
def test_bytes_are_given_back(leaves: str) -> None:
    backlog, queue = Backlog(), full_queue()
    wait(backlog, queue, arrived(7))
    assert backlog.bytes == OVERHEAD_BYTES + 7
    if leaves == "taken":
        make_room(queue)
        assert len(backlog.take(queue)) == 1
    else:
        assert len(backlog.remove(lambda received: True)) == 1
    assert (len(backlog), backlog.bytes, backlog.queues()) == (0, 0, [])


def test_what_comes_from_some_sources_is_taken_in_order_and_what_is_taken_is_listed_no_more() -> None:
    backlog, queue, other = Backlog(), full_queue(), full_queue("other")
    first, second, third = arrived(), arrived(), arrived()
    source = first.message.attributes.source
    wait(backlog, queue, first)
    wait(backlog, other, second)
    wait(backlog, queue, third)
    assert backlog.take_if([UUri("elsewhere", 1, 1, 0x8000)], lambda attributes, queue: True) == []
    assert backlog.take_if([source], lambda attributes, each: each is queue) == [first, third]
    assert backlog.take_if([source], lambda attributes, queue: True) == [second]
    assert backlog.take_if([source], lambda attributes, queue: True) == []
    assert len(backlog) == backlog.bytes == 0


# entries of what has gone


def listed(backlog: Backlog) -> int:
    return sum(map(len, backlog._by_queue.values()))


def test_what_goes_from_behind_one_that_waits_long_leaves_nothing_and_the_order_stays() -> None:
    backlog, queue = Backlog(), full_queue()
    first = arrived()
    wait(backlog, queue, first)
    for _ in range(50):
        gone = [arrived() for _ in range(100)]
        wait(backlog, queue, *gone)
        backlog.remove(lambda received: received is not first)  # they expire
    assert listed(backlog) <= 200
    later = [arrived() for _ in range(300)]
    wait(backlog, queue, *later)
    make_room(queue)
    for received in (first, *later):
        assert backlog.take(queue) == [received]


def test_what_waits_for_two_queues_one_after_the_other_leaves_nothing_in_either() -> None:
    backlog, one, other = Backlog(), full_queue("one"), full_queue("other")
    received = [arrived() for _ in range(10)]
    wait(backlog, one, *received)
    for number in range(200):
        taken = backlog.take_all()
        assert taken == received
        wait(backlog, (one, other)[number % 2], *taken)
    assert listed(backlog) <= 300
    assert backlog.take_all() == received
