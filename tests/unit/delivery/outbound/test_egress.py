"""The way out: which lane is served next, the window, back-offs, expiry and quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.lanes.lane import Hold
from streamer.transports.base import LinkState
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import NOW_MS, message, route_queue
from tests.unit.delivery.outbound.egress_harness import NOT_NOW, PATIENT, EgressHarness, flows, open_windows

# priority between lanes


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_lanes_go_by_class_and_equal_ones_by_age(levels: list[int]) -> None:
    harness = EgressHarness()
    harness.load(*(message(flow, level) for flow, level in enumerate(levels)))
    harness.pump()
    assert flows(harness.transport.submitted) == sorted(range(len(levels)), key=lambda flow: (-levels[flow], flow))


def test_lane_is_as_urgent_as_its_most_urgent_message_and_no_longer_than_it_waits() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=1), flow_window=1)
    harness.load(message(0, 0, payload=b"a"), message(0, 6, payload=b"b"), message(0, 0, payload=b"c"), message(1, 3))
    harness.pump()
    for _ in range(3):
        harness.transport.answer()
    assert flows(harness.transport.submitted) == [0, 0, 1, 0]


def test_urgent_message_that_arrives_later_goes_next() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=1))
    harness.load(*(message(0, 0) for _ in range(5)), *(message(1, 0) for _ in range(5)))
    harness.pump()
    harness.load(message(2, 6))
    harness.transport.answer()
    assert flows(harness.transport.submitted) == [0, 2]


def test_lane_whose_window_is_opening_holds_the_lower_classes_back() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), lower_share=0)
    harness.load(*(message(1, 0) for _ in range(50)), *(message(0, 6) for _ in range(50)))
    harness.pump()
    while harness.transport.unanswered:
        harness.transport.answer()
    assert flows(harness.transport.submitted) == [0] * 50 + [1] * 50


def test_while_a_window_is_opening_the_lower_classes_have_their_share() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), lower_share=0.25)
    harness.load(*(message(1, 0) for _ in range(50)), *(message(0, 6) for _ in range(120)))
    harness.pump()
    while harness.transport.unanswered:
        harness.transport.answer()
    assert flows(harness.transport.submitted)[:160].count(1) == 40


@pytest.mark.parametrize("levels", [(6, 0), (1, 0), (6, 5)])
def test_the_lower_class_has_its_share_and_no_more_while_the_higher_one_has_something(levels: tuple[int, int]) -> None:
    harness = EgressHarness(lower_share=0.25)
    open_windows(harness, [0, 1], 1000)
    harness.load(*(message(flow, level) for flow, level in enumerate(levels) for _ in range(960)))
    harness.pump()
    sent = flows(harness.transport.submitted)
    assert [sent[:until].count(1) for until in (64, 1280)] == [0, 320]
    assert sent[1280:] == [1] * 640


def test_lane_that_begins_to_wait_for_its_window_later_holds_the_lower_classes_back_too() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False))
    harness.load(message(0, 6))
    harness.pump()
    harness.load(*(message(0, 6) for _ in range(3)), *(message(1, 0) for _ in range(3)))
    harness.pump()
    assert flows(harness.transport.submitted) == [0]
    harness.transport.answer()
    assert flows(harness.transport.submitted) == [0, 0, 0]


def test_lane_that_stands_still_holds_nobody_back() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), retry=PATIENT)
    harness.load(*(message(0, 6) for _ in range(5)), message(1, 0))
    harness.pump()
    harness.transport.answer(error=NOT_NOW)
    assert flows(harness.transport.submitted) == [0, 1]


# fairness


def test_equal_lanes_take_turns_of_a_quantum() -> None:
    harness = EgressHarness()
    open_windows(harness, [0, 1, 2])
    harness.load(*(message(flow) for flow in (0, 1, 2) for _ in range(200)))
    harness.pump()
    turns = flows(harness.transport.submitted)
    assert turns[: 3 * 64] == [0] * 64 + [1] * 64 + [2] * 64
    assert turns.count(0) == turns.count(1) == turns.count(2) == 200


def test_lane_that_was_urgent_now_and_then_is_listed_once_and_gets_no_more_turns_than_its_equals() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=2))
    open_windows(harness, [0, 1], 300)
    harness.load(message(0), message(0))
    harness.pump()
    for _ in range(100):
        harness.load(message(0, 1), message(0, 6))
        harness.transport.answer()
        assert len(harness.egress._ready) <= 2
    harness.transport.confirms_at_once = True
    harness.transport.options = harness.transport.options.model_copy(update={"window": 1000})
    harness.transport.answer()
    harness.transport.batches.clear()
    harness.transport.state = LinkState.DOWN
    harness.load(*(message(flow, 1) for _ in range(256) for flow in (0, 1)))
    harness.transport.state = LinkState.UP
    harness.pump()
    assert flows(harness.transport.submitted) == ([0] * 64 + [1] * 64) * 4


# the window


@pytest.mark.parametrize(("window", "capacity"), [(5, 1000), (1000, 5)])
def test_smaller_of_route_window_and_transport_capacity_holds(window: int, capacity: int) -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=capacity), window=window)
    harness.load(*(message(flow) for flow in range(20)))
    harness.pump()
    for _ in range(3):
        assert (harness.egress.in_flight, len(harness.transport.unanswered)) == (5, 5)
        harness.transport.answer(0, 1, 2)
    assert harness.outcomes() == {"delivered": 9}


def test_smallest_window_of_all_routes_holds_until_that_route_is_gone() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), window=10)
    narrow = route_queue("narrow", window=2)
    harness.egress.add_queue(narrow)
    harness.load(*(message(flow) for flow in range(20)))
    harness.pump()
    assert harness.egress.in_flight == 2
    harness.egress.remove_queue(narrow)
    harness.pump()
    assert harness.egress.in_flight == 10


def test_nothing_is_sent_while_the_link_is_not_up() -> None:
    harness = EgressHarness()
    harness.load(message())
    for state in (LinkState.DOWN, LinkState.ALONE):
        harness.transport.state = state
        harness.pump()
        assert harness.transport.submitted == []
    harness.transport.state = LinkState.UP
    harness.pump()
    assert len(harness.transport.submitted) == 1


# time


def test_tick_settles_what_expired_behind_a_parked_lane() -> None:
    harness = EgressHarness()
    (delivery,) = harness.load(message(ttl=100))
    harness.egress.hold(delivery.lane, Hold.PAUSED)
    harness.pump()
    harness.advance(100)
    assert harness.outcomes() == {}
    harness.advance(1)
    assert harness.outcomes() == {"expired": 1}
    assert harness.transport.submitted == []


def test_expired_are_passed_over_without_using_the_window() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=2))
    open_windows(harness, [0])
    harness.load(*(message(0, ttl=10) for _ in range(100)), message(0), message(0), message(0))
    harness.clock.advance(11)
    harness.pump()
    assert harness.egress.in_flight == 2
    assert harness.outcomes() == {"delivered": 100, "expired": 100}


def test_lane_goes_on_only_when_the_last_reason_to_stand_still_is_gone() -> None:
    harness = EgressHarness()
    (delivery,) = harness.load(message())
    harness.egress.hold(delivery.lane, Hold.ABSENT)
    harness.egress.hold(delivery.lane, Hold.PAUSED)
    harness.pump()
    harness.egress.release_hold(delivery.lane, Hold.ABSENT)
    harness.pump()
    assert harness.transport.submitted == []
    harness.egress.release_hold(delivery.lane, Hold.PAUSED)
    harness.pump()
    assert harness.transport.submitted == [delivery.message]


def test_queue_without_routes_has_no_window() -> None:
    harness = EgressHarness()
    harness.egress.remove_queue(harness.queue)
    assert harness.egress.window == 0
    assert harness.clock.ms == NOW_MS
