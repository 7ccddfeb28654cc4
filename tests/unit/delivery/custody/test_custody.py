"""Custody: when sources are acknowledged, what a journal gets at which flush, in which batches, and within which bounds."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.delivery.custody.custody import LATE_FLUSH_S, LAZY_COMMIT_S
from streamer.delivery.custody.flush_times import FLUSH_S
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.transports.memory import MemoryReceived
from tests.unit.delivery.custody_harness import ROOMY, CustodyHarness, FleetingReceived, acknowledged, journaled
from tests.unit.delivery.messages import message

LAZY_FLUSHES = round(LAZY_COMMIT_S / LATE_FLUSH_S)


def kept_by_its_source() -> MemoryReceived:
    return MemoryReceived(message())


def test_what_only_we_have_is_taken_at_the_flush_after_its_arrival() -> None:
    harness = CustodyHarness()
    received = harness.accept(message()).received
    assert [after_s for after_s, _ in harness.due] == [FLUSH_S]
    assert not acknowledged(received)
    harness.flush()
    assert acknowledged(received)


def test_one_flush_is_due_at_a_time() -> None:
    harness = CustodyHarness()
    harness.accept(message())
    harness.accept(message())
    assert len(harness.due) == 1
    harness.flush()
    assert harness.due == []
    harness.accept(message())
    assert len(harness.due) == 1


def test_custody_of_what_its_source_retransmits_is_taken_at_the_late_flush_and_not_before() -> None:
    harness = CustodyHarness()
    received = kept_by_its_source()
    harness.accept(received.message, received=received)
    assert [after_s for after_s, _ in harness.due] == [LATE_FLUSH_S]
    harness.accept(message())
    harness.flush()  # for the other one
    assert not received.acknowledged
    harness.flush()
    assert received.acknowledged
    assert harness.due == []


def test_the_time_until_the_late_flush_is_counted_for_each_message_from_its_arrival() -> None:
    harness = CustodyHarness()
    started_s = harness.clock.monotonic_s()
    first, second = kept_by_its_source(), kept_by_its_source()
    harness.accept(first.message, received=first)
    harness.clock.advance(30)
    harness.accept(second.message, received=second)
    harness.flush()
    assert (first.acknowledged, second.acknowledged) == (True, False)
    harness.flush()
    assert second.acknowledged
    assert harness.clock.monotonic_s() == pytest.approx(started_s + 0.08)


def test_what_was_settled_before_the_flush_is_not_taken() -> None:
    harness = CustodyHarness()
    delivery = harness.accept(message())
    received = delivery.received
    harness.settle(delivery)
    harness.flush()
    assert not received.is_acknowledged
    assert harness.due == []


def test_nobody_waits_for_a_message_that_its_source_retransmits_once_it_is_settled() -> None:
    harness = CustodyHarness()
    received = kept_by_its_source()
    harness.settle(harness.accept(received.message, received=received))
    harness.flush()
    assert harness.due == []


def test_a_copy_that_shares_a_message_is_acknowledged_with_it() -> None:
    harness = CustodyHarness()
    first, copy = kept_by_its_source(), kept_by_its_source()
    harness.accept(first.message, received=first)
    first.attach(copy)
    harness.clock.advance(50)
    harness.flush()
    assert copy.acknowledged


def test_what_left_unconfirmed_is_acknowledged_at_the_flush_and_stays_in_memory() -> None:
    harness = CustodyHarness()
    delivery = harness.accept(message(payload=b"x"))
    received, lane = delivery.received, delivery.lane
    harness.send_unconfirmed(lane)
    harness.flush()
    assert acknowledged(received)
    assert list(harness.seen.young.values()) == [None]
    harness.store.redeliver(lane, harness.clock.s)
    assert harness.store.refill(lane) == []
    assert [each.message.payload for each in lane.waiting()] == [b"x"]


@pytest.mark.parametrize("received", [MemoryReceived, FleetingReceived], ids=["its source keeps it", "only we have it"])
@pytest.mark.parametrize("count", [1, 3])
def test_what_left_unconfirmed_is_acknowledged_at_the_next_flush_though_nobody_waits(
    received: type[MemoryReceived], count: int
) -> None:
    """Without a journal there is no transaction that could collect more changes."""
    harness = CustodyHarness()
    harness.custody.has_waiting_source = lambda now_s: False
    batch = [received(message()) for _ in range(count)]
    for each in batch:
        harness.send_unconfirmed(harness.accept(each.message, received=each, watch=False).lane)
    assert min(after_s for after_s, _ in harness.due) == FLUSH_S
    harness.flush()
    assert all(each.acknowledged for each in batch)


async def test_until_written_waits_for_what_its_source_retransmits_without_delay() -> None:
    harness = CustodyHarness()
    received = kept_by_its_source()
    harness.accept(received.message, received=received)
    writing = asyncio.ensure_future(harness.custody.until_written())
    await asyncio.sleep(0)
    assert not writing.done()
    harness.flush()
    await asyncio.wait_for(writing, 10)
    assert received.acknowledged


def add(harness: CustodyHarness, name: str, unconfirmed_s: float = 10.0) -> UnconfirmedStore:
    store = UnconfirmedStore(name, unconfirmed_s, ROOMY, harness.custody, harness.seen)
    harness.custody.add_store(store)
    return store


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_endpoints_together_have_half_of_the_journal(tmp_path: Path, count: int) -> None:
    with journaled(tmp_path / "journal.db") as harness:
        stores = [harness.store, *(add(harness, f"vehicle{number}") for number in range(1, count))]
        assert {store.max_bytes for store in stores} == {harness.journal.max_bytes // 2 // count}


def test_networks_that_confirm_need_none_and_what_goes_is_divided(tmp_path: Path) -> None:
    with journaled(tmp_path / "journal.db") as harness:
        half = harness.journal.max_bytes // 2
        add(harness, "broker", unconfirmed_s=0.0)
        assert harness.store.max_bytes == half
        other = add(harness, "vehicle")
        assert (harness.store.max_bytes, other.max_bytes) == (half // 2, half // 2)
        harness.custody.remove_store(other)
        assert harness.store.max_bytes == half


def test_without_a_journal_each_keeps_its_own_bound() -> None:
    harness = CustodyHarness()
    other = add(harness, "vehicle")
    assert (harness.store.max_bytes, other.max_bytes) == (ROOMY, ROOMY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_a_batch_that_is_closed_while_a_commit_hangs_is_stored_after_it(path: Path) -> None:
    with journaled(path) as harness:
        harness.accept(message())
        harness.flush()
        delivery = harness.accept(message(1), watch=False)
        harness.send_unconfirmed(delivery.lane)
        harness.flush()
        harness.commit()
        harness.write()
        assert len(harness.in_file("segments")) == 1


def test_an_unconfirmed_batch_is_stored_and_then_its_sources_are_told(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        received = delivery.received
        harness.send_unconfirmed(delivery.lane)
        harness.flush()
        assert not acknowledged(received)
        harness.commit()
        assert acknowledged(received)
        assert list(harness.seen.young.values()) == [None]
        assert (harness.in_file("rows"), len(harness.in_file("segments"))) == ([], 1)


def test_a_row_that_leaves_unconfirmed_goes_in_the_transaction_in_which_its_batch_comes(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        harness.write()
        harness.send_unconfirmed(delivery.lane)
        harness.write()
        assert harness.journal.commits == 2
        assert (harness.in_file("rows"), len(harness.in_file("segments"))) == ([], 1)
        assert harness.custody.payloads.in_memory == 0


def test_a_batch_goes_in_the_transaction_in_which_its_messages_come_back_as_rows(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        lane, seq = delivery.lane, delivery.seq
        harness.send_unconfirmed(lane)
        harness.write()
        harness.store.redeliver(lane, harness.clock.s)
        assert harness.store.refill(lane) == []
        harness.write()
        assert harness.journal.commits == 2
        assert (harness.in_file("rows"), harness.in_file("segments")) == ([seq], [])


def test_a_batch_that_came_back_before_it_was_stored_is_written_as_rows_only(path: Path) -> None:
    with journaled(path) as harness:
        delivery = harness.accept(message())
        lane, seq, received = delivery.lane, delivery.seq, delivery.received
        harness.send_unconfirmed(lane)
        harness.store.redeliver(lane, harness.clock.s)
        assert harness.store.refill(lane) == []
        harness.write()
        assert (harness.in_file("rows"), harness.in_file("segments")) == ([seq], [])
        assert acknowledged(received)


def test_a_batch_is_read_from_the_journal_while_it_is_there(path: Path) -> None:
    with journaled(path) as harness:
        lane = harness.accept(message(payload=b"x")).lane
        harness.send_unconfirmed(lane)
        harness.write()
        (number,) = harness.in_file("segments")
        assert isinstance(number, int)
        assert b"x" in harness.custody.batch_body(number)
        harness.custody.forget_batch(number)
        harness.write()
        assert harness.in_file("segments") == []


@pytest.mark.parametrize("others", [0, 1], ids=["all of it", "one message of two"])
def test_a_batch_that_came_back_and_was_settled_before_it_was_stored_is_acknowledged(path: Path, others: int) -> None:
    with journaled(path) as harness:
        sent = [harness.accept(message(flow)) for flow in range(1 + others)]
        came, lanes = [each.received for each in sent], [each.lane for each in sent]
        for lane in lanes:
            harness.send_unconfirmed(lane)
        harness.store.redeliver(lanes[0], harness.clock.s)
        assert harness.store.refill(lanes[0]) == []
        harness.settle(lanes[0].waiting()[0])
        harness.write()
        assert all(acknowledged(each) for each in came)
        assert len(harness.in_file("segments")) == others
        assert list(harness.seen.young.values()) == [None] * len(came)


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
