"""Batches: messages sent between two flushes, packed so that all can be sent again unchanged."""

from dataclasses import replace

from streamer.delivery.custody.unconfirmed_batch import OVERHEAD_BYTES, LaneSummary, OpenBatch
from streamer.delivery.lanes.lane import Delivery
from streamer.journal import codec
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import everything_at
from tests.unit.delivery.custody.unconfirmed_harness import UNCONFIRMED_S, StoreHarness
from tests.unit.delivery.fake_observer import FakeObserver
from tests.unit.delivery.messages import NOW_MS, message, push, route_queue

MADE_S = 7.0


def sent(*messages: UMessage) -> list[Delivery]:
    queue = route_queue()
    return [push(queue, each) for each in messages]


def test_a_share_adds_up_what_a_batch_has_of_a_lane() -> None:
    summary = LaneSummary(9)
    for seq, size in ((9, 100), (7, 50), (8, 1)):
        summary.add(seq, size, 0, 0)
    assert (summary.count, summary.bytes, summary.first, summary.deadline_ms) == (3, 151, 7, 0)


def test_the_deadline_of_a_share_is_the_earliest_of_those_that_have_one() -> None:
    summary = LaneSummary(1)
    for created, ttl in ((1000, 0), (100, 200), (150, 50), (100, 0), (300, 100)):
        summary.add(1, 1, created, ttl)
    assert summary.deadline_ms == 200


def test_what_is_added_is_counted_in_bytes_and_per_lane() -> None:
    first, second, third = sent(message(0, payload=b"abc", ttl=50), message(0, ttl=20), message(1))
    batch = OpenBatch()
    assert batch.add([first], MADE_S, NOW_MS, (), {}) == first.size
    assert batch.add([second, third], MADE_S, NOW_MS, (), {}) == second.size + third.size
    assert batch.bytes == first.size + second.size + third.size
    summaries = {
        lane: (summary.count, summary.bytes, summary.first, summary.deadline_ms) for lane, summary in batch.lanes.items()
    }
    assert summaries == {
        first.lane: (2, first.size + second.size, first.seq, NOW_MS + 20),
        third.lane: (1, third.size, third.seq, 0),
    }
    assert batch.received == [first.received, second.received, third.received]


def test_the_traces_of_each_lane_are_kept_with_its_summary() -> None:
    first, second, third = sent(message(0), message(1), message(0))
    batch = OpenBatch()
    batch.add([first, second, third], MADE_S, NOW_MS, [FakeObserver()], {})
    assert batch.lanes[first.lane].records == first.message.id + third.message.id
    assert batch.lanes[second.lane].records == second.message.id


def test_a_closed_batch_is_read_back_as_it_was_sent() -> None:
    deliveries = sent(message(0, payload=b"a"), message(1, ttl=5), message(0, payload=b""))
    batch = OpenBatch()
    batch.add(deliveries, MADE_S, NOW_MS, (), {})
    closed = batch.closed("cloud", 42, MADE_S)
    assert (closed.target, closed.number, closed.made_s, closed.is_stored) == ("cloud", 42, MADE_S, False)
    assert closed.body is not None
    assert closed.size == len(closed.body) + OVERHEAD_BYTES
    flows, start = codec.unpack_flows(closed.body)
    assert start == closed.start
    assert [(flow.route, flow.source, flow.target, flow.outgoing) for flow in flows] == [
        ("up", "vehicle", "cloud", codec.UNCHANGED)
    ] * 2
    read = [
        (record.seq, record.entered_ms, UMessage(record.id, flows[record.flow].attributes, record.payload))
        for record in codec.unpack_records(closed.body, start)
    ]
    assert read == [(delivery.seq, delivery.entered_ms, delivery.message) for delivery in deliveries]


def test_messages_of_a_lane_with_other_attributes_are_a_flow_of_their_own() -> None:
    deliveries = sent(message(0, level=1), message(0, level=2), message(0, level=1))
    batch = OpenBatch()
    batch.add(deliveries, MADE_S, NOW_MS, (), {})
    flows = batch.closed("cloud", 1, MADE_S).flows
    assert [(flow.index, flow.lane, flow.incoming.priority_class) for flow in flows] == [
        (0, deliveries[0].lane, 1),
        (1, deliveries[0].lane, 2),
    ]


def test_a_flow_that_left_with_another_sink_says_how_it_left_and_how_it_came() -> None:
    queue, came = route_queue(), message()
    left = replace(came, attributes=replace(came.attributes, sink=everything_at("fleet")))
    lane = queue.lane((left.attributes.source, left.attributes.sink))
    batch = OpenBatch()
    batch.add([queue.push(MemoryReceived(came), left, lane, MADE_S, NOW_MS)], MADE_S, NOW_MS, (), {})
    closed = batch.closed("cloud", 1, MADE_S)
    ((packed,), _) = codec.unpack_flows(closed.body or b"")
    assert (packed.attributes, packed.outgoing) == (came.attributes, "fleet")
    assert codec.outgoing(packed.attributes, packed.outgoing) == left.attributes


def test_what_is_sent_is_packed_for_the_observer_of_its_time() -> None:
    harness = StoreHarness()
    (first,) = harness.send(message())
    harness.observers.clear()
    harness.send(message())
    harness.observers.append(FakeObserver())
    (third,) = harness.send(message())
    harness.flush()
    assert [summary.records for _, summary in harness.confirmed(UNCONFIRMED_S)] == [first.id + third.id]
