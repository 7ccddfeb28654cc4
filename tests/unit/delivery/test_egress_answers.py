"""The way out, with transports that answer in every way one can think of: inside the call, with refusals, late, or not."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.routing.outcome import Outcome
from streamer.transports.base import LinkState
from streamer.transports.errors import LinkLostError
from streamer.uprotocol.status import UCode
from tests.unit.delivery.actors import Harbour, message
from tests.unit.delivery.port import NEVER, NOT_NOW, PATIENT, Port, flows, open_windows

# reentrancy


def test_transport_that_confirms_inside_submit_gets_everything_in_order_and_never_recursively() -> None:
    port = Port()
    depth = []
    submit = port.harbour.submit

    def counted(parcels, done) -> None:
        depth.append(1)
        assert len(depth) == 1
        submit(parcels, done)
        depth.pop()

    port.harbour.submit = counted
    held = port.load(*(message(0, payload=n.to_bytes(2, "big")) for n in range(3000)))
    port.pump()
    assert port.harbour.left == [delivery.message for delivery in held]
    assert port.outcomes() == {"delivered": 3000}
    port.check_books()


def test_message_that_arrives_while_another_is_confirmed_leaves_too() -> None:
    port = Port()
    late = [message(1), message(2)]

    class Late:
        """An ingress whose backlog fits in one by one."""

        @property
        def has_backlog(self) -> bool:
            return bool(late)

        def admit_backlog(self) -> None:
            port.load(late.pop())

    port.turns.add_ingress(Late())
    port.load(message(0))
    port.pump()
    assert sorted(flows(port.harbour.left)) == [0, 1, 2]
    port.check_books()


@given(st.data())
@settings(max_examples=60)
def test_confirmations_in_any_pieces_and_order_settle_each_message_once(data: st.DataObject) -> None:
    port = Port(Harbour(confirms_at_once=False, capacity=data.draw(st.integers(1, 8))), retry=PATIENT)
    held = port.load(*(message(n % 3, n % 2, payload=bytes([n])) for n in range(20)))
    port.pump()
    for _ in range(400):
        port.check_books()
        if not port.queue.messages:
            break
        if not port.harbour.open:
            port.wind(101)
            continue
        chosen = data.draw(
            st.lists(st.integers(0, len(port.harbour.open) - 1), min_size=1, max_size=len(port.harbour.open), unique=True)
        )
        port.harbour.answer(*chosen, error=data.draw(st.sampled_from([None, None, NOT_NOW])))
    else:
        port.harbour.confirms_at_once = True
        while port.harbour.open:
            port.harbour.answer()
        port.wind(101)
    assert port.outcomes() == {"delivered": 20}
    assert all(delivery.received.acknowledged for delivery in held)
    port.check_books()


# refusals


def test_refused_flow_goes_on_one_at_a_time_so_that_nothing_overtakes_it_twice() -> None:
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    open_windows(port, [0])
    first, *others = port.load(*(message(0, payload=bytes([n])) for n in range(100)))
    del others[98:]
    port.pump()
    port.load(*(message(0, payload=b"later") for _ in range(100)))
    port.harbour.answer(0, error=NOT_NOW)
    port.harbour.answer()
    port.harbour.submitted.clear()
    for _ in range(5):
        port.wind(101)
        assert port.harbour.left[-1] == first.message
        assert len(port.harbour.open) == 1
        port.harbour.answer(error=NOT_NOW)
    assert set(port.harbour.left) == {first.message}
    port.wind(101)
    port.harbour.answer()
    assert port.harbour.left[-1].payload == b"later"


def test_back_off_ends_when_its_time_has_come_and_not_before() -> None:
    port = Port(retry={"initial_ms": 500, "factor": 2, "max_ms": 10_000, "jitter": 0, "attempts": 10})
    port.harbour.verdict = lambda sent: NOT_NOW
    port.load(message())
    port.pump()
    for wait_ms in (500, 1000, 2000):
        before = len(port.harbour.left)
        port.wind(wait_ms - 1)
        assert len(port.harbour.left) == before
        port.wind(1)
        assert len(port.harbour.left) == before + 1
    assert port.queue.stats.retries == 4


def test_permanent_refusal_is_the_end_at_once_and_the_flow_goes_on() -> None:
    port = Port()
    port.harbour.verdict = lambda sent: NEVER if sent.payload == b"bad" else None
    port.load(message(payload=b"good"), message(payload=b"bad"), message(payload=b"good too"))
    port.pump()
    assert [m.payload for m in port.harbour.left] == [b"good", b"bad", b"good too"]
    assert port.queue.stats.outcomes == {
        (Outcome.DELIVERED, UCode.OK): 2,
        (Outcome.DEAD_LETTERED, UCode.PERMISSION_DENIED): 1,
    }
    assert port.queue.stats.retries == 0


def test_attempts_run_out_for_one_message_and_the_next_has_all_of_its_own() -> None:
    port = Port(retry={"initial_ms": 10, "factor": 1, "max_ms": 10, "jitter": 0, "attempts": 3})
    port.harbour.verdict = lambda sent: NOT_NOW
    port.load(message(payload=b"1"), message(payload=b"2"))
    port.pump()
    for _ in range(10):
        port.wind(11)
    assert [m.payload for m in port.harbour.left] == [b"1"] * 3 + [b"2"] * 3
    assert port.outcomes() == {"dead_lettered": 2}
    port.check_books()


# lost links


def test_lost_link_puts_everything_back_in_order_without_an_attempt() -> None:
    port = Port(Harbour(confirms_at_once=False), retry={"attempts": 1, "jitter": 0})
    open_windows(port, [0, 1])
    held = port.load(*(message(n % 2, payload=bytes([n])) for n in range(20)))
    port.pump()
    for _ in range(3):
        port.harbour.lose()
        port.check_books()
        assert port.egress.in_flight == 0
        port.harbour.submitted.clear()
        port.harbour.state = LinkState.UP
        port.pump()
    for flow in (0, 1):
        expected = [delivery.message for delivery in held if flows([delivery.message]) == [flow]]
        assert [m for m in port.harbour.left if flows([m]) == [flow]] == expected
    port.harbour.answer()
    assert port.queue.stats.retries == 0
    assert port.queue.messages == 0


def test_message_expired_while_it_was_away_is_not_sent_again() -> None:
    port = Port(Harbour(confirms_at_once=False))
    port.load(message(ttl=100))
    port.pump()
    port.harbour.lose()
    port.clock.wind(101)
    port.harbour.state = LinkState.UP
    port.pump()
    assert len(port.harbour.left) == 1
    assert port.outcomes() == {"expired": 1}


# faults


def test_transport_that_raises_half_way_costs_the_rest_an_attempt_and_no_message(caplog: pytest.LogCaptureFixture) -> None:
    port = Port(retry=PATIENT)
    open_windows(port, [0])
    port.harbour.fail_at = 3
    held = port.load(*(message(0, payload=bytes([n])) for n in range(10)))
    with caplog.at_level(logging.ERROR):
        port.pump()
    assert [record.msg.split()[0] for record in caplog.records] == ["submit_failed"]
    assert [d.received.acknowledged for d in held] == [True] * 3 + [False] * 7
    assert port.queue.stats.retries == 7
    port.check_books()
    port.harbour.submitted.clear()
    port.wind(100)
    assert port.harbour.left == [d.message for d in held[3:]]
    assert port.outcomes()["delivered"] == 110
    port.check_books()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("error", [None, NOT_NOW, NEVER, LinkLostError()])
def test_late_word_about_what_a_faulty_transport_had_taken_is_not_counted_twice(again: bool, error) -> None:
    port = Port(Harbour(confirms_at_once=False), retry=PATIENT)
    open_windows(port, [0])
    port.harbour.fail_at = 3
    held = port.load(*(message(0, payload=bytes([n])) for n in range(5)))
    port.pump()
    assert len(port.harbour.open) == 3
    stale, port.harbour.open = port.harbour.open, []
    if again:  # they are on their way once more, and settled, when the word comes
        port.wind(100)
        for _ in range(20):
            if port.harbour.open:
                port.harbour.answer()
    stale[0][1]([parcel for parcel, _ in stale], error)
    port.check_books()
    for _ in range(20):
        port.wind(100)
        for _ in range(20):
            if port.harbour.open:
                port.harbour.answer()
    port.check_books()
    assert all(d.received.acknowledged for d in held)
    assert port.queue.messages == port.egress.in_flight == 0
    assert port.outcomes() == {"delivered": 105}
