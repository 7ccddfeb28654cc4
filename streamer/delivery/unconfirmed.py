"""What left through one endpoint without confirmation, and is not yet certain to have arrived.

Deliveries are packed into *segments*: what left between two flushes. A segment is certain, and its messages count as
delivered, once it is ``unconfirmed_s`` old and no doubt has come:

    nobody listens to a flow any more   the flow's messages stand at the head of their lane again, and wait there
    a node was lost                     segments are set aside: when a node comes they are sent again, and if none comes
                                        within ``absent_s``, those who were there have had them

Messages to be redelivered stay packed until their lane asks for them (`Lane.redeliveries`): there may be more of them
than memory should hold. With a journal the bodies of segments are only there. The law: a segment leaves the journal in
the same transaction in which what came of its messages enters it. No event loop and no clock in here.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator, Sequence

from streamer.delivery.lane import REDELIVERED, RESTORED, Delivery, Lane
from streamer.delivery.queue import size_of
from streamer.delivery.tracer import Tracer
from streamer.delivery.unconfirmed_batch import OVERHEAD_BYTES, Flow, LaneShare, OpenBatch, Segment, queue_of
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import created_ms

logger = logging.getLogger("ustreamer.assurance")

_SEGMENT_BYTES = 4 * 1024 * 1024
_OPEN_S = 1.0
_AT_ONCE = 256  # so many messages of a lane are unpacked at a time
_PARSED = 8  # segments that several lanes are being refilled from

ReadBody = Callable[[int], bytes]
"""The body of a segment that is in the journal. Raises `CorruptEntryError`."""


class UnconfirmedStore:
    """The segments of one endpoint, oldest first.

    ``on_redelivery`` is given deliveries that stand in their lane again, ``on_gone`` the number of a stored segment of which
    nothing is left, ``on_lost`` a lane and those of its messages that could not be read, ``on_certain`` what
    came in with messages that are certain before they were stored.
    """

    def __init__(
        self, target: str, unconfirmed_s: float, max_bytes: int, number: Callable[[], int], is_patient: bool = True
    ) -> None:
        """``is_patient``: at the bound nothing more is sent; else the oldest then count as delivered early."""
        self.target = target
        self.is_patient = is_patient
        self.unconfirmed_s = unconfirmed_s
        self.max_bytes = max_bytes
        self.bytes = 0
        self._unconfirmed_bytes = 0  # of messages that may become certain by waiting
        self.read_body: ReadBody | None = None
        self.tracer: Tracer | None = None
        self.on_redelivery: Callable[[Sequence[Delivery]], None] = lambda deliveries: None
        self.on_gone: Callable[[int], None] = lambda number: None
        self.on_lost: Callable[[Lane, LaneShare], None] = lambda lane, held: None
        self.on_open: Callable[[], None] = lambda: None
        self.on_certain: Callable[[Received], None] = lambda received: None
        self._number = number
        self._segments: deque[Segment] = deque()
        self._aside: deque[tuple[float, Segment]] = deque()  # with the moment at which the doubt came
        self._unstored: list[Segment] = []
        self._redelivering: dict[Lane, None] = {}
        self._parsed: OrderedDict[int, tuple[bytes, dict[int, list[codec.PackedMessage]]]] = OrderedDict()
        self._open = OpenBatch()

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be sent before something has become certain."""
        return self.is_patient and self._unconfirmed_bytes >= self.max_bytes

    @property
    def has_unstored(self) -> bool:
        """Whether anything waits for `take_unstored`."""
        return bool(self._unstored or self._open.records)

    def add(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """These have left."""
        if not self._open.records:
            self.on_open()
        if not self._open.records:
            self._open.made_s = now_s
        self._unconfirmed_bytes += self._open.add(deliveries, now_s, self.tracer)
        if self._open.bytes >= _SEGMENT_BYTES:
            self.close(now_s)

    def close(self, now_s: float) -> None:
        """End the open segment, if there is anything in it."""
        current = self._open
        if not current.records:
            return
        self._open = OpenBatch()
        segment = current.closed(self.target, self._number(), now_s)
        self.bytes += segment.size
        self._segments.append(segment)
        self._unstored.append(segment)

    def take_unstored(self, now_s: float) -> list[Segment]:
        """Every segment that was closed since the last call, the open one too. Call `stored` for each, once it is safe."""
        self.close(now_s)
        taken, self._unstored = self._unstored, []
        return [segment for segment in taken if segment.held or segment.received]

    def stored(self, segment: Segment, in_journal: bool) -> None:
        """What the segment came in with has been seen to; with a journal, its body need not be in memory."""
        segment.is_stored = in_journal
        if in_journal:
            segment.body = None
            if not segment.held:  # it was settled meanwhile
                self.on_gone(segment.number)

    def restore(
        self,
        number: int,
        body: bytes,
        flow_of: Callable[[codec.PackedFlow], tuple[Lane, Attributes]],
        now_s: float,
        rows: Container[int],
    ) -> int:
        """Take over a segment that an earlier process has left in the journal: all of it is to be sent again.

        ``flow_of`` finds lane and outgoing attributes; ``rows`` are the numbers of messages that the journal has as rows as
        well, because they were to be sent again: these count. The number of messages is returned. Raises
        `codec.UnreadableError`.
        """
        packed, start = codec.unpack_flows(body)
        records = list(codec.unpack_records(body, start))
        flows = []
        for index, each in enumerate(packed):
            lane, outgoing = flow_of(each)
            flows.append(Flow(index, lane, each.attributes, outgoing))
        held: dict[Lane, LaneShare] = {}
        for record in records:
            if record.seq in rows:
                continue
            flow = flows[record.flow]
            entry = held.get(flow.lane) or held.setdefault(flow.lane, LaneShare(record.seq))
            ttl = flow.incoming.ttl
            entry.add(record.seq, len(record.payload or b""), created_ms(record.id) + ttl if ttl else 0)
        segment = Segment(self.target, number, now_s, flows, held)
        segment.start = start
        segment.size = len(body) + OVERHEAD_BYTES
        segment.is_stored = True
        segment.skip = frozenset(record.seq for record in records if record.seq in rows)
        self.bytes += segment.size
        if not held:
            self._gone(segment)
        for lane, entry in held.items():
            queue_of(lane).unconfirmed += entry.count
            queue_of(lane).stats.accepted += entry.count
            lane.unconfirmed += entry.count
            self._unconfirmed_bytes += entry.bytes
            self._expect(lane, entry, segment)
        return sum(entry.count for entry in held.values())

    # -- time

    def confirmed(self, now_s: float, absent_s: float) -> list[tuple[Lane, LaneShare]]:
        """Which messages of which lane have become certain. Called by the clock's tick."""
        if self._open.records and self._open.made_s + _OPEN_S <= now_s:  # the journal is busy, and closes none
            self.close(now_s)
        found: list[tuple[Lane, LaneShare]] = []
        segments, aside = self._segments, self._aside
        while segments and (segments[0].made_s + self.unconfirmed_s <= now_s or self._is_too_much):
            self._settle(segments.popleft(), found)
        while aside and aside[0][0] + absent_s <= now_s:
            self._settle(aside.popleft()[1], found)
        return found

    @property
    def _is_too_much(self) -> bool:
        return not self.is_patient and self._unconfirmed_bytes > self.max_bytes

    def _settle(self, segment: Segment, found: list[tuple[Lane, LaneShare]]) -> None:
        if not segment.held:
            return
        for lane in [lane for lane, held in segment.held.items() if not held.is_expected]:
            held = segment.held.pop(lane)
            found.append((lane, held))
            self._unconfirmed_bytes -= held.bytes
            _let_go(lane, held.count)
        if not segment.held:
            received, segment.received = segment.received, []
            self._gone(segment)
            for each in received:  # all of it is delivered before it was stored
                self.on_certain(each)

    # -- doubt

    def redeliver(self, lane: Lane, now_s: float) -> None:
        """Nobody listens to the lane's flow any more: what is unconfirmed stands at its head again, packed."""
        if lane in self._open.held:
            self.close(now_s)
        for segment in [*(segment for _, segment in self._aside), *self._segments]:
            held = segment.held.get(lane)
            if held is not None:
                self._expect(lane, held, segment)

    def node_lost(self, now_s: float) -> None:
        """Somebody has gone, and may have missed everything that is unconfirmed."""
        self.close(now_s)
        self._aside.extend((now_s, segment) for segment in self._segments)
        self._segments.clear()

    def node_came(self) -> None:
        """Somebody is there again: what was set aside is to be sent again, before anything younger of the same flow."""
        aside, self._aside = self._aside, deque()
        for _, segment in aside:
            for lane, held in segment.held.items():
                self._expect(lane, held, segment)

    def _expect(self, lane: Lane, held: LaneShare, segment: Segment) -> None:
        if held.is_expected:
            return
        held.is_expected = True
        self._unconfirmed_bytes -= held.bytes
        at = len(lane.redeliveries)
        while at and lane.redeliveries[at - 1][0] > held.first:
            at -= 1
        lane.redeliveries.insert(at, (held.first, segment))
        self._redelivering[lane] = None

    # -- sending again

    def lanes_in_need(self, now_ms: int) -> list[Lane]:
        """Lanes whose next message is packed, and either may leave or has expired."""
        return [
            lane
            for lane in self._redelivering
            if lane.wants_redelivery and (not lane.hold or _is_due(lane.redeliveries[0][1], lane, now_ms))
        ]

    def refill(self, lane: Lane, whole: bool = False) -> int:
        """Unpack what is next in a lane, some hundred messages at most, or all; their number is returned.

        Raises `JournalError` if the journal cannot be read now; then everything is as it was.
        """
        unpacked = 0
        while lane.redeliveries and (whole or (lane.wants_redelivery and unpacked < _AT_ONCE)):
            _, segment = lane.redeliveries[0]
            deliveries: list[Delivery] = []
            try:
                deliveries = list(self._unpack(segment, lane))
            except (CorruptEntryError, codec.UnreadableError) as exc:
                logger.error("segment_lost endpoint=%s messages=%d error=%s", self.target, segment.held[lane].count, exc)
            lane.redeliveries.popleft()
            held = segment.held.pop(lane)
            _let_go(lane, held.count)
            if not deliveries:
                self.on_lost(lane, held)
            else:
                queue_of(lane).put_back_all(lane, deliveries)
                self.on_redelivery(deliveries)
            unpacked += held.count
            if not segment.held:
                self._gone(segment)
        if not lane.redeliveries:
            self._redelivering.pop(lane, None)
        return unpacked

    def _unpack(self, segment: Segment, lane: Lane) -> Iterator[Delivery]:
        parsed = self._parsed.get(segment.number)
        if parsed is None:
            body = segment.body
            if body is None:
                if self.read_body is None:
                    raise AssertionError("a segment without body, and no journal")
                body = self.read_body(segment.number)
            by_flow: dict[int, list[codec.PackedMessage]] = {}
            for record in codec.unpack_records(body, segment.start):
                by_flow.setdefault(record.flow, []).append(record)
            parsed = self._parsed[segment.number] = (body, by_flow)
            if len(self._parsed) > _PARSED:
                self._parsed.popitem(last=False)
        chosen = [(record, flow) for flow in segment.flows if flow.lane is lane for record in parsed[1].get(flow.index, ())]
        chosen.sort(key=lambda each: each[0].seq)
        if segment.skip:
            chosen = [each for each in chosen if each[0].seq not in segment.skip]
        for record, flow in chosen:
            incoming = UMessage(record.id, flow.incoming, record.payload)
            leaving = incoming if flow.outgoing is flow.incoming else incoming._replace(attributes=flow.outgoing)
            received = Received(incoming)
            received.is_kept = True  # its source has been told, or will be with the segment
            delivery = Delivery(received, leaving, lane, record.seq, size_of(leaving), segment.made_s, record.entered_ms)
            delivery.history = REDELIVERED | RESTORED
            yield delivery

    def _gone(self, segment: Segment) -> None:
        self.bytes -= segment.size
        self._parsed.pop(segment.number, None)
        segment.body = None
        if segment.is_stored:
            self.on_gone(segment.number)


def _let_go(lane: Lane, count: int) -> None:
    queue_of(lane).unconfirmed -= count
    lane.unconfirmed -= count


def _is_due(segment: Segment, lane: Lane, now_ms: int) -> bool:
    return 0 < segment.held[lane].deadline_ms < now_ms
