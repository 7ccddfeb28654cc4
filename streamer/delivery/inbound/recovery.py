"""Recovery: puts messages that an earlier process has left in the journal into lanes, before anything new is received.

Rows are messages that waited, segments are batches of unconfirmed ones. Both are sent in the order of their numbers and
before newer messages of the same flow, over the route that accepted them. If that route is gone, they are sent over another
one to the same endpoint; if the endpoint is gone, they become dead letters.

There may be a million messages, so they are read in slices, between which the event loop serves everything else.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from streamer.clock import Clock
from streamer.delivery.custody.custody import Custody
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, REDELIVERED, RESTORED, Delivery, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.outcomes.settle import Settler
from streamer.delivery.seen import SeenIds, key_of
from streamer.delivery.stats import RouteStats
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError, Row, Segment
from streamer.journal.journal import Journal
from streamer.routing.outcome import Failure, Outcome, Where
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import waited_s

logger = logging.getLogger("ustreamer.recovery")

QueueOf = Callable[[str, str, str], RouteQueue | None]
"""The queue of a route by its name, source and target; None if the endpoint is gone."""

_Way = tuple[str, str, str, str, Attributes]
"""The key of a lane: route, source, target, change of the sink, attributes."""

_NO_WAY = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "it was accepted for an endpoint that is no longer configured")


_SLICE_ROWS = 256
_SLICE_BYTES = 1 << 20
_MAX_WAITING_LETTERS = 5000  # of homeless messages; the journal has the others until it has taken these


@dataclass(slots=True)
class Recovered:
    """The numbers found: queued messages, unconfirmed ones, unreadable entries, and messages without an endpoint."""

    waiting: int = 0
    unconfirmed: int = 0
    unreadable: int = 0
    homeless: int = 0


class Recovery:
    """Reads the journal once. ``entries`` counts the rows and segments read, ``found`` the messages in them.

    ``has_passed``: only homeless messages may be left, which wait until the journal can take more dead letters.
    """

    def __init__(
        self,
        journal: Journal,
        custody: Custody,
        settler: Settler,
        seen: SeenIds,
        clock: Clock,
        queue_of: QueueOf,
        egresses: dict[str, Egress],
        unrouted: dict[str, RouteStats],
    ) -> None:
        """``unrouted``: each ingress's account of messages that no route takes."""
        self.entries = 0
        self.latest_ms = 0  # when the youngest message had arrived
        self.found = Recovered()
        self.is_complete = self.has_passed = False
        self._journal = journal
        self._custody = custody
        self._settler = settler
        self._seen = seen
        self._clock = clock
        self._queue_of = queue_of
        self._egresses = egresses
        self._unrouted = unrouted
        self._numbers: set[int] = set()  # of the rows, segments and messages that were read
        self._queues: set[RouteQueue] = set()  # whose lanes must not be retired while they are filled
        self._places: dict[_Way, tuple[Lane, Attributes]] = {}  # in this slice: a reload may change them

    def slices(self) -> Iterator[None]:
        """Put all messages into lanes, some at each step. Raises `JournalError` if the journal cannot be read now.

        Call it again as long as it is not `is_complete`.
        """
        if self.has_passed and self._custody.has_many_letters(1):
            return
        self.is_complete = True
        is_over = False
        try:
            yield from self._rows()
            yield from self._segments()
            is_over = True
        finally:
            self.is_complete = self.is_complete and is_over
            self.has_passed = self.has_passed or is_over
            for queue in self._queues:
                queue.restored()
            self._queues.clear()
        found = self.found
        if self.is_complete and found != Recovered():
            logger.warning(
                "recovered waiting=%d unconfirmed=%d unreadable=%d homeless=%d",
                found.waiting,
                found.unconfirmed,
                found.unreadable,
                found.homeless,
                extra={"state": ("recovery", "complete")},
            )

    def _rows(self) -> Iterator[None]:
        rows = self._journal.rows()
        while self._some(rows):
            yield

    def _some(self, rows: Iterator[Row]) -> bool:
        """Restore one slice of rows; return False if there are no more."""
        by_lane: dict[Lane, list[Delivery]] = {}
        self._places.clear()
        count = size = 0
        try:
            for row in rows:
                count += 1
                size += len(row.body)
                if row.number not in self._numbers:
                    self._take(row, by_lane)
                if count >= _SLICE_ROWS or size >= _SLICE_BYTES:
                    return True
        finally:
            for lane, deliveries in by_lane.items():
                queue = lane.queue
                queue.restore_all(lane, deliveries)
                self._egresses[queue.target].mark_ready(lane)
        return False

    def _take(self, row: Row, by_lane: dict[Lane, list[Delivery]]) -> None:
        if row.target not in self._egresses and self._custody.has_many_letters(_MAX_WAITING_LETTERS):
            self.is_complete = False
            return
        self._numbers.add(row.number)
        self.latest_ms = max(self.latest_ms, row.entered_ms)
        self.entries += 1
        if (delivery := self._delivery(row)) is not None:
            lane = delivery.lane
            if lane in by_lane:
                by_lane[lane].append(delivery)
            else:
                by_lane[lane] = [delivery]

    def _delivery(self, row: Row) -> Delivery | None:
        try:
            message = codec.unpack(row.body)
        except codec.UnreadableError as exc:
            logger.error("row_unreadable file=%s number=%d error=%s", self._journal.path, row.number, exc)
            self.found.unreadable += 1
            self._custody.forget_row(row.number)
            return None
        way = row.route, row.source, row.target, row.outgoing, message.attributes
        place = self._places.get(way) or self._place(way)
        if place is None:
            self._custody.forget_row(row.number)
            sink = codec.outgoing(message.attributes, row.outgoing).sink
            self._homeless(message, row.source, Where(row.route, row.target, sink))
            return None
        lane, attributes = place
        received = Received(message)
        received.is_acknowledged = True
        leaving = message if attributes is message.attributes else UMessage(message.id, attributes, message.payload)
        now_s = self._clock.monotonic_s()
        received.since_s = now_s - waited_s(message.id, row.entered_ms, self._clock.wall_ms())
        delivery = Delivery(received, leaving, lane, row.number, leaving.size, now_s, row.entered_ms)
        delivery.attempts = row.attempts if row.attempts >= 0 else ~row.attempts
        delivery.history = REDELIVERED | RESTORED if row.attempts >= 0 else REDELIVERED | RESTORED | MAY_HAVE_ARRIVED
        self._custody.restored(delivery)
        self._seen.remember_pending(key_of(message), received)
        self.found.waiting += 1
        return delivery

    def _place(self, way: _Way) -> tuple[Lane, Attributes] | None:
        """Return the lane and the outgoing attributes of a message; None if its endpoint is gone."""
        route, source, target, change, incoming = way
        queue = self._queue(route, source, target)
        if queue is None:
            return None
        attributes = codec.outgoing(incoming, change)
        place = queue.lane((attributes.source, attributes.sink)), attributes
        self._places[way] = place
        return place

    def _queue(self, route: str, source: str, target: str) -> RouteQueue | None:
        queue = self._queue_of(route, source, target)
        if queue is not None:
            queue.may_retire = False
            self._queues.add(queue)
        return queue

    def _homeless(self, message: UMessage, source: str, where: Where) -> None:
        self.found.homeless += 1
        account = self._unrouted.get(source) or RouteStats()  # no account counts it if its source endpoint is gone as well
        self._settler.fail_unrouted(Received(message), source, account, _NO_WAY, where)

    def _segments(self) -> Iterator[None]:
        for segment in self._journal.segments():
            if segment.number not in self._numbers:
                self._take_segment(segment)
                yield

    def _take_segment(self, segment: Segment) -> None:
        egress = self._egresses.get(segment.target)
        store = None if egress is None else egress.store
        # A segment has thousands of messages.
        if store is None and (not self.is_complete or self._custody.has_many_letters(1)):
            self.is_complete = False
            return
        self._numbers.add(segment.number)
        self.entries += 1
        now_s = self._clock.monotonic_s()
        try:
            if store is None:
                self._homeless_segment(segment)
            else:
                self.found.unconfirmed += store.restore(segment.number, segment.body, self._flow, now_s, self._numbers)
        except (codec.UnreadableError, CorruptEntryError) as exc:
            logger.error("batch_unreadable endpoint=%s number=%d error=%s", segment.target, segment.number, exc)
            self.found.unreadable += 1
            self._custody.forget_batch(segment.number)

    def _homeless_segment(self, segment: Segment) -> None:
        """Dead-letter the messages of a segment. Raises `codec.UnreadableError` before it changes anything."""
        flows, start = codec.unpack_flows(segment.body)
        records = list(codec.unpack_records(segment.body, start))
        self._custody.forget_batch(segment.number)
        for record in records:
            if record.seq not in self._numbers:
                self._numbers.add(record.seq)
                flow = flows[record.flow]
                where = Where(flow.route, flow.target, codec.outgoing(flow.attributes, flow.outgoing).sink)
                self._homeless(UMessage(record.id, flow.attributes, record.payload), flow.source, where)

    def _flow(self, packed: codec.PackedFlow) -> tuple[Lane, Attributes]:
        queue = self._queue(packed.route, packed.source, packed.target)
        if queue is None:
            raise AssertionError("the endpoint has a store, so there is a queue")
        attributes = codec.outgoing(packed.attributes, packed.outgoing)
        return queue.lane((attributes.source, attributes.sink)), attributes
