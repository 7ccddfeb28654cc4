"""What a queue counts as held and as paused is what its held and paused lanes have, whatever happens in any order."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamer.delivery.lanes.lane import Delivery, DeliveryState, Hold, Lane
from streamer.delivery.lanes.queue import RouteQueue, Tally
from tests.unit.delivery.messages import NOW_MS, message, push, queue_policy, route_queue, topic

FLOWS = range(3)
REASONS = (Hold.BACKOFF, Hold.ABSENT, Hold.PAUSED)
flows = st.sampled_from(FLOWS)


def recounted(queue: RouteQueue, hold: Hold) -> Tally:
    waiting = [
        each
        for lane in queue.lanes.values()
        if lane.hold & hold
        for each in lane.items
        if each.state is DeliveryState.QUEUED
    ]
    return Tally(len(waiting), sum(each.size for each in waiting))


class Traffic(RuleBasedStateMachine):
    """One queue with three flows. ``in_flight`` and ``packed`` have the deliveries that may return to each lane."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = route_queue(queue={"messages": 1000, "on_full": "evict"})
        self.in_flight: dict[int, deque[Delivery]] = {flow: deque() for flow in FLOWS}
        self.packed: dict[int, deque[Delivery]] = {flow: deque() for flow in FLOWS}
        for flow in FLOWS:
            self.lane(flow)

    def lane(self, flow: int) -> Lane:
        return self.queue.lane((topic(flow), None))

    @rule(flow=flows, level=st.integers(0, 6), size=st.integers(0, 9), ttl=st.sampled_from((None, 5)))
    def enters(self, flow: int, level: int, size: int, ttl: int | None) -> None:
        push(self.queue, message(flow, level, ttl, b"x" * size))

    @rule(flow=flows, count=st.integers(1, 3), is_late=st.booleans())
    def leaves(self, flow: int, count: int, is_late: bool) -> None:
        out: list[Delivery] = []
        expired: list[Delivery] = []
        self.lane(flow).take(count, NOW_MS + 6 * is_late, 0.0, out, expired)
        self.in_flight[flow].extend(out)
        for delivery in expired:
            self.queue.leave(delivery)

    @rule(flow=flows)
    def is_confirmed(self, flow: int) -> None:
        if self.in_flight[flow]:
            self.lane(flow).succeeded()
            self.queue.leave(self.in_flight[flow].popleft())

    @rule(flow=flows)
    def comes_back(self, flow: int) -> None:
        if self.in_flight[flow]:
            delivery = self.in_flight[flow].pop()
            self.lane(flow).returned()
            self.lane(flow).put_back(delivery)
            self.queue.requeued(delivery)

    @rule(flow=flows)
    def is_packed_away(self, flow: int) -> None:
        if self.in_flight[flow]:
            delivery = self.in_flight[flow].popleft()
            self.lane(flow).succeeded()
            self.queue.pack_away(delivery)
            self.packed[flow].append(delivery)

    @rule(flow=flows)
    def comes_back_from_its_batch(self, flow: int) -> None:
        if self.packed[flow]:
            deliveries = sorted(self.packed[flow], key=lambda delivery: delivery.seq)
            self.packed[flow].clear()
            self.queue.unconfirmed -= len(deliveries)
            self.lane(flow).unconfirmed -= len(deliveries)
            self.queue.put_back_all(self.lane(flow), deliveries)

    @rule(flow=flows, data=st.data())
    def is_dropped(self, flow: int, data: st.DataObject) -> None:
        if waiting := self.lane(flow).waiting():
            delivery = data.draw(st.sampled_from(waiting))
            self.lane(flow).drop(delivery)
            self.queue.leave(delivery)

    @rule()
    def time_passes(self) -> None:
        for delivery in self.queue.take_expired(NOW_MS + 6, 0.0):
            self.queue.leave(delivery)

    @rule(level=st.integers(0, 6), room=st.integers(1, 5))
    def makes_room(self, level: int, room: int) -> None:
        self.queue.use(queue_policy(queue={"messages": room, "on_full": "evict"}))
        for victim in self.queue.victims(1, level) or ():
            victim.lane.drop(victim)
            self.queue.leave(victim)

    @rule(flow=flows, reason=st.sampled_from(REASONS))
    def is_held(self, flow: int, reason: Hold) -> None:
        self.lane(flow).set_hold(self.lane(flow).hold | reason)

    @rule(flow=flows, reason=st.sampled_from(REASONS))
    def goes_on(self, flow: int, reason: Hold) -> None:
        self.lane(flow).set_hold(self.lane(flow).hold & ~reason)

    @invariant()
    def the_tallies_are_what_the_lanes_hold(self) -> None:
        assert self.queue.held == recounted(self.queue, Hold.BACKOFF | Hold.ABSENT | Hold.PAUSED)
        assert self.queue.paused == recounted(self.queue, Hold.PAUSED)

    @invariant()
    def the_books_balance(self) -> None:
        waiting, flying = list(self.queue.waiting()), [each for flow in FLOWS for each in self.in_flight[flow]]
        assert self.queue.messages == len(waiting) + len(flying)
        assert self.queue.bytes == sum(each.size for each in (*waiting, *flying))
        assert self.queue.unconfirmed == sum(map(len, self.packed.values()))

    @invariant()
    def lanes_are_in_order(self) -> None:
        for flow in FLOWS:
            numbers = [delivery.seq for delivery in self.lane(flow).waiting()]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        for delivery in list(self.queue.waiting()):
            delivery.lane.drop(delivery)
        assert self.queue.held == self.queue.paused == Tally()


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(stateful_step_count=40, deadline=None)
