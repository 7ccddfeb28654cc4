"""Settling, where tests/flow does not show it: latencies, references, lost messages, and failure notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.delivery.custody.unconfirmed_batch import LaneSummary
from streamer.delivery.lanes.lane import Delivery, DeliveryState
from streamer.delivery.seen import key_of
from streamer.delivery.stats import Histogram, RouteStats
from streamer.journal.entries import JournalError
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import OVERHEAD_BYTES, Options, UMessage, UPriority, publish, request
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS
from tests.unit.delivery.custody_harness import acknowledged, journaled
from tests.unit.delivery.messages import message
from tests.unit.delivery.settler_harness import SettlerHarness
from tests.unit.journal.harness import execute, letter

EXPIRED = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed")
APP, METHOD = UUri("veh1", 0xA, 1, 0), UUri("fleet", 0xB, 1, 7)
SAID = [
    pytest.param(message(), "message_dead_lettered", id="message"),
    pytest.param(publish(START_MS, UUri("gateway", 4, 1, 0x8002)), "message_given_up", id="status"),
    pytest.param(publish(START_MS, UUri("another", 4, 1, 0x8001)), "message_given_up", id="dead-letter-of-another"),
]


def observed(histogram: Histogram) -> tuple[int, float]:
    """How many values, and their sum in ms."""
    return sum(histogram.counts), round(histogram.sum * 1000)


def is_forgotten(delivery: Delivery) -> bool:
    return delivery.state is DeliveryState.SETTLED and not hasattr(delivery, "message")


def test_a_delivered_message_is_counted_traced_and_acknowledged() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message())
    received, uuid, key = delivery.received, delivery.message.id, key_of(delivery.message)
    harness.settler.delivered([delivery])
    assert harness.queue.stats.outcomes == {(Outcome.DELIVERED, UCode.OK): 1}
    assert (harness.queue.messages, harness.queue.bytes) == (0, 0)
    assert harness.observer.records == [(Outcome.DELIVERED, uuid)]
    assert acknowledged(received)
    assert harness.seen.young == {key: None}
    assert is_forgotten(delivery)


def test_latencies_are_counted_from_the_arrival_and_from_the_creation() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message(made_ms=START_MS - 500))
    harness.clock.advance(20)
    harness.settler.delivered([delivery])
    assert observed(harness.queue.stats.in_daemon) == (1, 20)
    assert observed(harness.queue.stats.end_to_end) == (1, 520)


def test_an_unconfirmed_message_has_no_outcome_yet_and_its_latencies_are_counted() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message())
    received = delivery.received
    harness.clock.advance(20)
    harness.settler.pack_unconfirmed([delivery], harness.held.store)
    stats = harness.queue.stats
    assert (stats.outcomes, harness.queue.messages, harness.queue.unconfirmed) == ({}, 0, 1)
    assert (observed(stats.in_daemon), observed(stats.end_to_end)) == ((1, 20), (1, 20))
    assert not acknowledged(received)
    assert harness.held.store.has_unstored
    assert is_forgotten(delivery)


def test_unconfirmed_messages_that_cannot_be_read_any_more_are_lost() -> None:
    harness = SettlerHarness()
    lane, summary = harness.queue.lane((message().attributes.source, None)), LaneSummary(1)
    summary.count = 2
    summary.records += bytes(16)
    harness.settler.lost(lane, summary)
    assert harness.queue.stats.outcomes == {(Outcome.DEAD_LETTERED, UCode.DATA_LOSS): 2}
    assert [outcome for outcome, _ in harness.observer.records] == [Outcome.DEAD_LETTERED]


def test_a_failed_message_is_counted_traced_told_and_acknowledged() -> None:
    harness = SettlerHarness()
    delivery = harness.accept(message())
    delivery.lane.drop(delivery)
    received, uuid, key = delivery.received, delivery.message.id, key_of(delivery.message)
    harness.settler.fail(delivery, EXPIRED)
    assert harness.queue.stats.outcomes == {(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED): 1}
    assert (harness.queue.messages, harness.queue.bytes) == (0, 0)
    assert harness.observer.records == [(Outcome.EXPIRED, uuid)]
    assert [(letter.route, letter.status.message) for letter in harness.letters()] == [("up", EXPIRED.text)]
    assert acknowledged(received)
    assert harness.seen.young[key] is None
    assert is_forgotten(delivery)


def test_with_every_tick_sources_are_told_that_have_waited_too_long_for_a_commit(tmp_path: Path) -> None:
    with journaled(tmp_path / "journal.db") as held:
        harness = SettlerHarness(held)
        received = MemoryReceived(message())
        held.custody.letter(letter(held.journal.number(), 1), received)
        harness.seen.release(received)
        held.clock.advance(900)
        harness.settler.tick(held.clock.s)
        assert not received.acknowledged
        held.clock.advance(200)
        harness.settler.tick(held.clock.s)
        assert received.acknowledged


def question(priority: UPriority = UPriority.CS4) -> UMessage:
    return request(START_MS, APP, METHOD, 1000, b"?", Options(priority=priority))


def fail_unrouted(harness: SettlerHarness, *messages: UMessage) -> None:
    for each in messages:
        harness.settler.fail_unrouted(harness.arrived(each), "vehicle", RouteStats(), EXPIRED)


def fail(harness: SettlerHarness, delivery: Delivery) -> None:
    delivery.lane.drop(delivery)
    harness.settler.fail(delivery, EXPIRED)


def test_the_echo_of_a_notice_is_known() -> None:
    harness = SettlerHarness()
    fail_unrouted(harness, message())
    (letter,) = harness.notice_queue("dead-letter/vehicle").waiting()
    assert key_of(letter.message) in harness.seen


def test_a_notice_that_has_to_go_itself_at_the_bound_is_counted_and_no_notice_tells_of_it() -> None:
    harness = SettlerHarness(endpoints=("cloud",), most_notices=1)
    fail(harness, harness.accept(question(UPriority.CS6)))
    fail(harness, harness.accept(question(UPriority.CS4)))
    queue = harness.notice_queue("rpc-error/vehicle")
    assert [answer.attributes.priority for answer in harness.answers()] == [UPriority.CS6]
    assert queue.stats.outcomes == {(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED): 1}
    assert harness.notices.made == 2


def test_notices_about_what_was_never_accepted_push_out_only_each_other() -> None:
    harness = SettlerHarness(most_notices=2)
    fail_unrouted(harness, question(UPriority.CS6), question(UPriority.CS6))
    fail(harness, harness.accept(question()))
    fail_unrouted(harness, *(question(UPriority.CS6) for _ in range(10)))
    fail(harness, harness.accept(question()))
    fail_unrouted(harness, question(UPriority.CS6))
    assert [letter.route for letter in harness.letters()] == ["up", "up"]
    assert [answer.attributes.priority for answer in harness.answers()] == [UPriority.CS4, UPriority.CS4]


@pytest.mark.parametrize(("failing", "event"), SAID)
def test_only_what_becomes_a_dead_letter_is_said_to_be_one(
    failing: UMessage, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = SettlerHarness()
    fail(harness, harness.accept(failing))
    assert [record.getMessage().split()[0] for record in caplog.records] == [event]
    assert len(harness.letters()) == (event == "message_dead_lettered")


def test_a_notice_that_fails_is_not_said_to_be_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    harness = SettlerHarness(endpoints=("cloud",))
    fail_unrouted(harness, question())
    caplog.clear()
    (answer,) = harness.notice_queue("rpc-error/vehicle").waiting()
    fail(harness, answer)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["message_given_up"]


# messages whose payload is only in the journal


@pytest.fixture
def spilled(tmp_path: Path) -> Iterator[tuple[SettlerHarness, Delivery]]:
    """A message of which memory has no payload."""
    with journaled(tmp_path / "journal.db", memory_bytes=OVERHEAD_BYTES) as held:
        harness = SettlerHarness(held)
        delivery = harness.accept(message(payload=b"precious"))
        held.write()
        assert delivery.spilled
        yield harness, delivery


def test_the_payload_of_a_message_that_nobody_is_told_of_is_not_fetched(
    spilled: tuple[SettlerHarness, Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, delivery = spilled
    read: list[int] = []
    monkeypatch.setattr(harness.held.journal, "row_body", read.append)
    delivery.lane.drop(delivery)
    harness.settler.unheard(delivery)
    assert read == []
    assert harness.custody.payloads.spilled == 0


def test_a_message_whose_payload_is_lost_fails_for_that_reason(spilled: tuple[SettlerHarness, Delivery]) -> None:
    harness, delivery = spilled
    execute(harness.held.journal.path, "UPDATE rows SET body = ?", b"?")
    fail(harness, delivery)
    assert harness.queue.stats.outcomes == {(Outcome.DEAD_LETTERED, UCode.DATA_LOSS): 1}
    assert [letter.status.code for letter in harness.letters()] == [int(UCode.DATA_LOSS)]


def test_if_the_journal_cannot_be_read_now_the_notice_goes_without_payload(
    spilled: tuple[SettlerHarness, Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(number: int) -> bytes:
        raise JournalError("the disk cannot be read")

    harness, delivery = spilled
    monkeypatch.setattr(harness.held.journal, "row_body", unreadable)
    fail(harness, delivery)
    assert [letter.message.payload for letter in harness.letters()] == [b""]
    assert harness.queue.stats.outcomes == {(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED): 1}
