"""The recorder: full buffers are handed on, old ones too, and one that is not taken leaves a hole in seq."""

from dataclasses import replace

import pytest

from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.lanes.queue import RouteQueue
from streamer.features.traces.record import Buffer, to_columns
from streamer.features.traces.recorder import MAX_AGE_S, MAX_RECORDS, Recorder
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.unit.delivery.messages import message, push, route_queue

NOW_MS = 1_700_000_000_000
NEVER = Failure(Outcome.DEAD_LETTERED, UCode.PERMISSION_DENIED, "never")


class RecorderHarness:
    """Takes buffers, or does not."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.has_room = True
        self.recorder = Recorder({"vehicle": "zenoh", "cloud": "mqtt5"}, self.take, lambda: NOW_MS * 1000)

    def take(self, buffer: Buffer) -> bool:
        if self.has_room:
            self.buffers.append(buffer)
        return self.has_room

    def rows(self) -> list[dict[str, object]]:
        self.recorder.hand_on()
        return [row for buffer in self.buffers for row in to_columns(buffer, 0).to_pylist()]


@pytest.fixture
def harness() -> RecorderHarness:
    return RecorderHarness()


@pytest.fixture
def queue() -> RouteQueue:
    return route_queue()


def delivery(queue: RouteQueue, ue_id: int = 1) -> Delivery:
    source = UUri("veh1", ue_id, 1, 0x8001)
    message = UMessage(new_id(NOW_MS), Attributes(UMessageType.PUBLISH, source), b"12")
    return queue.push(Received(message), message, queue.lane((source, None)), 0.0, NOW_MS)


def test_flows_that_come_and_go_keep_their_names(harness: RecorderHarness, queue: RouteQueue) -> None:
    deliveries = [delivery(queue, ue_id=number % 7) for number in range(50)]
    harness.recorder.delivered(deliveries, 1.0, NOW_MS)
    rows = harness.rows()
    assert [row["src_ue_id"] for row in rows] == [number % 7 for number in range(50)]
    assert {(row["route"], row["ingress"], row["egress"]) for row in rows} == {(queue.name, queue.source, queue.target)}
    assert [row["msg_id"] for row in rows] == [each.message.id for each in deliveries]


def test_a_full_buffer_is_handed_on_and_numbers_go_on(harness: RecorderHarness, queue: RouteQueue) -> None:
    one = delivery(queue)
    harness.recorder.delivered([one] * (MAX_RECORDS + 3), 1.0, NOW_MS)
    assert [buffer.records for buffer in harness.buffers] == [MAX_RECORDS]
    harness.recorder.failed(one, NEVER, 2.0, NOW_MS)
    rows = harness.rows()
    assert [row["seq"] for row in rows] == list(range(MAX_RECORDS + 4))
    assert rows[-1]["outcome"] == "dead_lettered"
    assert rows[-1]["ucode"] == "PERMISSION_DENIED"


def test_a_buffer_that_is_not_taken_is_counted_and_leaves_a_hole(harness: RecorderHarness, queue: RouteQueue) -> None:
    one = delivery(queue)
    harness.recorder.delivered([one] * 2, 1.0, NOW_MS)
    harness.recorder.hand_on()
    harness.has_room = False
    harness.recorder.delivered([one] * 5, 1.0, NOW_MS)
    harness.recorder.hand_on()
    harness.has_room = True
    harness.recorder.delivered([one] * 2, 1.0, NOW_MS)
    assert [row["seq"] for row in harness.rows()] == [0, 1, 7, 8]
    assert harness.recorder.dropped == 5


def test_an_old_buffer_is_handed_on_by_the_tick(harness: RecorderHarness, queue: RouteQueue) -> None:
    harness.recorder.tick(100.0)
    harness.recorder.delivered([delivery(queue)], 100.0, NOW_MS)
    harness.recorder.tick(100.0 + MAX_AGE_S / 2)
    assert harness.buffers == []
    harness.recorder.tick(100.0 + MAX_AGE_S)
    assert [buffer.records for buffer in harness.buffers] == [1]
    harness.recorder.tick(200.0)
    assert len(harness.buffers) == 1


def test_unconfirmed_messages_are_recorded_once_they_count_as_delivered(harness: RecorderHarness, queue: RouteQueue) -> None:
    deliveries = [delivery(queue, ue_id=5) for _ in range(3)]
    lane = deliveries[0].lane
    packed = b"".join(harness.recorder.sent(each, 1.0, NOW_MS) for each in deliveries)
    harness.recorder.delivered([delivery(queue, ue_id=9)], 2.0, NOW_MS)
    harness.recorder.confirmed(lane, packed, 3, 3.0)
    rows = harness.rows()
    assert [(row["src_ue_id"], row["latency_us"]) for row in rows] == [(9, 2_000_000), *[(5, 1_000_000)] * 3]
    assert [row["msg_id"] for row in rows[1:]] == [each.message.id for each in deliveries]


def test_more_than_a_buffer_counts_as_delivered_at_once(harness: RecorderHarness, queue: RouteQueue) -> None:
    one = delivery(queue)
    harness.recorder.delivered([one] * 7, 1.0, NOW_MS)
    more = 2 * MAX_RECORDS + 5
    harness.recorder.confirmed(one.lane, harness.recorder.sent(one, 1.0, NOW_MS) * more, more, 1.0)
    rows = harness.rows()
    assert [row["seq"] for row in rows] == list(range(2 * MAX_RECORDS + 12))


def test_messages_that_cannot_be_read_any_more_are_traced_with_and_without_their_record(
    harness: RecorderHarness, queue: RouteQueue
) -> None:
    one = delivery(queue, ue_id=5)
    failure = Failure(Outcome.DEAD_LETTERED, UCode.DATA_LOSS, "lost")
    harness.recorder.never_confirmed(one.lane, harness.recorder.sent(one, 1.0, NOW_MS), 3, failure, 9.0, NOW_MS)
    rows = harness.rows()
    assert [row["msg_id"] for row in rows] == [one.message.id, bytes(16), bytes(16)]
    assert {(row["outcome"], row["ucode"], row["src_ue_id"]) for row in rows} == {("dead_lettered", "DATA_LOSS", 5)}


def test_the_size_of_a_message_whose_payload_is_only_in_the_journal(harness: RecorderHarness, queue: RouteQueue) -> None:
    one = delivery(queue)
    one.message = replace(one.message, payload=None)
    harness.recorder.failed(one, NEVER, 2.0, NOW_MS)
    assert [row["payload_bytes"] for row in harness.rows()] == [len(b"12")]


def test_the_size_of_a_message_is_that_of_its_payload_also_if_it_has_a_token(
    harness: RecorderHarness, queue: RouteQueue
) -> None:
    one = message(payload=b"12")
    one = replace(one, attributes=replace(one.attributes, token="t" * 1000))
    harness.recorder.failed(push(queue, one), NEVER, 2.0, NOW_MS)
    assert [row["payload_bytes"] for row in harness.rows()] == [len(b"12")]


def test_a_message_that_never_became_a_delivery(harness: RecorderHarness) -> None:
    message = UMessage(new_id(NOW_MS), Attributes(UMessageType.REQUEST, UUri("a", 1, 1, 0), UUri("b", 2, 1, 3), ttl=100))
    harness.recorder.never_queued(message, ("none", "vehicle", ""), NEVER, 5.0, NOW_MS)
    (row,) = harness.rows()
    expected = {
        "route": "none",
        "ingress": "vehicle",
        "ingress_transport": "zenoh",
        "egress": None,
        "egress_transport": None,
        "sink_authority": "b",
        "ttl_ms": 100,
        "queue_wait_us": None,
        "latency_us": 0,
    }
    assert {name: row[name] for name in expected} == expected
