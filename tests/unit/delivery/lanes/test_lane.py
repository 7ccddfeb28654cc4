"""Lanes: order is never broken, classes are counted, the window grows and falls (see `streamer.delivery.lanes.lane`)."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamer.config.models import QueuePolicy
from streamer.delivery.lanes.lane import CLASSES, EXPIRED_MESSAGES_PER_TICK, Delivery, DeliveryState, Hold, Lane
from streamer.transports.memory import MemoryReceived
from tests.examples import examples
from tests.unit.delivery.messages import NOW_MS, message, route_queue, topic


@dataclass
class LaneHarness:
    """A lane, and deliveries numbered in the order in which they came."""

    max_window: int = 10
    lane: Lane = field(init=False)
    made: int = 0

    def __post_init__(self) -> None:
        queue = route_queue(flow_window=self.max_window)
        self.lane = Lane((topic(), None), queue, queue.quotas.group("veh1"))

    def push(self, level: int = 1, ttl: int | None = None) -> Delivery:
        self.made += 1
        sent = message(level=level, ttl=ttl)
        delivery = Delivery(MemoryReceived(sent), sent, self.lane, self.made, 1, 0.0, NOW_MS)
        self.lane.push(delivery)
        return delivery

    def take(self, count: int, now_ms: int = NOW_MS) -> list[Delivery]:
        out: list[Delivery] = []
        expired: list[Delivery] = []
        assert self.lane.take(count, now_ms, 0.0, out, expired) == len(out)
        assert expired == []
        return out


class AnyOrder(RuleBasedStateMachine):
    """A lane against the plainest model: sets of numbers. Whatever happens, what comes out is the smallest waiting."""

    @initialize(max_window=st.integers(1, 6))
    def open(self, max_window: int) -> None:
        self.harness = LaneHarness(max_window)
        self.lane = self.harness.lane
        self.waiting: dict[int, Delivery] = {}
        self.flying: dict[int, Delivery] = {}

    @rule(level=st.integers(0, 6), ttl=st.sampled_from([None, None, 0, 5]))
    def push(self, level: int, ttl: int | None) -> None:
        delivery = self.harness.push(level, ttl)
        self.waiting[delivery.seq] = delivery

    @rule(count=st.integers(0, 5), late=st.booleans())
    def take(self, count: int, late: bool) -> None:
        now_ms = NOW_MS + (6 if late else 0)
        out: list[Delivery] = []
        expired: list[Delivery] = []
        moved = self.lane.take(count, now_ms, 0.0, out, expired)
        assert moved == len(out)
        seen = sorted(out + expired, key=lambda delivery: delivery.seq)
        assert [d.seq for d in seen] == sorted(self.waiting)[: len(seen)]
        assert [d.seq for d in out] == sorted(d.seq for d in out)
        for delivery in expired:
            assert late
            assert delivery.message.attributes.ttl == 5
        for delivery in out:
            assert not (late and delivery.message.attributes.ttl == 5)
            assert delivery.state is DeliveryState.IN_FLIGHT
            self.flying[delivery.seq] = delivery
        assert moved == count or len(seen) == len(self.waiting)
        for delivery in seen:
            del self.waiting[delivery.seq]

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), how=st.sampled_from(["succeeded", "refused", "returned"]))
    def answer(self, data: st.DataObject, how: str) -> None:
        seq = data.draw(st.sampled_from(sorted(self.flying)))
        delivery = self.flying.pop(seq)
        getattr(self.lane, how)()
        if how == "succeeded":
            delivery.state = DeliveryState.SETTLED
        else:
            self.lane.put_back(delivery)
            self.waiting[seq] = delivery

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.lane.drop(self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting)))))

    @invariant()
    def counts_agree(self) -> None:
        assert self.lane.queued_messages == len(self.waiting)
        assert self.lane.in_flight == len(self.flying)
        levels = [delivery.message.attributes.priority_class for delivery in self.waiting.values()]
        assert self.lane.by_class == [levels.count(level) for level in range(CLASSES)]
        assert self.lane.highest_class == max(levels, default=-1)
        assert 1 <= self.lane.window <= self.lane.max_window
        assert self.lane.is_ready == (bool(self.waiting) and len(self.flying) < self.lane.window)
        assert self.lane.is_idle == (not self.waiting and not self.flying)
        assert [d.seq for d in self.lane.items if d.state is DeliveryState.QUEUED] == sorted(self.waiting)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_window_opens_by_one_with_each_confirmation_up_to_its_bound() -> None:
    harness = LaneHarness(max_window=4)
    windows = []
    for _ in range(6):
        harness.push()
        harness.take(1)
        harness.lane.succeeded()
        windows.append(harness.lane.window)
    assert windows == [2, 3, 4, 4, 4, 4]


def open_wide(harness: LaneHarness) -> None:
    for _ in range(harness.max_window):
        harness.push()
        harness.take(1)
        harness.lane.succeeded()


def test_refusal_lets_the_flow_go_on_one_at_a_time_whatever_was_sent_before_it() -> None:
    harness = LaneHarness(max_window=10)
    open_wide(harness)
    for _ in range(12):
        harness.push()
    head, *others = harness.take(10)
    harness.lane.refused()
    harness.lane.put_back(head)
    for _ in others:  # confirmations of what was sent before the refusal say nothing about what comes after it
        harness.lane.succeeded()
        assert harness.lane.window == 1
    assert harness.lane.in_flight == 0
    assert harness.take(1) == [head]
    harness.lane.succeeded()
    assert harness.lane.window == 2


def test_lane_sends_nothing_more_until_everything_from_before_a_refusal_is_answered() -> None:
    harness = LaneHarness(max_window=3)
    open_wide(harness)
    for _ in range(4):
        harness.push()
    first, _, third = harness.take(3)
    last = harness.lane.items[-1]
    harness.lane.refused()
    harness.lane.put_back(first)
    assert not harness.lane.is_ready
    harness.lane.succeeded()
    assert not harness.lane.is_ready
    harness.lane.returned()
    harness.lane.put_back(third)
    assert harness.lane.is_ready
    assert harness.lane.window == 1
    assert harness.take(3) == [first, third, last]


def test_lost_link_neither_opens_nor_closes_the_window() -> None:
    harness = LaneHarness(max_window=5)
    open_wide(harness)
    for _ in range(5):
        harness.push()
    for delivery in reversed(harness.take(5)):
        harness.lane.returned()
        harness.lane.put_back(delivery)
    assert (harness.lane.window, harness.lane.in_flight, harness.lane.queued_messages) == (5, 0, 5)


def test_smaller_bound_holds_at_once_and_a_larger_one_is_grown_into() -> None:
    harness = LaneHarness(max_window=8)
    open_wide(harness)
    harness.lane.use(QueuePolicy(flow_window=3))
    assert (harness.lane.window, harness.lane.max_window) == (3, 3)
    harness.lane.use(QueuePolicy(flow_window=5))
    assert (harness.lane.window, harness.lane.max_window) == (3, 5)


@pytest.mark.parametrize("why", [Hold.BACKOFF, Hold.ABSENT, Hold.PAUSED])
def test_parked_lane_is_neither_ready_nor_opening_nor_idle(why: Hold) -> None:
    harness = LaneHarness()
    harness.push()
    assert harness.lane.is_ready
    harness.lane.hold |= why
    assert not harness.lane.is_ready
    assert not harness.lane.is_opening
    harness.take(1)
    harness.lane.succeeded()
    assert harness.lane.is_idle is (why is not Hold.BACKOFF)  # of a new lane the other reasons are found out again
    harness.lane.hold &= ~why
    assert harness.lane.is_idle


def test_lane_is_opening_while_only_its_own_window_holds_it_back() -> None:
    harness = LaneHarness(max_window=2)
    harness.push()
    harness.push()
    assert not harness.lane.is_opening
    harness.take(1)
    assert harness.lane.is_opening
    harness.lane.succeeded()
    assert not harness.lane.is_opening
    harness.push()
    harness.take(2)
    harness.push()
    assert not harness.lane.is_opening  # its window is as large as it gets


def test_ttl_has_not_passed_in_its_last_millisecond() -> None:
    harness = LaneHarness()
    harness.push(ttl=5)
    assert len(harness.take(1, NOW_MS + 5)) == 1


@given(st.integers(100, 1000))
def test_settled_entries_do_not_pile_up(count: int) -> None:
    harness = LaneHarness()
    head = harness.push()
    for _ in range(count):
        harness.lane.drop(harness.push())
        assert len(harness.lane.items) <= 2 * harness.lane.queued_messages + 65
    assert harness.take(5) == [head]


def test_of_many_that_have_expired_some_are_taken_out_at_a_time() -> None:
    harness = LaneHarness()
    dying = [harness.push(ttl=1) for _ in range(EXPIRED_MESSAGES_PER_TICK + 1)]
    living = harness.push()
    out: list[Delivery] = []
    expired: list[Delivery] = []
    assert harness.lane.take(2, NOW_MS + 2, 0.0, out, expired) == 0
    assert (out, expired) == ([], dying[:EXPIRED_MESSAGES_PER_TICK])
    expired.clear()
    assert harness.lane.take(2, NOW_MS + 2, 0.0, out, expired) == 1
    assert (out, expired) == ([living], dying[EXPIRED_MESSAGES_PER_TICK:])


def test_expired_do_not_use_up_the_count() -> None:
    harness = LaneHarness()
    dying = [harness.push(ttl=1) for _ in range(3)]
    living = [harness.push() for _ in range(3)]
    out: list[Delivery] = []
    expired: list[Delivery] = []
    assert harness.lane.take(2, NOW_MS + 2, 0.0, out, expired) == 2
    assert (out, expired) == (living[:2], dying)
