"""Custody without a journal: when sources are acknowledged."""

import asyncio

import pytest

from streamer.delivery.custody.custody import LATE_FLUSH_S
from streamer.delivery.custody.flush_times import FLUSH_S
from streamer.transports.memory import MemoryReceived
from tests.unit.delivery.custody_harness import CustodyHarness, FleetingReceived, acknowledged
from tests.unit.delivery.messages import message


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
