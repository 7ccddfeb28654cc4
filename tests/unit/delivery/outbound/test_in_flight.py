"""The window of a destination that confirms in order."""

import pytest

from streamer.delivery.outbound.in_flight import (
    CONTESTED_MESSAGES,
    LEAST_MESSAGES,
    MESSAGES_PER_S,
    ROUND_TRIP_MEMORY_S,
    InFlight,
)
from streamer.transports.errors import LinkLostError
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import message
from tests.unit.delivery.outbound.egress_harness import EgressHarness, open_windows

MOST = 1000


def after(*took_s: float) -> InFlight:
    flight = InFlight()
    flight.room(0, MOST, 1.0)
    for each_s in took_s:
        flight.confirmed_after(each_s)
    return flight


def test_the_whole_window_is_open_before_anything_is_known() -> None:
    assert InFlight().room(0, MOST, 1.0) == MOST


def test_a_near_destination_gets_few_messages_and_a_far_one_many() -> None:
    assert after(0.001).room(0, MOST, 1.0) == LEAST_MESSAGES + MESSAGES_PER_S * 0.001
    assert after(0.02).room(0, MOST, 1.0) == LEAST_MESSAGES + MESSAGES_PER_S * 0.02
    assert after(0.05).room(0, MOST, 1.0) == MOST


def test_the_shortest_time_counts() -> None:
    assert after(0.02, 0.001, 0.03).room(0, MOST, 1.0) == LEAST_MESSAGES + MESSAGES_PER_S * 0.001


def test_a_short_time_is_forgotten_when_it_is_long_ago() -> None:
    flight = after(0.001)
    near = LEAST_MESSAGES + MESSAGES_PER_S * 0.001
    assert flight.room(0, MOST, 1.0 + ROUND_TRIP_MEMORY_S) == near  # the time before counts, too
    flight.confirmed_after(0.05)
    assert flight.room(0, MOST, 1.0 + 2 * ROUND_TRIP_MEMORY_S) == MOST


def test_a_window_is_never_wider_than_others_want_it() -> None:
    assert after(0.001).room(0, 7, 1.0) == 7


@pytest.mark.parametrize(("in_flight", "room"), [(0, 100), (75, 25), (76, 0), (100, 0), (120, 0)])
def test_nothing_is_sent_before_a_quarter_of_the_window_is_free(in_flight: int, room: int) -> None:
    assert after(0.05).room(in_flight, 100, 1.0) == room


@pytest.mark.parametrize("most", [1, 2, 3])
def test_small_windows_are_used_to_the_full(most: int) -> None:
    assert [after(0.05).room(in_flight, most, 1.0) for in_flight in range(most)] == list(range(most, 0, -1))


def test_while_classes_differ_fewer_messages_are_in_flight() -> None:
    flight = after(0.001)
    flight.contested(5.0)
    assert flight.is_contested(5.9)
    assert flight.room(0, MOST, 5.9) == CONTESTED_MESSAGES + MESSAGES_PER_S * 0.001
    assert not flight.is_contested(6.0)
    assert flight.room(0, MOST, 6.0) == LEAST_MESSAGES + MESSAGES_PER_S * 0.001


# in an egress


class OrderlyTransport(FakeTransport):
    confirms_in_order = True


def near(transport: FakeTransport) -> EgressHarness:
    """An egress whose destination confirms without delay, until the test has it wait."""
    harness = EgressHarness(transport)
    harness.clock.advance(1000)
    open_windows(harness, [0], 3 * MOST)
    transport.confirms_at_once = False
    return harness


def test_an_egress_keeps_a_near_destination_busy_and_sends_a_quarter_of_the_window_at_a_time() -> None:
    harness = near(transport := OrderlyTransport())
    harness.load(*(message() for _ in range(MOST)))
    harness.pump()
    assert harness.egress.in_flight == LEAST_MESSAGES
    sent = [LEAST_MESSAGES]
    for _ in range(LEAST_MESSAGES):
        transport.answer(0)
        if len(transport.submitted) > sum(sent):
            sent.append(len(transport.submitted) - sum(sent))
    assert sent == [LEAST_MESSAGES, *[LEAST_MESSAGES // 4] * 4]
    harness.check_books()


def test_a_destination_that_confirms_in_any_order_gets_the_whole_window() -> None:
    harness = near(FakeTransport())
    harness.load(*(message() for _ in range(2 * MOST)))
    harness.pump()
    assert harness.egress.in_flight == MOST


def test_a_message_of_a_higher_class_goes_as_soon_as_anything_may() -> None:
    harness = near(transport := OrderlyTransport())
    harness.load(*(message() for _ in range(MOST)))
    harness.pump()
    harness.load(message(1, level=6, payload=b"urgent"))
    before = len(transport.submitted)
    transport.answer(*range(LEAST_MESSAGES // 4))
    assert transport.submitted[before].payload == b"urgent"
    seen = len(transport.submitted)
    while len(transport.submitted) == seen:  # from now on fewer are in flight
        transport.answer(0)
    assert harness.egress.in_flight == CONTESTED_MESSAGES
    assert len(transport.submitted) == seen + CONTESTED_MESSAGES // 4


def test_what_a_lost_link_gives_back_is_sent_again_in_order_through_the_same_window() -> None:
    harness = near(transport := OrderlyTransport())
    loaded = harness.load(*(message() for _ in range(MOST)))
    harness.pump()
    transport.answer(*range(LEAST_MESSAGES), error=LinkLostError())
    assert harness.egress.in_flight == LEAST_MESSAGES
    while transport.unanswered:
        transport.answer()
    assert transport.submitted[LEAST_MESSAGES:] == [each.message for each in loaded]
    assert harness.outcomes() == {"delivered": 4 * MOST}
    harness.check_books()


def test_another_destination_begins_with_the_whole_window() -> None:
    harness = near(OrderlyTransport())
    (other := OrderlyTransport()).confirms_at_once = False
    harness.egress.use_transport(other, None)
    harness.load(*(message() for _ in range(2 * MOST)))
    harness.pump()
    assert harness.egress.in_flight == MOST
