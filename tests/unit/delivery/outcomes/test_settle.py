"""Settling, where tests/flow does not show it: latencies, what a settled delivery still refers to, and lost messages."""

from pathlib import Path

from streamer.delivery.custody.unconfirmed_batch import LaneSummary
from streamer.delivery.lanes.lane import Delivery, DeliveryState
from streamer.delivery.seen import key_of
from streamer.delivery.stats import Histogram
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.clock import START_MS
from tests.unit.delivery.custody_harness import acknowledged, journaled
from tests.unit.delivery.messages import message
from tests.unit.delivery.settler_harness import SettlerHarness
from tests.unit.journal.harness import letter

EXPIRED = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed")


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
