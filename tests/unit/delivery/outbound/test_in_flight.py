"""The window of a destination that confirms in order."""

import pytest

from streamer.delivery.outbound.in_flight import (
    CONTESTED_MESSAGES,
    LATE_S,
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
    """After confirmations of which the last ones were so many, and so full a window, that it is fully open."""
    flight = InFlight()
    flight.room(0, MOST, 1.0)
    for each_s in took_s:
        flight.confirmed_after(each_s, 100 * MOST, MOST, 1.0)
    return flight


def test_before_anything_is_known_as_many_are_sent_as_to_a_near_destination() -> None:
    assert InFlight().room(0, MOST, 1.0) == LEAST_MESSAGES


def test_the_window_grows_by_a_quarter_with_each_window_that_is_confirmed_in_time() -> None:
    flight = InFlight()
    flight.confirmed_after(0.05, LEAST_MESSAGES, LEAST_MESSAGES, 1.0)
    assert flight.room(0, MOST, 1.0) == LEAST_MESSAGES * 5 // 4


def test_a_window_that_is_not_used_does_not_grow() -> None:
    flight = InFlight()
    for _ in range(MOST):
        flight.confirmed_after(0.05, 1, LEAST_MESSAGES // 2 - 1, 1.0)
    assert flight.room(0, MOST, 1.0) == LEAST_MESSAGES


def test_what_is_confirmed_late_narrows_the_window_once_to_what_is_confirmed_in_time() -> None:
    flight = after(0.05)
    flight.confirmed_after(4 * LATE_S, 1, 100, 10.0)
    flight.confirmed_after(4 * LATE_S, 1, 99, 10.1)  # it was sent before the cut
    assert flight.room(0, MOST, 10.1) == 25
    flight.confirmed_after(2 * LATE_S, 1, 25, 20.0)
    assert flight.room(0, MOST, 20.0) == 12


def test_a_slow_destination_gets_one_message_at_least() -> None:
    flight = after(0.05)
    for number in range(1, 10):
        flight.confirmed_after(4 * LATE_S, 1, 1, 10.0 * number)
    assert flight.room(0, MOST, 100.0) == 1


def test_a_link_that_was_away_is_no_slow_link() -> None:
    flight = after(0.05)
    flight.confirmed_after(3600.0, MOST, MOST, 3610.0)
    assert flight.room(0, MOST, 3610.0) == MOST // 8


def test_a_long_round_trip_is_no_slow_link() -> None:
    flight = after(1.5 * LATE_S)  # it was never shorter
    flight.confirmed_after(2 * LATE_S, 1, MOST, 10.0)
    assert flight.room(0, MOST, 10.0) == MOST


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
    flight.confirmed_after(0.05, 1, 1, 1.0)
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


def test_another_destination_begins_anew() -> None:
    harness = near(OrderlyTransport())
    (other := OrderlyTransport()).confirms_at_once = False
    harness.egress.use_transport(other, None)
    harness.load(*(message() for _ in range(2 * MOST)))
    harness.pump()
    assert harness.egress.in_flight == LEAST_MESSAGES


class SlowLink:
    """An egress over a link that stores whatever it is given, and carries 25 messages/s."""

    def __init__(self) -> None:
        self.transport = OrderlyTransport()
        self.harness = EgressHarness(self.transport)
        self.harness.clock.advance(1000)
        open_windows(self.harness, [0, 1], MOST)
        self.transport.confirms_at_once = False

    def carry(self, messages: int) -> None:
        for _ in range(messages):
            self.harness.clock.advance(40)
            self.transport.answer(0)
            self.harness.pump()


def test_a_slow_link_holds_little_of_a_long_queue() -> None:
    link = SlowLink()
    link.harness.load(*(message() for _ in range(MOST)))
    link.harness.pump()
    link.carry(500)
    assert link.harness.egress.in_flight <= 2 * 25
    link.carry(300)
    assert link.harness.egress.in_flight <= 2 * 25
    link.harness.check_books()


def test_an_urgent_message_does_not_wait_behind_what_a_slow_link_holds() -> None:
    link = SlowLink()
    link.harness.load(*(message() for _ in range(MOST)))
    link.harness.pump()
    link.carry(500)
    link.harness.load(message(1, level=6, payload=b"urgent"))
    confirmed_before = 500
    link.carry(2 * 25)
    unanswered = [parcel.message.payload for parcel, _ in link.transport.unanswered]
    assert b"urgent" in [each.payload for each in link.transport.submitted[confirmed_before:]]
    assert b"urgent" not in unanswered
