"""Segments: messages that left between two flushes without confirmation, packed. `store` says what becomes of them."""

from collections.abc import Sequence

from streamer.delivery.lane import Delivery, Lane
from streamer.delivery.queue import RouteQueue
from streamer.delivery.tracer import Tracer
from streamer.journal import codec
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.uuid import created_ms

OVERHEAD_BYTES = 64


class Flow:
    """What messages of one segment have in common."""

    __slots__ = ("incoming", "index", "lane", "outgoing")

    def __init__(self, index: int, lane: Lane, incoming: Attributes, outgoing: Attributes) -> None:
        self.index = index
        self.lane = lane
        self.incoming = incoming
        self.outgoing = outgoing


class LaneShare:
    """What a segment holds of one lane: messages and their bytes, lowest seq, earliest deadline (0: none).

    ``is_expected``: they are to be sent again. ``traces``: their trace records, packed, if there is a tracer.
    """

    __slots__ = ("bytes", "count", "deadline_ms", "first", "is_expected", "traces")

    def __init__(self, first: int) -> None:
        self.count = 0
        self.bytes = 0
        self.first = first
        self.deadline_ms = 0
        self.is_expected = False
        self.traces = bytearray()

    def add(self, seq: int, size: int, deadline_ms: int) -> None:
        self.count += 1
        self.bytes += size
        if seq < self.first:
            self.first = seq
        if deadline_ms and (not self.deadline_ms or deadline_ms < self.deadline_ms):
            self.deadline_ms = deadline_ms


class Segment:
    """Many messages of one moment. ``received`` is what they came in with, until the segment is stored."""

    __slots__ = ("body", "flows", "held", "is_stored", "made_s", "number", "received", "size", "skip", "start", "target")

    def __init__(self, target: str, number: int, made_s: float, flows: list[Flow], held: dict[Lane, LaneShare]) -> None:
        self.target = target
        self.number = number
        self.made_s = made_s
        self.flows = flows
        self.held = held
        self.received: list[Received] = []
        self.body: bytes | None = None  # None: only in the journal
        self.start = 0  # where in the body the messages begin
        self.size = 0
        self.is_stored = False
        self.skip: frozenset[int] = frozenset()  # messages that are elsewhere, too


class OpenBatch:
    """The segment that is being filled."""

    __slots__ = ("bytes", "flows", "held", "made_s", "received", "records")

    def __init__(self) -> None:
        self.flows: dict[tuple[Lane, Attributes], Flow] = {}
        self.made_s = 0.0
        self.records: list[bytes] = []
        self.held: dict[Lane, LaneShare] = {}
        self.received: list[Received] = []
        self.bytes = 0

    def add(self, deliveries: Sequence[Delivery], now_s: float, tracer: Tracer | None) -> int:
        before = self.bytes
        flows, records, held, came = self.flows, self.records, self.held, self.received
        for delivery in deliveries:
            lane = delivery.lane
            received = delivery.received
            message = received.message
            incoming = message.attributes
            flow = flows.get((lane, incoming))
            if flow is None:
                flow = flows[lane, incoming] = Flow(len(flows), lane, incoming, delivery.message.attributes)
            seq = delivery.seq
            records += codec.pack_record(flow.index, seq, delivery.entered_ms, message)
            entry = held.get(lane)
            if entry is None:
                entry = held[lane] = LaneShare(seq)
            ttl = incoming.ttl
            entry.add(seq, delivery.size, created_ms(message.id) + ttl if ttl else 0)
            if tracer is not None:
                entry.traces += tracer.unconfirmed(delivery, now_s)
            came.append(received)
            self.bytes += delivery.size
        return self.bytes - before

    def closed(self, target: str, number: int, now_s: float) -> Segment:
        """All of it, as a segment of its own."""
        flows = list(self.flows.values())
        packed = [codec.pack_flow(_packed(flow)) for flow in flows]
        segment = Segment(target, number, now_s, flows, self.held)
        segment.body = codec.pack_segment(packed, self.records)
        segment.start = codec.start_of(packed)
        segment.size = len(segment.body) + OVERHEAD_BYTES
        segment.received = self.received
        return segment


def queue_of(lane: Lane) -> RouteQueue:
    """The queue that a lane belongs to."""
    queue: RouteQueue = lane.queue  # type: ignore[assignment]  # lanes do not know the type of what owns them
    return queue


def _packed(flow: Flow) -> codec.PackedFlow:
    queue = queue_of(flow.lane)
    return codec.PackedFlow(queue.name, queue.source, queue.target, codec.mark(flow.incoming, flow.outgoing), flow.incoming)
