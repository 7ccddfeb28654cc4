"""The way out: which lane goes next, the window, and what time does to what waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.lane import Hold
from streamer.transports.base import LinkState
from tests.unit.delivery.actors import NOW_MS, Harbour, message, route_queue
from tests.unit.delivery.port import NOT_NOW, PATIENT, Port, flows, open_windows

# priority between lanes


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_lanes_go_by_class_and_equal_ones_by_age(levels: list[int]) -> None:
    port = Port()
    port.load(*(message(flow, level) for flow, level in enumerate(levels)))
    port.pump()
    assert flows(port.harbour.left) == sorted(range(len(levels)), key=lambda flow: (-levels[flow], flow))


def test_lane_is_as_urgent_as_its_most_urgent_message_and_no_longer_than_it_waits() -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=1), flow_window=1)
    port.load(message(0, 0, payload=b"a"), message(0, 6, payload=b"b"), message(0, 0, payload=b"c"), message(1, 3))
    port.pump()
    for _ in range(3):
        port.harbour.answer()
    assert flows(port.harbour.left) == [0, 0, 1, 0]


def test_urgent_message_that_arrives_later_goes_next() -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=1))
    port.load(*(message(0, 0) for _ in range(5)), *(message(1, 0) for _ in range(5)))
    port.pump()
    port.load(message(2, 6))
    port.harbour.answer()
    assert flows(port.harbour.left) == [0, 2]


def test_lane_whose_window_is_opening_holds_the_lower_classes_back() -> None:
    port = Port(Harbour(confirms_at_once=False))
    port.load(*(message(1, 0) for _ in range(50)), *(message(0, 6) for _ in range(50)))
    port.pump()
    while port.harbour.open:
        port.harbour.answer()
    assert flows(port.harbour.left) == [0] * 50 + [1] * 50


def test_lane_that_begins_to_wait_for_its_window_later_holds_the_lower_classes_back_too() -> None:
    port = Port(Harbour(confirms_at_once=False))
    port.load(message(0, 6))
    port.pump()
    port.load(*(message(0, 6) for _ in range(3)), *(message(1, 0) for _ in range(3)))
    port.pump()
    assert flows(port.harbour.left) == [0]
    port.harbour.answer()
    assert flows(port.harbour.left) == [0, 0, 0]


def test_lane_that_stands_still_holds_nobody_back() -> None:
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    port.load(*(message(0, 6) for _ in range(5)), message(1, 0))
    port.pump()
    port.harbour.answer(error=NOT_NOW)
    assert flows(port.harbour.left) == [0, 1]


# fairness


def test_equal_lanes_take_turns_of_a_quantum() -> None:
    port = Port()
    open_windows(port, [0, 1, 2])
    port.load(*(message(flow) for flow in (0, 1, 2) for _ in range(200)))
    port.pump()
    turns = flows(port.harbour.left)
    assert turns[: 3 * 64] == [0] * 64 + [1] * 64 + [2] * 64
    assert turns.count(0) == turns.count(1) == turns.count(2) == 200


def test_lane_that_was_urgent_now_and_then_is_listed_once_and_gets_no_more_turns_than_its_equals() -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=2))
    open_windows(port, [0, 1], 300)
    port.load(message(0), message(0))
    port.pump()
    for _ in range(100):
        port.load(message(0, 1), message(0, 6))
        port.harbour.answer()
        assert sum(map(len, port.egress._ready)) <= 2
    port.harbour.confirms_at_once = True
    port.harbour.options = port.harbour.options.model_copy(update={"window": 1000})
    port.harbour.answer()
    port.harbour.submitted.clear()
    port.harbour.state = LinkState.DOWN
    port.load(*(message(flow, 1) for _ in range(256) for flow in (0, 1)))
    port.harbour.state = LinkState.UP
    port.pump()
    assert flows(port.harbour.left) == ([0] * 64 + [1] * 64) * 4


# the window


@pytest.mark.parametrize(("window", "capacity"), [(5, 1000), (1000, 5)])
def test_smaller_of_route_window_and_transport_capacity_holds(window: int, capacity: int) -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=capacity), window=window)
    port.load(*(message(flow) for flow in range(20)))
    port.pump()
    for _ in range(3):
        assert (port.egress.in_flight, len(port.harbour.open)) == (5, 5)
        port.harbour.answer(0, 1, 2)
    assert port.outcomes() == {"delivered": 9}


def test_smallest_window_of_all_routes_holds_until_that_route_is_gone() -> None:
    port = Port(Harbour(confirms_at_once=False), window=10)
    narrow = route_queue("narrow", window=2)
    port.egress.add_queue(narrow)
    port.load(*(message(flow) for flow in range(20)))
    port.pump()
    assert port.egress.in_flight == 2
    port.egress.remove_queue(narrow)
    port.pump()
    assert port.egress.in_flight == 10


def test_nothing_is_sent_while_the_link_is_not_up() -> None:
    port = Port()
    port.load(message())
    for state in (LinkState.DOWN, LinkState.ALONE):
        port.harbour.state = state
        port.pump()
        assert port.harbour.left == []
    port.harbour.state = LinkState.UP
    port.pump()
    assert len(port.harbour.left) == 1


# time


def test_tick_settles_what_expired_behind_a_parked_lane() -> None:
    port = Port()
    (delivery,) = port.load(message(ttl=100))
    port.egress.hold(delivery.lane, Hold.PAUSED)
    port.pump()
    port.wind(100)
    assert port.outcomes() == {}
    port.wind(1)
    assert port.outcomes() == {"expired": 1}
    assert port.harbour.left == []


def test_expired_are_passed_over_without_using_the_window() -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=2))
    open_windows(port, [0])
    port.load(*(message(0, ttl=10) for _ in range(100)), message(0), message(0), message(0))
    port.clock.wind(11)
    port.pump()
    assert port.egress.in_flight == 2
    assert port.outcomes() == {"delivered": 100, "expired": 100}


def test_lane_goes_on_only_when_the_last_reason_to_stand_still_is_gone() -> None:
    port = Port()
    (delivery,) = port.load(message())
    port.egress.hold(delivery.lane, Hold.ABSENT)
    port.egress.hold(delivery.lane, Hold.PAUSED)
    port.pump()
    port.egress.release_hold(delivery.lane, Hold.ABSENT)
    port.pump()
    assert port.harbour.left == []
    port.egress.release_hold(delivery.lane, Hold.PAUSED)
    port.pump()
    assert port.harbour.left == [delivery.message]


def test_queue_without_routes_has_no_window() -> None:
    port = Port()
    port.egress.remove_queue(port.queue)
    assert port.egress.window == 0
    assert port.clock.ms == NOW_MS
