"""The way out: which lane is served next, and the window. What the router shows as well is in tests/flow."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import NOW_MS, message, route_queue
from tests.unit.delivery.outbound.egress_harness import EgressHarness, flows, open_windows


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_lanes_go_by_class_and_equal_ones_by_age(levels: list[int]) -> None:
    harness = EgressHarness()
    harness.load(*(message(flow, level) for flow, level in enumerate(levels)))
    harness.pump()
    assert flows(harness.transport.submitted) == sorted(range(len(levels)), key=lambda flow: (-levels[flow], flow))


def test_while_a_window_is_opening_the_lower_classes_have_their_share() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), lower_share=0.25)
    harness.load(*(message(1, 0) for _ in range(50)), *(message(0, 6) for _ in range(120)))
    harness.pump()
    while harness.transport.unanswered:
        harness.transport.answer()
    assert flows(harness.transport.submitted)[:160].count(1) == 40


def test_equal_lanes_take_turns_of_a_quantum() -> None:
    harness = EgressHarness()
    open_windows(harness, [0, 1, 2])
    harness.load(*(message(flow) for flow in (0, 1, 2) for _ in range(200)))
    harness.pump()
    turns = flows(harness.transport.submitted)
    assert turns[: 3 * 64] == [0] * 64 + [1] * 64 + [2] * 64
    assert turns.count(0) == turns.count(1) == turns.count(2) == 200


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


def test_queue_without_routes_has_no_window() -> None:
    harness = EgressHarness()
    harness.egress.remove_queue(harness.queue)
    assert harness.egress.window == 0
    assert harness.clock.ms == NOW_MS
