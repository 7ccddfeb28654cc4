"""Custody with a journal: messages without an outcome at the flush are written, and acknowledged once on disk."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from streamer.delivery.custody import custody as custody_module
from streamer.delivery.custody import new_letters
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES, Letter
from streamer.journal.journal import Journal, JournalState
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.uri import everything_at
from tests.unit.delivery.custody_harness import CustodyHarness, acknowledged, journaled
from tests.unit.delivery.messages import message
from tests.unit.journal.harness import BOUNDS, ManualLoop, execute, letter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_the_source_is_told_when_the_message_is_on_the_disk_and_not_before(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        harness.flush()
        assert not acknowledged(delivery.received)
        harness.commit()
        assert acknowledged(delivery.received)
        assert harness.in_file("rows") == [delivery.seq]


def test_a_row_says_where_the_message_came_from_and_how_it_was_to_leave(path: Path) -> None:
    with journaled(path) as harness:
        came = message(payload=b"x", ttl=5000)
        left = replace(came, attributes=replace(came.attributes, sink=everything_at("fleet")))
        delivery = harness.accept(left, received=MemoryReceived(came))
        delivery.attempts = 3
        harness.clock.advance(50)
        harness.write()
        columns = ("route", "source", "target", "entered_ms", "attempts", "outgoing")
        row = [harness.in_file("rows", column)[0] for column in columns]
        assert row == ["up", "vehicle", "cloud", delivery.entered_ms, 3, "fleet"]
        assert codec.unpack(harness.journal.row_body(delivery.seq)) == came


def test_what_is_settled_before_the_flush_never_touches_the_disk(path: Path) -> None:
    with journaled(path) as harness:
        harness.settle(harness.accept(message()))
        harness.flush()
        assert not harness.journal.is_busy
        assert (harness.journal.commits, harness.due) == (0, [])


def test_a_row_goes_when_its_message_has_its_outcome(path: Path) -> None:
    with journaled(path) as harness:
        first, second = harness.accept(message()), harness.accept(message(1))
        harness.write()
        assert harness.custody.payloads.in_memory == first.size + second.size
        harness.settle(first)
        harness.write()
        assert harness.in_file("rows") == [second.seq]
        assert harness.custody.payloads.in_memory == second.size


def test_a_message_that_is_settled_while_it_is_written_leaves_with_the_next_transaction(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        received = delivery.received
        harness.flush()
        harness.settle(delivery)
        assert acknowledged(received)
        harness.flush()
        harness.commit()
        harness.write()
        assert harness.in_file("rows") == []
        assert harness.custody.payloads.in_memory == 0


def test_what_comes_while_a_commit_hangs_is_written_after_it(path: Path) -> None:
    with journaled(path) as harness:
        first = harness.accept(message())
        harness.flush()
        second = harness.accept(message())
        harness.flush()
        assert harness.due == []
        harness.commit()
        assert not acknowledged(second.received)
        harness.write()
        assert acknowledged(second.received)
        assert harness.in_file("rows") == [first.seq, second.seq]
        assert harness.journal.commits == 2


def test_what_is_settled_while_a_commit_hangs_for_long_is_not_held_on_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custody_module, "_PURGE_AT", 10)
    with journaled(path) as harness:
        harness.custody._purge_recent_at = 10
        harness.accept(message())
        harness.flush()
        for _ in range(100):
            harness.settle(harness.accept(message()))
            harness.flush()
            assert len(harness.custody._recent) <= 11


def test_a_message_with_two_destinations_is_acknowledged_once_and_written_for_each(path: Path) -> None:
    with journaled(path) as harness:
        shared = MemoryReceived(message())
        shared.holders = 2
        deliveries = [harness.accept(shared.message, queue, shared) for queue in (harness.queue, harness.new_queue("side"))]
        harness.clock.advance(50)
        harness.write()
        assert harness.in_file("rows") == [delivery.seq for delivery in deliveries]
        assert shared.acknowledged


# letters


def keep(harness: CustodyHarness, letter: Letter) -> MemoryReceived:
    """Write the dead letter of a message whose source retransmits, as the settler does."""
    received = MemoryReceived(message())
    harness.custody.letter(letter, received)
    harness.seen.release(received)
    return received


def test_the_source_of_a_failed_message_is_told_when_the_letter_is_on_the_disk(path: Path) -> None:
    with journaled(path) as harness:
        first = keep(harness, letter(harness.journal.number(), 1))
        harness.custody.flush()
        second = keep(harness, letter(harness.journal.number(), 2))
        assert not first.acknowledged
        harness.commit()
        assert (first.acknowledged, second.acknowledged) == (True, False)
        harness.write()
        assert second.acknowledged


def test_of_more_failed_messages_than_a_bound_the_oldest_sources_wait_no_longer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_letters, "_MAX_SOURCES", 2)
    with journaled(path) as harness:
        kept = [keep(harness, letter(harness.journal.number(), uuid)) for uuid in range(4)]
        assert [received.acknowledged for received in kept] == [True, True, False, False]
        monkeypatch.setattr(new_letters, "_MAX_SOURCE_BYTES", message().size)
        kept.append(keep(harness, letter(harness.journal.number(), 5)))
        assert [received.acknowledged for received in kept] == [True] * 4 + [False]
        harness.write()
        assert kept[-1].acknowledged


def test_no_source_waits_for_a_letter_while_the_disk_takes_none(path: Path) -> None:
    """MQTT is acknowledged in order, so one message would hold up all others of its endpoint."""
    journal = Journal(path, 1 << 30, BOUNDS, ManualLoop().post)  # never started: nothing but the test changes its state
    harness = CustodyHarness(journal)
    journal._state = JournalState.OK
    early = keep(harness, letter(1, 1))
    harness.custody.sources.tick(harness.clock.s)
    assert not early.acknowledged
    journal._state = JournalState.FAILING
    late = keep(harness, letter(2, 2))
    assert (early.acknowledged, late.acknowledged) == (False, True)
    harness.custody.sources.tick(harness.clock.s)
    assert early.acknowledged
    assert harness.custody.has_many_letters(2)


def test_no_source_waits_long_for_a_commit_that_hangs(path: Path) -> None:
    with journaled(path) as harness:
        first = keep(harness, letter(harness.journal.number(), 1))
        harness.flush()
        assert harness.journal.is_busy
        harness.clock.advance(1100)
        second = keep(harness, letter(harness.journal.number(), 2))
        harness.custody.sources.tick(harness.clock.s)
        assert (first.acknowledged, second.acknowledged) == (True, True)
        harness.commit()
        third = keep(harness, letter(harness.journal.number(), 3))
        harness.custody.sources.tick(harness.clock.s)
        assert not third.acknowledged
        harness.write()
        assert third.acknowledged
        assert len(harness.in_file("letters")) == 3


def test_letters_are_written_and_deleted_and_stay_when_they_could_not_be_sent(path: Path) -> None:
    with journaled(path) as harness:
        for uuid in (1, 2):
            keep(harness, letter(harness.journal.number(), uuid))
        harness.write()
        first, second = harness.in_file("letters")
        assert isinstance(first, int)
        assert isinstance(second, int)
        execute(path, "UPDATE letters SET redrive = 1")
        harness.custody.letter_done(first)
        harness.custody.letter_kept(second)
        harness.write()
        assert (harness.in_file("letters"), harness.in_file("letters", "redrive")) == ([second], [None])


def test_a_row_of_an_earlier_process_goes_when_it_is_forgotten(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        harness.write()
        harness.custody.forget_row(delivery.seq)
        harness.write()
        assert harness.in_file("rows") == []


def test_the_oldest_letters_go_while_the_disk_takes_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_letters, "_MAX_LETTERS", 2)
    with journaled(path) as harness:
        numbers = [harness.journal.number() for _ in range(3)]
        for number in numbers:
            keep(harness, letter(number, number))
        harness.write()
        assert harness.in_file("letters") == numbers[1:]
        assert harness.custody.letters_dropped == 1


def test_letters_that_anybody_can_cause_push_nothing_out_while_the_disk_takes_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_letters, "_MAX_LETTERS", 3)
    monkeypatch.setattr(new_letters, "_MAX_REJECTED_BYTES", 2 * (ENTRY_BYTES + 100))
    with journaled(path) as harness:
        genuine = [harness.journal.number() for _ in range(3)]
        for number in genuine:
            keep(harness, letter(number, number))
        forged = [harness.journal.number() for _ in range(5)]
        for number in forged:
            keep(harness, letter(number, number, b"x" * 100, outcome="rejected"))
        harness.write()
        assert harness.in_file("letters") == genuine + forged[:2]
        assert harness.custody.letters_dropped == 3
        keep(harness, letter(late := harness.journal.number(), late, b"x" * 100, outcome="rejected"))
        harness.write()
        assert late in harness.in_file("letters")


# the end


async def test_until_written_waits_for_the_commit_and_for_what_came_after_its_begin(path: Path) -> None:
    with journaled(path) as harness:
        first = harness.accept(message())
        writing = asyncio.ensure_future(harness.custody.until_written())
        await asyncio.sleep(0)
        harness.flush()
        await asyncio.sleep(0)
        assert not writing.done()
        second = harness.accept(message())
        harness.commit()
        await asyncio.sleep(0)
        assert acknowledged(first.received)
        assert not writing.done()
        harness.write()
        await asyncio.wait_for(writing, 10)
        assert acknowledged(second.received)


async def test_until_written_does_not_wait_for_what_the_journal_has_no_room_for(path: Path) -> None:
    with journaled(path, max_bytes=ENTRY_BYTES) as harness:
        delivery = harness.accept(message())
        harness.flush()
        await asyncio.wait_for(asyncio.gather(harness.custody.until_written(), soon(harness)), 10)
        assert not acknowledged(delivery.received)


async def soon(harness: CustodyHarness) -> None:
    await asyncio.sleep(0)
    harness.flush()


def test_sources_of_what_was_not_stored_when_its_endpoint_went_are_told_with_the_next_transaction(path: Path) -> None:
    with journaled(path) as harness:
        harness.accept(message())
        harness.flush()  # its commit hangs
        sent = harness.accept(message(1), watch=False)
        came, lane = sent.received, sent.lane
        harness.send_unconfirmed(lane)
        harness.store.give_back(harness.clock.s)
        assert harness.store.refill(lane, whole=True) == []
        harness.custody.remove_store(harness.store)
        assert came.holders == 1
        harness.commit()
        harness.write()
        assert came.holders == 0
        assert harness.custody._stores == []


@pytest.mark.parametrize("is_back", [False, True], ids=["gone", "there again, with a store of its own"])
def test_a_batch_that_is_being_written_when_its_endpoint_goes_is_given_up(path: Path, is_back: bool) -> None:
    with journaled(path) as harness:
        sent, waits = harness.accept(message()), harness.accept(message(1), harness.new_queue("other"))
        came, other = sent.received, waits.received
        harness.send_unconfirmed(sent.lane)
        harness.flush()
        harness.store.take_all(harness.clock.s)
        harness.custody.remove_store(harness.store)
        if is_back:
            harness.custody.add_store(UnconfirmedStore("cloud", 10.0, 1 << 20, harness.custody, harness.seen))
        harness.commit()
        assert acknowledged(other)
        harness.write()
        assert (harness.in_file("segments"), harness.in_file("rows"), came.holders) == ([], [waits.seq], 0)
