"""A batch of an earlier process is taken over from the journal, and all of it is to be sent again."""

import pytest

from streamer.delivery.lanes.lane import Lane
from streamer.journal import codec
from streamer.uprotocol.message import Attributes, UMessage
from tests.unit.delivery.custody.unconfirmed_harness import ABSENT_S, StoreHarness
from tests.unit.delivery.messages import message

NUMBER = 42


def left_behind(*messages: UMessage) -> bytes:
    """The body of a batch with these messages, of which the first has number 1."""
    earlier = StoreHarness()
    earlier.send(*messages)
    earlier.flush()
    (body,) = earlier.keeper.bodies.values()
    return body


def restore(harness: StoreHarness, body: bytes, known: set[int] | None = None, number: int = NUMBER) -> int:
    def flow_of(packed: codec.PackedFlow) -> tuple[Lane, Attributes]:
        attributes = codec.outgoing(packed.attributes, packed.outgoing)
        return harness.queue.lane((attributes.source, attributes.sink)), attributes

    harness.keeper.bodies[number] = body
    return harness.store.restore(number, body, flow_of, harness.clock.s, set() if known is None else known)


def test_messages_of_an_earlier_process_are_counted_and_wait_to_be_sent_again() -> None:
    harness = StoreHarness(max_bytes=1)
    sent = [message(0, payload=b"a"), message(1, ttl=5000), message(0)]
    assert restore(harness, left_behind(*sent)) == 3
    assert (harness.queue.stats.accepted, harness.queue.unconfirmed) == (3, 3)
    assert not harness.store.is_full
    assert harness.confirmed(ABSENT_S) == []
    assert harness.store.lanes_in_need(harness.clock.ms, harness.clock.s) == [harness.lane(0), harness.lane(1)]
    assert harness.refill(harness.lane(0)) == [sent[0], sent[2]]
    assert harness.refill(harness.lane(1)) == [sent[1]]
    assert harness.is_empty


def test_its_body_is_read_from_the_journal_when_it_is_needed() -> None:
    harness = StoreHarness()
    restore(harness, left_behind(message()))
    assert harness.keeper.reads == 0
    harness.refill(harness.lane())
    assert (harness.keeper.reads, harness.keeper.forgotten) == (1, [NUMBER])


def test_messages_of_a_lane_come_back_in_order_whatever_their_attributes() -> None:
    harness = StoreHarness()
    sent = [message(level=level, ttl=ttl) for level, ttl in ((1, None), (2, None), (1, 5000), (1, None), (2, None))]
    assert restore(harness, left_behind(*sent)) == 5
    assert harness.refill(harness.lane()) == sent


def test_messages_that_the_journal_has_as_rows_as_well_count_there() -> None:
    harness = StoreHarness()
    sent = [message(payload=b"1"), message(payload=b"2"), message(payload=b"3")]
    assert restore(harness, left_behind(*sent), known={1, 3}) == 1
    assert harness.queue.stats.accepted == 1
    assert harness.refill(harness.lane()) == [sent[1]]


def test_a_message_that_a_later_batch_has_as_well_counts_once() -> None:
    """The message was sent again, and the first batch stayed because of other messages."""
    harness, known = StoreHarness(), set[int]()
    first, again, other = message(payload=b"1"), message(payload=b"2"), message(1, payload=b"3")
    assert restore(harness, left_behind(first, again, other), known) == 3
    assert restore(harness, left_behind(first, again), known, NUMBER + 1) == 0
    assert (harness.queue.stats.accepted, harness.queue.unconfirmed) == (3, 3)
    assert harness.keeper.forgotten == [NUMBER + 1]
    assert harness.refill(harness.lane()) == [first, again]


def test_a_batch_of_which_all_messages_are_rows_is_forgotten_at_once() -> None:
    harness = StoreHarness()
    assert restore(harness, left_behind(message(), message()), known={1, 2}) == 0
    assert harness.keeper.forgotten == [NUMBER]
    assert harness.is_empty


@pytest.mark.parametrize("damage", [slice(0, 2), slice(0, -20)], ids=["flows", "messages"])
def test_what_cannot_be_read_changes_nothing(damage: slice) -> None:
    harness = StoreHarness()
    with pytest.raises(codec.UnreadableError):
        restore(harness, left_behind(message())[damage])
    assert (harness.store.bytes, harness.queue.unconfirmed, harness.queue.stats.accepted) == (0, 0, 0)
