"""The way out: which lane is served next, the window, and what a transport answers. For more see tests/flow."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.transports.base import UNCONFIRMED, Done, LinkState, Parcel, Presence, SendResult
from streamer.transports.errors import LinkLostError, MayHaveArrivedError
from streamer.transports.memory import MemoryOptions
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import NOW_MS, message, route_queue
from tests.unit.delivery.outbound.egress_harness import NEVER, NOT_NOW, PATIENT, EgressHarness, flows, open_windows


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


def test_transport_that_confirms_inside_submit_gets_everything_in_order_and_never_recursively() -> None:
    harness = EgressHarness()
    depth = []
    submit = harness.transport.submit

    def counted(parcels: Sequence[Parcel], done: Done) -> None:
        depth.append(1)
        assert len(depth) == 1
        submit(parcels, done)
        depth.pop()

    harness.transport.submit = counted  # type: ignore[method-assign]
    held = harness.load(*(message(0, payload=n.to_bytes(2, "big")) for n in range(3000)))
    harness.pump()
    assert harness.transport.submitted == [delivery.message for delivery in held]
    assert harness.outcomes() == {"delivered": 3000}
    harness.check_books()


def test_attempts_run_out_for_one_message_and_the_next_has_all_of_its_own() -> None:
    harness = EgressHarness(retry={"initial_ms": 10, "max_ms": 10, "attempts": 3})
    harness.transport.verdict = lambda sent: NOT_NOW
    harness.load(message(payload=b"1"), message(payload=b"2"))
    harness.pump()
    for _ in range(10):
        harness.advance(11)
    assert [m.payload for m in harness.transport.submitted] == [b"1"] * 3 + [b"2"] * 3
    assert harness.outcomes() == {"dead_lettered": 2}
    harness.check_books()


def test_lost_link_puts_everything_back_in_order_without_an_attempt() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), retry={"attempts": 1})
    open_windows(harness, [0, 1])
    held = harness.load(*(message(n % 2, payload=bytes([n])) for n in range(20)))
    harness.pump()
    for _ in range(3):
        harness.transport.lose()
        harness.check_books()
        assert harness.egress.in_flight == 0
        harness.transport.batches.clear()
        harness.transport.state = LinkState.UP
        harness.pump()
    for flow in (0, 1):
        expected = [delivery.message for delivery in held if flows([delivery.message]) == [flow]]
        assert [m for m in harness.transport.submitted if flows([m]) == [flow]] == expected
    harness.transport.answer()
    assert harness.queue.stats.retries == 0
    assert harness.queue.messages == 0


def test_what_may_have_arrived_when_the_link_was_lost_is_sent_again_as_often_as_what_is_unconfirmed() -> None:
    """Otherwise a receiver that comes and goes while a message is in flight has it sent endlessly, to all others too."""
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    (first,) = harness.load(message())
    for _ in range(MAX_RETURNS):
        harness.pump()
        harness.transport.answer(error=LinkLostError())  # it was not on its way: that does not count
        harness.check_books()
        harness.pump()
        harness.transport.answer(error=MayHaveArrivedError())
        harness.check_books()
    harness.pump()
    harness.transport.answer(error=MayHaveArrivedError())
    harness.egress.node_changed(False)
    harness.egress.node_changed(True)
    harness.pump()
    assert [sent.id for sent in harness.transport.submitted] == [first.message.id] * (2 * MAX_RETURNS + 1)
    assert harness.outcomes() == {}
    harness.advance(11_000)
    assert harness.outcomes() == {"delivered": 1}


def test_what_was_on_its_way_when_the_last_listener_left_is_sent_no_more_than_so_often() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    (first,) = harness.load(message())
    source, sink = first.message.attributes.source, first.message.attributes.sink
    for _ in range(2 * MAX_RETURNS):
        harness.pump()
        harness.transport.set_presence(source, sink, Presence.ABSENT)
        harness.transport.set_presence(source, sink, Presence.PRESENT)
        if harness.transport.unanswered:
            harness.transport.answer(error=UNCONFIRMED)
        harness.advance(2_000)
    harness.check_books()
    assert len(harness.transport.submitted) == MAX_RETURNS + 1
    harness.transport.set_presence(source, sink, Presence.ABSENT)
    assert harness.outcomes() == {"unconfirmed": 1}


def sent_unconfirmed(harness: EgressHarness) -> int:
    """Send what may be sent now, on a network that confirms nothing. Return how many were sent so far."""
    harness.pump()
    if harness.transport.unanswered:
        harness.transport.answer(error=UNCONFIRMED)
    return len(harness.transport.submitted)


def test_a_node_that_comes_and_goes_delays_no_message_of_a_flow_with_a_listener() -> None:
    """Each is sent again as often as it may be, and never waits: nothing says that the node was its receiver."""
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    for number in range(3 * MAX_RETURNS):
        harness.load(message())
        sent_unconfirmed(harness)
        assert len({each.id for each in harness.transport.submitted}) == number + 1
        harness.egress.node_changed(False)
        harness.egress.node_changed(True)
    assert max(Counter(each.id for each in harness.transport.submitted).values()) == MAX_RETURNS + 1


def test_signs_that_go_on_delay_the_last_try_of_a_message_once_only() -> None:
    """A listener that may have been away, again and again: its link is reset, or that of another node."""
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    (first,) = harness.load(message())
    key = first.message.attributes.source, first.message.attributes.sink

    def sign() -> None:
        harness.transport.set_presence(*key, Presence.INTERRUPTED)
        harness.transport.set_presence(*key, Presence.PRESENT)

    for copies in range(1, MAX_RETURNS + 1):
        assert sent_unconfirmed(harness) == copies
        sign()
    assert sent_unconfirmed(harness) == MAX_RETURNS  # the last try waits for signs that belong to the same loss
    harness.transport.set_presence(*key, Presence.INTERRUPTED)
    harness.advance(2_000)
    harness.transport.set_presence(*key, Presence.PRESENT)
    assert sent_unconfirmed(harness) == MAX_RETURNS + 1
    sign()
    harness.load(message())
    assert sent_unconfirmed(harness) == MAX_RETURNS + 2
    assert harness.outcomes() == {}


def test_messages_stay_unconfirmed_for_as_long_as_the_present_transport_says() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    harness.transport = FakeTransport(confirms_at_once=False)
    harness.transport.options = MemoryOptions(unconfirmed_s=20)
    harness.egress.use_transport(harness.transport, harness.egress.store)
    harness.load(message())
    assert sent_unconfirmed(harness) == 1
    for seconds in (1, 19):  # its batch is closed after a second
        harness.advance(seconds * 1000)
        assert harness.outcomes() == {}
    harness.advance(1_000)
    assert harness.outcomes() == {"delivered": 1}


@pytest.mark.parametrize("messages", [1, 3])
def test_what_is_to_be_sent_again_and_cannot_be_read_any_more_is_counted(messages: int) -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    harness.load(*(message(flow) for flow in range(messages)))
    harness.pump()
    while harness.transport.unanswered:
        harness.transport.answer(error=UNCONFIRMED)
    harness.egress.node_changed(False)
    assert harness.egress.store is not None
    ((_, batch),) = harness.egress.store._aside
    batch.body = (batch.body or b"")[:-1]
    harness.egress.node_changed(True)
    assert len(harness.transport.submitted) == messages
    assert harness.outcomes() == {"dead_lettered": messages}
    assert (harness.egress.unsettled(), harness.egress.store.bytes) == (0, 0)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("error", [None, NOT_NOW, NEVER, LinkLostError()])
def test_late_word_about_what_a_faulty_transport_had_taken_is_not_counted_twice(again: bool, error: SendResult) -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), retry=PATIENT)
    open_windows(harness, [0])
    harness.transport.fail_at = 3
    held = harness.load(*(message(0, payload=bytes([n])) for n in range(5)))
    harness.pump()
    assert len(harness.transport.unanswered) == 3
    stale, harness.transport.unanswered = harness.transport.unanswered, []
    if again:  # they are on their way once more, and settled, when the word comes
        harness.advance(100)
        for _ in range(20):
            if harness.transport.unanswered:
                harness.transport.answer()
    stale[0][1]([parcel for parcel, _ in stale], error)
    harness.check_books()
    for _ in range(20):
        harness.advance(100)
        for _ in range(20):
            if harness.transport.unanswered:
                harness.transport.answer()
    harness.check_books()
    assert all(d.received.acknowledged for d in held)
    assert harness.queue.messages == harness.egress.in_flight == 0
    assert harness.outcomes() == {"delivered": 105}
