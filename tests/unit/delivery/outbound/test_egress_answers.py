"""The way out, with transports that answer in every possible way: inside the call, with refusals, late, or never."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.routing.outcome import Outcome
from streamer.transports.base import UNCONFIRMED, Done, LinkState, Parcel, Presence, SendResult
from streamer.transports.errors import LinkLostError, MayHaveArrivedError
from streamer.uprotocol.status import UCode
from tests.examples import examples
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import message
from tests.unit.delivery.outbound.egress_harness import NEVER, NOT_NOW, PATIENT, EgressHarness, flows, open_windows

# reentrancy


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


def test_message_that_arrives_while_another_is_confirmed_leaves_too() -> None:
    harness = EgressHarness()
    late = [message(1), message(2)]

    class LateIngress:
        """An ingress whose backlog enters one by one."""

        @property
        def has_backlog(self) -> bool:
            return bool(late)

        def admit_backlog(self) -> None:
            harness.load(late.pop())

    harness.turns.add_backlog_of(LateIngress())
    harness.load(message(0))
    harness.pump()
    assert sorted(flows(harness.transport.submitted)) == [0, 1, 2]
    harness.check_books()


@given(st.data())
@settings(max_examples=examples(60))
def test_confirmations_in_any_pieces_and_order_settle_each_message_once(data: st.DataObject) -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False, capacity=data.draw(st.integers(1, 8))), retry=PATIENT)
    held = harness.load(*(message(n % 3, n % 2, payload=bytes([n])) for n in range(20)))
    harness.pump()
    for _ in range(400):
        harness.check_books()
        if not harness.queue.messages:
            break
        if not harness.transport.unanswered:
            harness.advance(101)
            continue
        chosen = data.draw(
            st.lists(
                st.integers(0, len(harness.transport.unanswered) - 1),
                min_size=1,
                max_size=len(harness.transport.unanswered),
                unique=True,
            )
        )
        harness.transport.answer(*chosen, error=data.draw(st.sampled_from([None, None, NOT_NOW])))
    else:
        harness.transport.confirms_at_once = True
        while harness.transport.unanswered:
            harness.transport.answer()
        harness.advance(101)
    assert harness.outcomes() == {"delivered": 20}
    assert all(delivery.received.acknowledged for delivery in held)
    harness.check_books()


# refusals


def test_refused_flow_goes_on_one_at_a_time_so_that_nothing_overtakes_it_twice() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), retry=PATIENT)
    open_windows(harness, [0])
    first, *others = harness.load(*(message(0, payload=bytes([n])) for n in range(100)))
    del others[98:]
    harness.pump()
    harness.load(*(message(0, payload=b"later") for _ in range(100)))
    harness.transport.answer(0, error=NOT_NOW)
    harness.transport.answer()
    harness.transport.batches.clear()
    for _ in range(5):
        harness.advance(101)
        assert harness.transport.submitted[-1] == first.message
        assert len(harness.transport.unanswered) == 1
        harness.transport.answer(error=NOT_NOW)
    assert set(harness.transport.submitted) == {first.message}
    harness.advance(101)
    harness.transport.answer()
    assert harness.transport.submitted[-1].payload == b"later"


def test_back_off_ends_when_its_time_has_come_and_not_before() -> None:
    harness = EgressHarness(retry={"initial_ms": 500, "factor": 2, "max_ms": 10_000, "jitter": 0, "attempts": 10})
    harness.transport.verdict = lambda sent: NOT_NOW
    harness.load(message())
    harness.pump()
    for wait_ms in (500, 1000, 2000):
        before = len(harness.transport.submitted)
        harness.advance(wait_ms - 1)
        assert len(harness.transport.submitted) == before
        harness.advance(1)
        assert len(harness.transport.submitted) == before + 1
    assert harness.queue.stats.retries == 4


def test_permanent_refusal_is_the_end_at_once_and_the_flow_goes_on() -> None:
    harness = EgressHarness()
    harness.transport.verdict = lambda sent: NEVER if sent.payload == b"bad" else None
    harness.load(message(payload=b"good"), message(payload=b"bad"), message(payload=b"good too"))
    harness.pump()
    assert [m.payload for m in harness.transport.submitted] == [b"good", b"bad", b"good too"]
    assert harness.queue.stats.outcomes == {
        (Outcome.DELIVERED, UCode.OK): 2,
        (Outcome.DEAD_LETTERED, UCode.PERMISSION_DENIED): 1,
    }
    assert harness.queue.stats.retries == 0


def test_attempts_run_out_for_one_message_and_the_next_has_all_of_its_own() -> None:
    harness = EgressHarness(retry={"initial_ms": 10, "factor": 1, "max_ms": 10, "jitter": 0, "attempts": 3})
    harness.transport.verdict = lambda sent: NOT_NOW
    harness.load(message(payload=b"1"), message(payload=b"2"))
    harness.pump()
    for _ in range(10):
        harness.advance(11)
    assert [m.payload for m in harness.transport.submitted] == [b"1"] * 3 + [b"2"] * 3
    assert harness.outcomes() == {"dead_lettered": 2}
    harness.check_books()


# lost links


def test_lost_link_puts_everything_back_in_order_without_an_attempt() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), retry={"attempts": 1, "jitter": 0})
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
    assert not harness.transport.unanswered  # what is sent for the last time waits for a moment
    harness.advance(2_000)
    harness.transport.answer(error=MayHaveArrivedError())
    harness.egress.node_changed(False)
    harness.egress.node_changed(True)
    harness.pump()
    assert [sent.id for sent in harness.transport.submitted] == [first.message.id] * (2 * MAX_RETURNS + 1)
    assert harness.outcomes() == {}
    harness.advance(11_000)
    assert harness.outcomes() == {"delivered": 1}


def test_returns_of_what_may_have_arrived_and_of_what_was_unconfirmed_are_counted_together() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    (first,) = harness.load(message())
    for number in range(MAX_RETURNS + 3):
        harness.pump()
        if harness.transport.unanswered:
            harness.transport.answer(error=UNCONFIRMED if number % 2 else MayHaveArrivedError())
        harness.egress.node_changed(False)
        harness.egress.node_changed(True)
        harness.advance(2_000)
    assert [sent.id for sent in harness.transport.submitted] == [first.message.id] * (MAX_RETURNS + 1)


def test_what_may_have_arrived_is_sent_no_more_than_so_often_to_a_listener_that_comes_and_goes() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False), unconfirmed_s=10)
    (first,) = harness.load(message())
    source, sink = first.message.attributes.source, first.message.attributes.sink
    for _ in range(2 * MAX_RETURNS):
        harness.pump()
        if harness.transport.unanswered:
            harness.transport.answer(error=MayHaveArrivedError())
        harness.transport.set_presence(source, sink, Presence.ABSENT)
        harness.transport.set_presence(source, sink, Presence.PRESENT)
        harness.advance(2_000)
    assert len(harness.transport.submitted) == MAX_RETURNS + 1
    assert harness.outcomes() == {"unconfirmed": 1}


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


def test_without_a_store_what_may_have_arrived_is_sent_until_it_is_confirmed() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False))
    harness.load(message())
    for _ in range(2 * MAX_RETURNS):
        harness.pump()
        harness.transport.answer(error=MayHaveArrivedError())
    harness.pump()
    harness.transport.answer()
    assert len(harness.transport.submitted) == 2 * MAX_RETURNS + 1
    assert harness.outcomes() == {"delivered": 1}


def test_message_expired_while_it_was_away_is_not_sent_again() -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False))
    harness.load(message(ttl=100))
    harness.pump()
    harness.transport.lose()
    harness.clock.advance(101)
    harness.transport.state = LinkState.UP
    harness.pump()
    assert len(harness.transport.submitted) == 1
    assert harness.outcomes() == {"expired": 1}


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


# faults


def test_transport_that_raises_half_way_costs_the_rest_an_attempt_and_no_message(caplog: pytest.LogCaptureFixture) -> None:
    harness = EgressHarness(retry=PATIENT)
    open_windows(harness, [0])
    harness.transport.fail_at = 3
    held = harness.load(*(message(0, payload=bytes([n])) for n in range(10)))
    with caplog.at_level(logging.ERROR):
        harness.pump()
    assert [record.msg.split()[0] for record in caplog.records] == ["submit_failed"]
    assert [d.received.acknowledged for d in held] == [True] * 3 + [False] * 7
    assert harness.queue.stats.retries == 7
    harness.check_books()
    harness.transport.batches.clear()
    harness.advance(100)
    assert harness.transport.submitted == [d.message for d in held[3:]]
    assert harness.outcomes()["delivered"] == 110
    harness.check_books()


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


def test_a_loss_that_is_heard_of_after_the_process_was_suspended_comes_before_the_time_that_has_passed() -> None:
    harness = EgressHarness(FakeTransport(), unconfirmed_s=10)
    harness.transport.verdict = lambda message: UNCONFIRMED  # type: ignore[return-value, assignment]
    (first,) = harness.load(message())
    harness.pump()
    harness.clock.advance(60_000)  # stopped: no tick knows of it yet
    harness.egress.node_changed(False)
    harness.egress.node_changed(True)
    harness.pump()
    assert [sent.id for sent in harness.transport.submitted] == [first.message.id] * 2


@pytest.mark.parametrize(("error", "outcome"), [(MayHaveArrivedError(), "unconfirmed"), (LinkLostError(), "expired")])
def test_what_may_have_arrived_over_a_network_that_confirms_is_no_failure_when_its_ttl_passes(
    error: LinkLostError, outcome: str
) -> None:
    harness = EgressHarness(FakeTransport(confirms_at_once=False))
    harness.load(message(ttl=100))
    harness.pump()
    harness.transport.state = LinkState.DOWN
    harness.transport.answer(error=error)
    harness.advance(200)
    assert harness.outcomes() == {outcome: 1}
