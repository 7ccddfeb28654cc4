"""Custody of more payload than memory may have: payloads of waiting messages that are only in the journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.delivery.lanes.lane import Delivery
from streamer.journal.entries import JournalError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import OVERHEAD_BYTES
from tests.unit.delivery.custody_harness import CustodyHarness, journaled
from tests.unit.delivery.messages import NOW_MS, message
from tests.unit.journal.harness import execute


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CustodyHarness]:
    """Memory has room for one message."""
    with journaled(tmp_path / "journal.db", memory_bytes=OVERHEAD_BYTES + 100) as harness:
        yield harness


def written(harness: CustodyHarness, *payloads: bytes) -> list[Delivery]:
    """Messages in the journal, one flow each."""
    deliveries = []
    for flow, payload in enumerate(payloads):
        deliveries.append(harness.accept(message(flow, payload=payload)))
        harness.write()
    return deliveries


def test_payloads_beyond_the_bound_are_only_in_the_journal(harness: CustodyHarness) -> None:
    first, second = written(harness, b"1", b"2")
    assert (first.spilled, first.message.payload) == (False, b"1")
    assert (second.spilled, second.message.payload, second.received.message.payload) == (True, None, None)
    assert (harness.custody.payloads.spilled, harness.custody.payloads.in_memory) == (1, first.size)


def test_a_payload_is_brought_back_as_it_was(harness: CustodyHarness) -> None:
    _, delivery = written(harness, b"1", b"2")
    assert harness.custody.payloads.load(delivery)
    assert (delivery.spilled, delivery.message.payload, delivery.received.message.payload) == (False, b"2", b"2")
    assert (harness.custody.payloads.spilled, harness.custody.payloads.in_memory) == (0, 2 * delivery.size)


def test_counts_return_to_nothing_when_all_is_settled(harness: CustodyHarness) -> None:
    for delivery in written(harness, b"1", b"2", b"3"):
        harness.settle(delivery)
    assert (harness.custody.payloads.spilled, harness.custody.payloads.in_memory) == (0, 0)


def test_a_message_without_payload_is_not_spilled(harness: CustodyHarness) -> None:
    _, empty = written(harness, b"1", b"")
    assert not empty.spilled


def test_what_is_in_flight_keeps_its_payload(harness: CustodyHarness) -> None:
    written(harness, b"1")
    delivery = harness.accept(message(1, payload=b"2"))
    delivery.lane.take(1, NOW_MS, 0.0, [], [])
    harness.write()
    assert (delivery.journaled, delivery.spilled) == (True, False)


def test_what_has_two_destinations_keeps_its_payload_for_the_other(harness: CustodyHarness) -> None:
    written(harness, b"1")
    shared = MemoryReceived(message(1, payload=b"2"))
    shared.holders = 2
    delivery = harness.accept(shared.message, received=shared)
    harness.clock.advance(50)
    harness.write()
    assert (delivery.journaled, delivery.spilled) == (True, False)


def test_a_restored_message_is_in_the_journal_already_and_counts_towards_memory(harness: CustodyHarness) -> None:
    first, second = (harness.accept(message(flow, payload=b"x"), watch=False) for flow in (0, 1))
    harness.custody.restored(first)
    harness.custody.restored(second)
    assert (first.journaled, first.spilled, second.journaled, second.spilled) == (True, False, True, True)
    assert harness.custody.payloads.in_memory == first.size
    assert harness.due == []


def test_a_payload_that_is_damaged_is_lost_and_said_so(harness: CustodyHarness, caplog: pytest.LogCaptureFixture) -> None:
    _, delivery = written(harness, b"1", b"2")
    execute(harness.journal.path, "UPDATE rows SET body = ? WHERE number = ?", b"?", delivery.seq)
    assert not harness.custody.payloads.load(delivery)
    assert delivery.spilled
    assert [record.getMessage().split()[0] for record in caplog.records if record.name == "ustreamer.custody"] == [
        "payload_lost"
    ]


def test_a_journal_that_cannot_be_read_now_loses_nothing(harness: CustodyHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(number: int) -> bytes:
        raise JournalError("the disk cannot be read")

    _, delivery = written(harness, b"1", b"2")
    with monkeypatch.context() as patched:
        patched.setattr(harness.journal, "row_body", unreadable)
        with pytest.raises(JournalError):
            harness.custody.payloads.load(delivery)
    assert delivery.spilled
    assert harness.custody.payloads.load(delivery)
