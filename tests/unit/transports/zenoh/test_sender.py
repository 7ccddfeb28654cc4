"""The sender's thread: the results of batches that are blocked, lost or stopped. Tests block puts and release them."""

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamer.transports.base import UNCONFIRMED, MessageParcel
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, RefusedError, SendError
from streamer.transports.zenoh import sender as sender_module
from streamer.transports.zenoh.sender import Publishers, Sender
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.waiting import until
from tests.zenoh_peers import Outcomes

TOPIC = UUri.parse("//veh1/1/1/8000")


class BlockingPut:
    """A put that blocks on certain messages until it is released."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.threads: list[int] = []
        self.at_gate = threading.Event()
        self.opened = threading.Event()

    def __call__(self, message: UMessage) -> SendError | None:
        text = message.payload or b""
        if text == b"gate":
            self.at_gate.set()
            self.opened.wait(10)
        self.put.append(text)
        self.threads.append(threading.get_ident())
        return RefusedError(UCode.INTERNAL, "no") if text == b"refuse" else None


@contextmanager
def sending(gate: BlockingPut, **options: object) -> Iterator[Sender]:
    quick: dict[str, object] = {"slow_s": math.inf, "was_slow": lambda: None, "has_room": lambda: False, "now_ms": lambda: 0}
    sender = Sender(asyncio.get_running_loop(), gate, "test", success=UNCONFIRMED, **quick | options)  # type: ignore[arg-type]
    sender.resume()
    try:
        yield sender
    finally:
        gate.opened.set()
        sender.stop()


def parcels(*texts: bytes) -> list[MessageParcel]:
    return [MessageParcel(publish(1, TOPIC, text)) for text in texts]


def words(outcomes: Outcomes) -> list[str]:
    names: dict[Any, str] = {LinkLostError: "lost", MayHaveArrivedError: "cut off", RefusedError: "refused"}
    return [
        f"{(parcel.message.payload or b'').decode()} {'unconfirmed' if error is UNCONFIRMED else names[type(error)]}"
        for parcel, error in outcomes.reported
    ]


async def test_outcomes_come_in_order() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate) as sender:
        sender.submit(parcels(b"a", b"refuse", b"b"), outcomes.done)
        await until(lambda: len(outcomes.reported) == 3, "every outcome")
    assert words(outcomes) == ["a unconfirmed", "refuse refused", "b unconfirmed"]


async def test_while_there_is_room_the_loop_puts_by_itself() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate, has_room=lambda: True) as sender:
        sender.submit(parcels(b"a", b"refuse", b"b"), outcomes.done)
        assert words(outcomes) == ["a unconfirmed", "refuse refused", "b unconfirmed"]
        assert sender.is_empty
    assert set(gate.threads) == {threading.get_ident()}


async def test_what_has_no_room_any_more_goes_to_the_thread() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    asked: list[None] = []

    def has_room() -> bool:
        asked.append(None)
        return len(asked) < 3

    texts = [b"%d" % n * 5000 for n in range(9)]
    with sending(gate, has_room=has_room) as sender:
        sender.submit(parcels(*texts), outcomes.done)
        await until(lambda: len(outcomes.reported) == 9, "every outcome")
    assert gate.put == texts
    assert [thread == threading.get_ident() for thread in gate.threads] == [True] * 6 + [False] * 3
    assert words(outcomes) == [f"{text.decode()} unconfirmed" for text in texts]


async def test_large_message_goes_to_the_thread_and_later_ones_behind_it() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate, has_room=lambda: True) as sender:
        sender.submit(parcels(b"a", bytes(100_000), b"gate"), outcomes.done)
        sender.submit(parcels(b"b"), outcomes.done)
        await until(gate.at_gate.is_set, "the blocked put")
        sender.submit(parcels(b"c"), outcomes.done)
        assert b"b" not in gate.put
        gate.opened.set()
        await until(lambda: len(outcomes.reported) == 5, "every outcome")
    assert gate.put == [b"a", bytes(100_000), b"gate", b"b", b"c"]


async def test_results_that_send_more_do_not_nest() -> None:
    gate, reported = BlockingPut(), list[bytes]()
    depth = 0

    with sending(gate, has_room=lambda: True) as sender:

        def done(batch: Any, error: object) -> None:
            nonlocal depth
            depth += 1
            assert depth == 1
            reported.extend(parcel.message.payload for parcel in batch)
            if len(reported) < 1000:
                sender.submit(parcels(b"%d" % len(reported)), done)
            depth -= 1

        sender.submit(parcels(b"0"), done)
        await until(lambda: len(reported) == 1000, "every outcome")
    assert gate.put == [b"%d" % n for n in range(1000)]


async def test_without_a_link_nothing_is_put() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate) as sender:
        sender.break_off()
        sender.submit(parcels(b"a"), outcomes.done)
        sender.resume()  # what was submitted before stays lost
        sender.submit(parcels(b"b"), outcomes.done)
        await until(lambda: len(outcomes.reported) == 2, "every outcome")
    assert words(outcomes) == ["a lost", "b unconfirmed"]
    assert gate.put == [b"b"]


@pytest.mark.parametrize("count", [1, 100])
async def test_without_a_link_the_loop_has_its_turn_before_what_is_submitted_is_lost(count: int) -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate, has_room=lambda: True) as sender:
        sender.break_off()
        sender.submit(parcels(*[b"a"] * count), outcomes.done)
        assert not outcomes.reported  # or an egress would try again and again, and nobody resume
        await until(lambda: len(outcomes.reported) == count, "every outcome")
    assert words(outcomes) == ["a lost"] * count


async def test_put_that_returns_after_the_link_was_lost_may_or_may_not_count() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate) as sender:
        sender.submit(parcels(b"a", b"gate", b"b"), outcomes.done)
        await until(gate.at_gate.is_set, "the blocked put")
        sender.break_off()
        sender.resume()
        gate.opened.set()
        sender.submit(parcels(b"c"), outcomes.done)
        await until(lambda: len(outcomes.reported) == 4, "every outcome")
    assert words(outcomes) == ["a unconfirmed", "gate cut off", "b lost", "c unconfirmed"]
    assert gate.put == [b"a", b"gate", b"c"]


@pytest.mark.parametrize("text", [b"a", b"refuse"])
async def test_what_is_put_on_the_loop_may_be_cut_off_too_but_not_what_was_refused(text: bytes) -> None:
    outcomes = Outcomes()
    gate = BlockingPut()

    def put(message: UMessage) -> SendError | None:
        sender.break_off()
        return gate(message)

    with sending(gate, has_room=lambda: True) as sender:
        sender._put = put
        sender.submit(parcels(text), outcomes.done)
    assert words(outcomes) == ["a cut off" if text == b"a" else "refuse lost"]


async def test_blocked_batch_reports_what_is_through() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate) as sender:
        sender.submit(parcels(b"a", b"b", b"gate", b"c"), outcomes.done)
        await until(gate.at_gate.is_set, "the blocked put")
        sender.report_through()
        assert words(outcomes) == ["a unconfirmed", "b unconfirmed"]
        sender.report_through()
        gate.opened.set()
        await until(lambda: len(outcomes.reported) == 4, "every outcome")
    assert words(outcomes) == ["a unconfirmed", "b unconfirmed", "gate unconfirmed", "c unconfirmed"]


async def test_slow_put_is_checked_before_the_next_one() -> None:
    late_s = 0.0  # how far the sender's clock is ahead
    gate, outcomes = BlockingPut(), Outcomes()
    events: list[tuple[bytes, ...]] = []

    def was_slow() -> None:
        events.append(tuple(gate.put))
        sender.break_off()

    with sending(gate, slow_s=60, was_slow=was_slow, now_s=lambda: time.monotonic() + late_s) as sender:
        sender.submit(parcels(b"a", b"gate", b"b"), outcomes.done)
        await until(gate.at_gate.is_set, "the blocked put")
        late_s = 60.0
        gate.opened.set()
        await until(lambda: len(outcomes.reported) == 3, "every outcome")
    assert events == [(b"a", b"gate")]
    assert words(outcomes) == ["a unconfirmed", "gate unconfirmed", "b lost"]


async def test_stop_reports_what_is_blocked_as_lost_once() -> None:
    gate, outcomes = BlockingPut(), Outcomes()
    with sending(gate) as sender:
        sender.submit(parcels(b"a", b"gate", b"b"), outcomes.done)
        await until(gate.at_gate.is_set, "the blocked put")
        sender.report_through()
        sender.stop()
    assert words(outcomes) == ["a unconfirmed", "gate lost", "b lost"]


# -- publishers


class CountingSession:
    """Counts what is declared, and how messages are put."""

    def __init__(self) -> None:
        self.declared: list[str] = []
        self.put_as_text = 0
        self.put_by_number = 0

    def declare_publisher(self, key: str, **how: object) -> Any:
        self.declared.append(key)
        return SimpleNamespace(put=self._put_by_number)

    def _put_by_number(self, payload: bytes, **how: object) -> None:
        self.put_by_number += 1

    def put(self, key: object, payload: bytes, **how: object) -> None:
        self.put_as_text += 1


def test_flows_of_one_message_declare_no_publisher() -> None:
    session: Any = CountingSession()
    publishers = Publishers(session, "gateway", threading.Lock())
    for number in range(12_000):
        assert publishers.put(publish(1, UUri("veh1", number + 1, 1, 0x8000))) is None
    assert (session.declared, session.put_as_text) == ([], 12_000)


@pytest.mark.parametrize("traceparent", [None, f"00-{'1' * 32}-{'1' * 16}-01"])
def test_flow_that_goes_on_gets_one_publisher(traceparent: str | None) -> None:
    session: Any = CountingSession()
    publishers = Publishers(session, "gateway", threading.Lock())
    attributes = replace(publish(1, TOPIC).attributes, traceparent=traceparent)
    for _ in range(10):
        publishers.put(UMessage(bytes(16), attributes, b""))
    assert len(session.declared) == 1
    assert (session.put_as_text, session.put_by_number) == (3, 7)


def test_no_publisher_is_declared_while_one_is_undeclared_and_nothing_waits_for_that() -> None:
    session: Any = CountingSession()
    undeclaring = threading.Lock()
    publishers = Publishers(session, "gateway", undeclaring)
    with undeclaring:
        for _ in range(10):
            assert publishers.put(publish(1, TOPIC)) is None
    assert (session.declared, session.put_as_text) == ([], 10)
    for _ in range(10):
        publishers.put(publish(1, TOPIC))
    assert (len(session.declared), session.put_as_text, session.put_by_number) == (1, 10, 10)


def test_publishers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_DECLARED", 2)
    session: Any = CountingSession()
    publishers = Publishers(session, "gateway", threading.Lock())
    for number in range(50):
        publishers.put(publish(1, UUri("veh1", number % 5 + 1, 1, 0x8000)))
    assert len(session.declared) == 2
    assert session.put_as_text == 50 - 2 * 7


def test_what_is_remembered_of_flows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_ROUTES", 10)
    monkeypatch.setattr("streamer.uprotocol.cache._ENTRIES", 10)
    session: Any = CountingSession()
    publishers = Publishers(session, "gateway", threading.Lock())
    for number in range(100):
        for _ in range(1 + number % 5):  # some often enough for a publisher
            assert publishers.put(publish(1, UUri("veh1", number + 1, 1, 0x8000))) is None
        assert len(publishers._puts) <= 10
        assert len(publishers._counts) <= 10
    assert session.put_as_text + session.put_by_number == 300


class Panic(BaseException):
    """What a panic in Zenoh becomes is no Exception."""


@pytest.mark.parametrize("error", [ValueError("secret"), Panic("secret")])
async def test_whatever_zenoh_raises_the_message_is_refused_and_the_next_one_goes(error: BaseException) -> None:
    session: Any = CountingSession()
    put = session.put

    def put_or_fail(key: object, payload: bytes, **how: object) -> None:
        if payload == b"bad":
            raise error
        put(key, payload, **how)

    session.put = put_or_fail
    publishers = Publishers(session, "gateway", threading.Lock())
    outcomes = Outcomes()
    sender = Sender(
        asyncio.get_running_loop(),
        publishers.put,
        "test",
        success=UNCONFIRMED,
        slow_s=math.inf,
        was_slow=lambda: None,
        has_room=lambda: False,
        now_ms=lambda: 0,
    )
    sender.resume()
    sender.submit(parcels(b"good", b"bad", b"better"), outcomes.done)
    await until(lambda: len(outcomes.reported) == 3, "every result")
    refusals = [result for _, result in outcomes.reported if isinstance(result, RefusedError)]
    assert [str(refusal) for refusal in refusals] == [f"INTERNAL: Zenoh: {type(error).__name__}"]
    assert session.put_as_text == 2
    sender.stop()


def test_a_publisher_that_cannot_be_declared_refuses_its_message() -> None:
    session: Any = CountingSession()
    session.declare_publisher = Panic
    publishers = Publishers(session, "gateway", threading.Lock())
    results = [publishers.put(publish(1, TOPIC)) for _ in range(4)]
    assert results[:3] == [None] * 3
    assert isinstance(results[3], RefusedError)
