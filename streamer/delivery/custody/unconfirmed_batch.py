"""Batches of unconfirmed messages, which pack the messages sent between two flushes. See `unconfirmed`.

The journal stores a batch as a segment.
"""

from collections.abc import Sequence
from typing import Final

from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.journal import codec
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessageType
from streamer.uprotocol.uuid import DAY_MS, created_ms

OVERHEAD_BYTES = 64
_REQUEST: Final = UMessageType.REQUEST  # an enumeration looks its members up slowly


class BatchFlow:
    """The common part of a batch's messages of one lane with the same attributes."""

    __slots__ = ("incoming", "index", "is_request", "lane", "outgoing")

    def __init__(self, index: int, lane: Lane, incoming: Attributes, outgoing: Attributes) -> None:
        self.index = index
        self.lane = lane
        self.incoming = incoming
        self.outgoing = outgoing
        self.is_request = outgoing.type is _REQUEST


class LaneSummary:
    """The messages of one lane in a batch: their number and bytes, lowest ``seq``, and earliest deadline (0: none).

    ``latest_ms`` is the last creation time of a message with a TTL, ``least_ttl_ms`` the shortest TTL.
    ``to_redeliver``: they are to be sent again, after they have returned ``returns`` times. ``records`` are those that
    `OutcomeObserver.sent` has returned.
    """

    __slots__ = ("bytes", "count", "deadline_ms", "first", "latest_ms", "least_ttl_ms", "records", "returns", "to_redeliver")

    def __init__(self, first: int) -> None:
        self.count = 0
        self.bytes = 0
        self.first = first
        self.deadline_ms = self.latest_ms = self.least_ttl_ms = 0
        self.to_redeliver = False
        self.returns = 0
        self.records = bytearray()

    def add(self, seq: int, size: int, created: int, ttl: int) -> None:
        """Count a message, given its creation time and its TTL in ms (0: none)."""
        self.count += 1
        self.bytes += size
        if seq < self.first:
            self.first = seq
        if ttl:
            if not self.deadline_ms or created + ttl < self.deadline_ms:
                self.deadline_ms = created + ttl
            if not self.least_ttl_ms or ttl < self.least_ttl_ms:
                self.least_ttl_ms = ttl
            self.latest_ms = max(self.latest_ms, created)

    def is_due(self, now_ms: int, waited_s: float) -> bool:
        """Whether the TTL of at least one message may have passed (`UMessage.expires_ms`)."""
        waited_ms = waited_s * 1000
        has_future_ids = self.latest_ms > now_ms - waited_ms + DAY_MS
        return 0 < self.deadline_ms < now_ms or (has_future_ids and waited_ms > self.least_ttl_ms)


class UnconfirmedBatch:
    """Messages that were sent at about the same time, and have returned to their lanes equally often: ``returns`` times.

    ``received`` are the received messages, until the batch is stored. The last message was sent at ``sent_s``; the batch was
    closed at ``made_s``.
    """

    __slots__ = (
        "body",
        "flows",
        "is_stored",
        "lanes",
        "made_s",
        "number",
        "received",
        "returns",
        "sent_s",
        "size",
        "skip",
        "start",
        "target",
    )

    def __init__(
        self, target: str, number: int, made_s: float, flows: list[BatchFlow], summaries: dict[Lane, LaneSummary]
    ) -> None:
        self.target = target
        self.number = number
        self.made_s = made_s
        self.sent_s = made_s
        self.flows = flows
        self.lanes = summaries
        self.received: list[Received] = []
        self.body: bytes | None = None  # None: only in the journal
        self.start = 0  # offset of the messages in the body
        self.size = 0
        self.is_stored = False
        self.returns = 0
        self.skip: frozenset[int] = frozenset()  # seq of messages that count elsewhere in the journal


class OpenBatch:
    """The batch that is being filled. ``is_ours``: it has an unacknowledged message that no source retransmits."""

    __slots__ = ("_latest", "bytes", "flows", "is_ours", "lanes", "made_s", "received", "records", "sent_s")

    def __init__(self) -> None:
        self.flows: dict[tuple[Lane, Attributes], BatchFlow] = {}
        self._latest: dict[Lane, BatchFlow] = {}  # the next message of a lane mostly has the same
        self.made_s = 0.0  # when the first was added
        self.sent_s = 0.0  # when the last was added
        self.is_ours = False
        self.records: list[bytes] = []
        self.lanes: dict[Lane, LaneSummary] = {}
        self.received: list[Received] = []
        self.bytes = 0

    def add(
        self,
        deliveries: Sequence[Delivery],
        now_s: float,
        now_ms: int,
        observers: Sequence[OutcomeObserver],
        requests: dict[bytes, tuple[Lane, int]],
    ) -> int:
        """Pack deliveries that were sent; return the bytes added. ``requests`` gets lane and ``seq`` of Requests, by id."""
        before = self.bytes
        self.sent_s = now_s
        latest, records, summaries, came = self._latest, self.records, self.lanes, self.received
        for delivery in deliveries:
            lane = delivery.lane
            received = delivery.received
            message = received.message
            incoming = message.attributes
            flow = latest.get(lane)
            if flow is None or flow.incoming is not incoming:
                flow = latest[lane] = self._flow(lane, incoming, delivery.message.attributes)
            seq = delivery.seq
            records += codec.pack_record(flow.index, seq, delivery.entered_ms, message)
            if flow.is_request:
                requests[message.id] = (lane, seq)
            summary = summaries.get(lane)
            if summary is None:
                summary = summaries[lane] = LaneSummary(seq)
            summary.add(seq, delivery.size, created_ms(message.id), incoming.ttl or 0)
            for observer in observers:
                summary.records += observer.sent(delivery, now_s, now_ms)
            came.append(received)
            if not (received.source_retransmits or received.is_acknowledged):
                self.is_ours = True
            self.bytes += delivery.size
        return self.bytes - before

    def _flow(self, lane: Lane, incoming: Attributes, outgoing: Attributes) -> BatchFlow:
        flow = self.flows.get((lane, incoming))
        if flow is None:
            flow = self.flows[lane, incoming] = BatchFlow(len(self.flows), lane, incoming, outgoing)
        return flow

    def closed(self, target: str, number: int, now_s: float) -> UnconfirmedBatch:
        """Return the closed batch of all messages added so far."""
        flows = list(self.flows.values())
        packed = [codec.pack_flow(_packed(flow)) for flow in flows]
        batch = UnconfirmedBatch(target, number, now_s, flows, self.lanes)
        batch.body = codec.pack_segment(packed, self.records)
        batch.sent_s = self.sent_s
        batch.start = codec.start_of(packed)
        batch.size = len(batch.body) + OVERHEAD_BYTES
        batch.received = self.received
        return batch


def _packed(flow: BatchFlow) -> codec.PackedFlow:
    queue = flow.lane.queue
    return codec.PackedFlow(
        queue.name, queue.source, queue.target, codec.sink_change(flow.incoming, flow.outgoing), flow.incoming
    )
