"""Custody with a journal: what is written at the first flush, what waits for others, and when the next flush is."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.delivery.custody.custody import LATE_FLUSH_S, LAZY_COMMIT_S
from streamer.delivery.custody.flush_times import FLUSH_S
from streamer.transports.memory import MemoryReceived
from tests.unit.delivery.custody_harness import CustodyHarness, journaled
from tests.unit.delivery.messages import message

LAZY_FLUSHES = round(LAZY_COMMIT_S / LATE_FLUSH_S)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CustodyHarness]:
    with journaled(tmp_path / "journal.db") as harness:
        yield harness


def flush(harness: CustodyHarness) -> bool:
    """Do the next scheduled flush; return whether a transaction is being written."""
    harness.flush()
    return harness.journal.is_busy


def send(harness: CustodyHarness, count: int, is_kept_at_source: bool = True) -> list[MemoryReceived]:
    """Have messages arrive and be sent at once, to a network that does not confirm."""
    came = []
    for _ in range(count):
        received = MemoryReceived(message()) if is_kept_at_source else None
        delivery = harness.accept(message(), received=received)
        assert isinstance(delivery.received, MemoryReceived)
        came.append(delivery.received)
        harness.send_unconfirmed(delivery.lane)
    return came


def test_what_was_delivered_in_time_is_not_written_with_what_was_not(harness: CustodyHarness) -> None:
    late = harness.accept(message())
    harness.clock.advance(7)
    young = harness.accept(message(1))
    assert flush(harness)
    harness.settle(young)
    harness.write()
    assert harness.in_file("rows") == [late.seq]


def test_a_young_message_is_written_once_it_is_old_enough(harness: CustodyHarness) -> None:
    harness.settle(harness.accept(message(1)))
    harness.clock.advance(7)
    young = harness.accept(message())
    assert not flush(harness)
    assert flush(harness)
    harness.commit()
    assert harness.in_file("rows") == [young.seq]


def test_batches_wait_for_others_while_their_source_goes_on_sending(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    started_s = harness.clock.monotonic_s()
    came = send(harness, 1)
    flushes = 1
    while not flush(harness):
        came += send(harness, 1)
        flushes += 1
    assert flushes == LAZY_FLUSHES
    assert harness.clock.monotonic_s() == pytest.approx(started_s + LAZY_COMMIT_S)
    harness.commit()
    assert all(each.acknowledged for each in came)
    assert harness.journal.commits == 1


def test_nothing_is_looked_at_again_once_everything_has_its_outcome(harness: CustodyHarness) -> None:
    received = MemoryReceived(message())
    harness.settle(harness.accept(received.message, received=received))
    harness.settle(harness.accept(message(1)))
    while harness.due:
        assert not flush(harness)
    assert harness.journal.commits == 0


async def test_flushes_that_leave_all_for_later_do_not_wake_the_clock(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    turned = asyncio.ensure_future(harness.custody.until_flushed(60))
    await asyncio.sleep(0)
    harness.settle(harness.accept(message(1)))
    send(harness, 1)
    while not flush(harness):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not turned.done()
    assert await asyncio.wait_for(turned, 10)


async def test_a_message_that_is_not_delivered_at_once_wakes_the_clock(harness: CustodyHarness) -> None:
    turned = asyncio.ensure_future(harness.custody.until_flushed(60))
    await asyncio.sleep(0)
    harness.accept(message())
    assert flush(harness)
    assert await asyncio.wait_for(turned, 10)


def test_a_batch_is_written_in_the_next_cycle_of_the_loop_once_its_source_waits(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    started_s = harness.clock.monotonic_s()
    (received,) = send(harness, 1)
    harness.custody.expedite()
    harness.custody.expedite()
    assert flush(harness)
    assert harness.clock.monotonic_s() == started_s
    harness.commit()
    assert received.acknowledged


def test_a_source_that_waits_already_waits_for_no_flush_once_its_message_is_sent(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    started_s = harness.clock.monotonic_s()
    harness.custody.expedite()
    (received,) = send(harness, 1)
    assert flush(harness)
    assert harness.clock.monotonic_s() == started_s
    harness.commit()
    assert received.acknowledged
    send(harness, 1)
    assert not flush(harness)  # the haste was for the first


def test_a_batch_of_a_source_that_may_be_waiting_is_written_at_the_next_flush(harness: CustodyHarness) -> None:
    (received,) = send(harness, 1)
    assert [after_s for after_s, _ in harness.due] == [FLUSH_S, LATE_FLUSH_S]
    assert flush(harness)
    harness.commit()
    assert received.acknowledged


def test_a_batch_is_written_when_a_source_may_be_waiting_for_it(harness: CustodyHarness) -> None:
    asked: list[float] = []

    def has_waiting_source(now_s: float) -> bool:
        asked.append(now_s)
        return len(asked) == 3

    harness.custody.has_waiting_source = has_waiting_source
    (received,) = send(harness, 1)
    assert [flush(harness) for _ in range(2)] == [False, True]
    harness.commit()
    assert received.acknowledged
    assert asked[-1] == harness.clock.monotonic_s()


def test_sources_are_not_asked_about_what_is_only_deleted(harness: CustodyHarness) -> None:
    first = harness.accept(message())
    harness.write()
    harness.settle(first)
    assert [flush(harness) for _ in range(LAZY_FLUSHES)] == [False] * (LAZY_FLUSHES - 1) + [True]
    harness.write()
    assert harness.in_file("rows") == []


def test_a_batch_that_nobody_else_has_is_written_at_the_next_flush(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    started_s = harness.clock.monotonic_s()
    send(harness, 1)
    harness.clock.advance(8)
    send(harness, 1, is_kept_at_source=False)
    assert flush(harness)
    assert harness.clock.monotonic_s() == pytest.approx(started_s + 0.008 + FLUSH_S)
    harness.write()


def test_a_batch_that_nobody_else_has_is_written_at_the_next_flush_though_it_left_at_once(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    harness.send_unconfirmed(harness.accept(message(), watch=False).lane)
    assert min(after_s for after_s, _ in harness.due) == FLUSH_S
    harness.write()


def test_deletions_wait_and_leave_with_the_next_transaction(harness: CustodyHarness) -> None:
    first = harness.accept(message())
    harness.write()
    harness.settle(first)
    assert not flush(harness)
    harness.accept(message(1))
    assert flush(harness)
    harness.commit()
    assert len(harness.in_file("rows")) == 1
    assert harness.journal.commits == 2


def test_deletions_alone_do_not_wait_for_ever(harness: CustodyHarness) -> None:
    first = harness.accept(message())
    harness.write()
    harness.settle(first)
    harness.write()
    assert harness.in_file("rows") == []


def test_at_a_stop_nothing_waits(harness: CustodyHarness) -> None:
    harness.custody.late_flush_s = 0.0
    (received,) = send(harness, 1)
    assert [after_s for after_s, _ in harness.due] == [FLUSH_S]
    assert flush(harness)
    harness.commit()
    assert received.acknowledged


def test_batches_wait_for_others_beside_messages_that_nobody_else_has(harness: CustodyHarness) -> None:
    harness.custody.has_waiting_source = lambda now_s: False
    harness.accept(message(1))
    harness.clock.advance(8)
    young = harness.accept(message(2))
    assert flush(harness)
    harness.commit()
    harness.clock.advance(5)
    send(harness, 1)
    harness.settle(young)
    assert not flush(harness)
    harness.write()
