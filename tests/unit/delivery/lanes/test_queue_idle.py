"""Flows that have been silent: idle lanes are removed, but for a few."""

from streamer.delivery.lanes.lane import Delivery, Hold, Lane
from streamer.delivery.lanes.queue import FEW_LANES, IDLE_S, RouteQueue
from streamer.transports.memory import MemoryReceived
from tests.unit.delivery.messages import NOW_MS, FakeOwner, message, route_queue

BEGIN_S = 1000.0


def push(queue: RouteQueue, flow: int, now_s: float = BEGIN_S) -> Delivery:
    sent = message(flow)
    lane = queue.lane((sent.attributes.source, sent.attributes.sink))
    return queue.push(MemoryReceived(sent), sent, lane, now_s, NOW_MS)


def deliver(delivery: Delivery) -> None:
    lane = delivery.lane
    lane.take(1, NOW_MS, 0.0, [], [])
    lane.queue.leave(delivery)
    lane.succeeded()


def idle_flows(queue: RouteQueue, count: int, first: int = 0) -> list[Lane]:
    deliveries = [push(queue, flow) for flow in range(first, first + count)]
    for delivery in deliveries:
        deliver(delivery)
    return [delivery.lane for delivery in deliveries]


def ticks(queue: RouteQueue, from_s: float, seconds: int) -> list[int]:
    """How many lanes there are after each second."""
    found = []
    for second in range(seconds):
        queue.tick(from_s + second, True)
        found.append(len(queue.lanes))
    return found


def test_few_flows_stay_however_long_they_are_silent() -> None:
    queue = route_queue()
    idle_flows(queue, FEW_LANES)
    assert ticks(queue, BEGIN_S + 10 * IDLE_S, 3) == [FEW_LANES] * 3


def test_of_many_flows_the_silent_ones_go_little_by_little() -> None:
    owner = FakeOwner()
    queue = route_queue(owner=owner)
    lanes = idle_flows(queue, FEW_LANES + 100)
    assert ticks(queue, BEGIN_S + IDLE_S - 3, 3) == [FEW_LANES + 100] * 3
    assert ticks(queue, BEGIN_S + IDLE_S, 3) == [FEW_LANES + 36, FEW_LANES, FEW_LANES]
    assert [lane.retired for lane in lanes] == [True] * 100 + [False] * FEW_LANES
    assert owner.lanes == lanes[100:]
    assert sum(group.lanes for group in queue.quotas.groups.values()) == FEW_LANES


def test_it_looks_once_a_second_whatever_the_clock_does() -> None:
    queue = route_queue()
    idle_flows(queue, FEW_LANES + 100)
    for part in range(10):
        queue.tick(BEGIN_S + IDLE_S + part / 10, True)
    assert len(queue.lanes) == FEW_LANES + 36


def test_flows_with_something_to_do_stay() -> None:
    queue = route_queue()
    again, flying, waiting, unconfirmed, refused = idle_flows(queue, 5)
    idle = idle_flows(queue, FEW_LANES + 1, first=5)
    deliver(push(queue, 0, BEGIN_S + 1))
    push(queue, 1)
    flying.take(1, NOW_MS, 0.0, [], [])
    push(queue, 2)
    unconfirmed.unconfirmed = 1
    refused.set_hold(Hold.BACKOFF)
    ticks(queue, BEGIN_S + IDLE_S, 1)
    assert [lane.retired for lane in (again, flying, waiting, unconfirmed, refused)] == [False] * 5
    assert [lane.retired for lane in idle] == [True] * 6 + [False] * (FEW_LANES - 5)


def test_a_flow_that_speaks_again_has_a_lane_again() -> None:
    queue = route_queue()
    [first, *_] = idle_flows(queue, FEW_LANES + 1)
    ticks(queue, BEGIN_S + IDLE_S, 1)
    lane = push(queue, 0, BEGIN_S + IDLE_S + 1).lane
    assert (first.retired, lane.retired, lane is first, lane.key == first.key) == (True, False, False, True)


def test_nothing_goes_while_an_earlier_run_is_recovered() -> None:
    queue = route_queue()
    idle_flows(queue, FEW_LANES + 1)
    queue.may_retire = False
    assert ticks(queue, BEGIN_S + IDLE_S, 2) == [FEW_LANES + 1] * 2
