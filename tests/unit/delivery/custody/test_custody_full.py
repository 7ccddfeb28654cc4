"""Custody when the journal is full: which messages wait unacknowledged, which are evicted, and what room changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.delivery.lanes.lane import Delivery
from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.unit.delivery.custody_harness import CustodyHarness, FleetingReceived, acknowledged, journaled
from tests.unit.delivery.messages import NOW_MS, message

FULL = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the journal is full")
EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full journal")
ROOM_FOR_TWO = 2500


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CustodyHarness]:
    """A journal that has room for two messages."""
    with journaled(tmp_path / "journal.db", max_bytes=ROOM_FOR_TWO) as harness:
        yield harness


def fill(harness: CustodyHarness) -> list[Delivery]:
    """Two messages of other flows, which are in the journal."""
    filling = [harness.accept(message(flow, payload=b"x" * 500)) for flow in (8, 9)]
    harness.write()
    assert harness.in_file("rows") == [delivery.seq for delivery in filling]
    return filling


def accept_for_two(harness: CustodyHarness, shared: MemoryReceived, **second: object) -> list[Delivery]:
    """One message for two routes; the policy of the second has these keys."""
    shared.holders = 2
    queues = harness.queue, harness.new_queue("side", **second)
    return [harness.accept(shared.message, queue, shared) for queue in queues]


def test_what_there_is_no_room_for_stays_unacknowledged_until_there_is(harness: CustodyHarness) -> None:
    filling = fill(harness)
    delivery = harness.accept(message(payload=b"x" * 500))
    harness.write()
    assert not acknowledged(delivery.received)
    harness.settle(filling[0])
    harness.write()
    assert acknowledged(delivery.received)
    assert harness.in_file("rows") == [filling[1].seq, delivery.seq]


def test_nothing_is_tried_again_while_nothing_has_left_the_journal(harness: CustodyHarness) -> None:
    fill(harness)
    harness.accept(message(payload=b"x" * 500))
    harness.write()
    commits = harness.journal.commits
    harness.accept(message(1, payload=b"x" * 500))
    harness.write()
    assert (harness.journal.commits, harness.due) == (commits, [])


def test_a_later_message_of_the_same_lane_does_not_go_first(harness: CustodyHarness) -> None:
    filling = fill(harness)
    large, small, other = (
        harness.accept(message(0, payload=b"x" * 1000)),
        harness.accept(message(0)),
        harness.accept(message(1)),
    )
    harness.settle(filling[0])
    harness.write()
    assert [acknowledged(each.received) for each in (large, small, other)] == [False, False, True]
    later = harness.accept(message(0))
    harness.write()
    assert not acknowledged(later.received)
    harness.settle(filling[1])
    harness.settle(other)
    harness.write()
    assert [acknowledged(each.received) for each in (large, small, later)] == [True, True, True]


def test_what_is_delivered_while_it_waits_for_room_is_written_no_more(harness: CustodyHarness) -> None:
    filling = fill(harness)
    delivery = harness.accept(message(payload=b"x" * 500))
    harness.write()
    harness.settle(delivery)
    harness.settle(filling[0])
    harness.write()
    assert harness.in_file("rows") == [filling[1].seq]


def test_a_message_with_two_destinations_is_acknowledged_once_there_was_room_for_each(harness: CustodyHarness) -> None:
    (filling, other) = fill(harness)
    shared = MemoryReceived(message(payload=b"x" * 700))
    accept_for_two(harness, shared)
    harness.settle(filling)
    harness.clock.advance(50)
    harness.write()
    assert harness.in_file("rows") == [other.seq]  # with one of its own it would be a duplicate when it comes again
    assert not shared.acknowledged
    harness.settle(other)
    harness.write()
    assert len(harness.in_file("rows")) == 2
    assert shared.acknowledged


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "during a commit"])
def test_a_second_destination_has_room_once_the_first_has_its_outcome(harness: CustodyHarness, is_busy: bool) -> None:
    (filling, _) = fill(harness)
    shared = MemoryReceived(message(payload=b"x" * 700))
    first, second = accept_for_two(harness, shared)
    harness.settle(filling)
    harness.clock.advance(50)
    harness.write()
    if is_busy:
        harness.accept(message(1))
        harness.flush()
        assert harness.journal.is_busy
    harness.settle(first)
    harness.write()
    assert second.seq in harness.in_file("rows")
    assert shared.acknowledged


def test_what_only_we_have_is_written_for_as_many_destinations_as_there_is_room_for(harness: CustodyHarness) -> None:
    (filling, _) = fill(harness)
    accept_for_two(harness, FleetingReceived(message(payload=b"x" * 700)))
    harness.settle(filling)
    harness.write()
    assert len(harness.in_file("rows")) == 2


def test_what_has_room_is_not_given_up_for_a_destination_that_has_none(harness: CustodyHarness) -> None:
    (filling, _) = fill(harness)
    harness.accept(message(payload=b"x" * 2000))  # the rest of its flow waits behind it
    shared = MemoryReceived(message())
    accept_for_two(harness, shared, queue={"on_full": "reject"})
    harness.settle(filling)
    harness.clock.advance(50)
    harness.write()
    assert harness.owner.given_up == []
    assert not shared.acknowledged


def test_what_was_acknowledged_already_is_written_beyond_the_bound(harness: CustodyHarness) -> None:
    fill(harness)
    kept = MemoryReceived(message(payload=b"x" * 500))
    kept.is_acknowledged = True
    delivery = harness.accept(kept.message, received=kept)
    harness.clock.advance(50)
    harness.write()
    assert delivery.seq in harness.in_file("rows")


def test_a_batch_in_the_same_transaction_takes_room(harness: CustodyHarness) -> None:
    sent = harness.accept(message(payload=b"x" * 1500), watch=False)
    harness.send_unconfirmed(sent.lane)
    delivery = harness.accept(message(1, payload=b"x" * 500))
    harness.write()
    assert len(harness.in_file("segments")) == 1
    assert not acknowledged(delivery.received)


def test_the_bytes_of_a_row_are_those_of_its_body_and_no_more(harness: CustodyHarness) -> None:
    delivery = harness.accept(message(payload=b"x" * 100))
    body = codec.pack(delivery.message)
    harness.write()
    assert harness.journal.bytes == len(body) + ENTRY_BYTES


# where a full queue does not hold the source back


def test_with_reject_the_new_message_goes(harness: CustodyHarness) -> None:
    fill(harness)
    delivery = harness.accept(message(payload=b"x" * 500), harness.new_queue("side", queue={"on_full": "reject"}))
    harness.write()
    assert harness.owner.given_up == [(delivery, FULL)]


def test_with_evict_the_least_important_message_goes_for_the_new_one(harness: CustodyHarness) -> None:
    (filling, _) = fill(harness)
    queue = harness.new_queue("side", queue={"on_full": "evict"})
    important = harness.accept(message(1, level=3), queue, watch=False)
    least = harness.accept(message(2, level=0), queue, watch=False)
    new = harness.accept(message(0, level=2, payload=b"x" * 500), queue)
    harness.write()
    assert harness.owner.given_up == [(least, EVICTED)]
    assert [each.message.attributes.source for each in queue.waiting()] == [
        important.message.attributes.source,
        new.message.attributes.source,
    ]
    harness.settle(filling)
    harness.write()
    assert acknowledged(new.received)


def test_with_evict_the_new_message_goes_if_it_is_the_least_important(harness: CustodyHarness) -> None:
    fill(harness)
    queue = harness.new_queue("side", queue={"on_full": "evict"})
    harness.accept(message(1, level=3), queue, watch=False)
    new = harness.accept(message(0, level=2, payload=b"x" * 500), queue)
    harness.write()
    assert harness.owner.given_up == [(new, FULL)]


def test_what_is_in_flight_is_never_given_up_for_want_of_room(harness: CustodyHarness) -> None:
    fill(harness)
    delivery = harness.accept(message(payload=b"x" * 500), harness.new_queue("side", queue={"on_full": "reject"}))
    delivery.lane.take(1, NOW_MS, 0.0, [], [])
    harness.write()
    assert harness.owner.given_up == []
    assert not acknowledged(delivery.received)
