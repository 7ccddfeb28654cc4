"""The event loop's part of spans: puts a record per outcome of a sampled message into a bounded queue. Never waits.

A message with a ``traceparent`` is sampled if the flag in that is set, and its span is a child of the span named there.
Otherwise the message's id decides, and is the trace id: so all streamers on a message's path sample the same messages, and
their spans are in one trace.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.delivery.lane import RESTORED, Delivery, Lane
from streamer.delivery.tracer import Tracer
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.status import UCode

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]([0-9a-f])(?:$|-)")
_SAMPLED = frozenset("13579bdf")
_RANDOM_BITS = 56
"""Bits at the end of an id, random in every version of UUID that a message may have."""


class SpanRecord(NamedTuple):
    """The outcome of a message on a route. Times are Unix ns."""

    trace_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    names: tuple[str, str, str]
    """The names of route, ingress and egress; empty: none."""
    message_id: bytes
    attributes: Attributes
    """The message's attributes without token and traceparent."""
    outcome: Outcome
    code: UCode
    text: str
    attempts: int
    is_confirmed: bool


class Spans:
    """A `Tracer` that keeps records until `take` fetches them, which another thread may do."""

    def __init__(self, sample: float, max_queued: int, wall_ms: Callable[[], int]) -> None:
        """``sample``: the share of messages without a traceparent that are sampled, 0 to 1."""
        self.dropped = 0
        self._queue: deque[SpanRecord] = deque()
        self._max_queued = max_queued
        self._below = round(sample * (1 << _RANDOM_BITS))
        self._wall_ms = wall_ms

    def take(self, most: int) -> list[SpanRecord]:
        """Take up to ``most`` records, the oldest first."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def put_back(self, records: Sequence[SpanRecord]) -> None:
        """Put records from `take` back to the head of the queue."""
        self._queue.extendleft(reversed(records))

    def __len__(self) -> int:
        return len(self._queue)

    def delivered(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """The destination has confirmed these deliveries: record a span for each sampled one."""
        below = self._below
        for delivery in deliveries:
            message = delivery.message
            if message.attributes.traceparent or int.from_bytes(message.id[-7:], "big") < below:
                self._of_delivery(delivery, Outcome.DELIVERED, UCode.OK, "", now_s)

    def failed(self, delivery: Delivery, failure: Failure, now_s: float) -> None:
        """A delivery has failed: record its span."""
        self._of_delivery(delivery, failure.outcome, failure.code, failure.text, now_s)

    def unconfirmed(self, delivery: Delivery, now_s: float) -> bytes:
        """A delivery was sent to a network that does not confirm: record its span. Nothing is kept for `confirmed`."""
        self._of_delivery(delivery, Outcome.DELIVERED, UCode.OK, "", now_s, is_confirmed=False)
        return b""

    def confirmed(self, lane: Lane, packed: bytes | bytearray, now_s: float) -> None:
        """Nothing to do: the spans of these messages ended when they were sent."""

    def lost(self, lane: Lane, packed: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int) -> None:
        """Nothing to do: a message that cannot be read has no traceparent either."""

    def turned_away(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """A message never became a delivery: record its span."""
        if (context := self._context(message)) is not None:
            now_ns = now_ms * 1_000_000
            self._add(context, now_ns, now_ns, names, message, failure.outcome, failure.code, failure.text, 0, True)

    def _of_delivery(
        self, delivery: Delivery, outcome: Outcome, code: UCode, text: str, now_s: float, is_confirmed: bool = True
    ) -> None:
        message = delivery.message
        if (context := self._context(message)) is None:
            return
        end_ns = self._wall_ms() * 1_000_000
        start_ns = end_ns - max(0, round((now_s - delivery.entered_s) * 1e9))
        if delivery.history & RESTORED:
            start_ns = min(end_ns, delivery.entered_ms * 1_000_000)
        queue = delivery.lane.queue
        names = (queue.name, queue.source, queue.target)
        self._add(context, start_ns, end_ns, names, message, outcome, code, text, delivery.attempts, is_confirmed)

    def _context(self, message: UMessage) -> tuple[int, int | None] | None:
        """Return the ids of trace and parent; None: the message is not sampled."""
        traceparent = message.attributes.traceparent
        if traceparent and (match := _TRACEPARENT.match(traceparent)):
            return (int(match[1], 16), int(match[2], 16)) if match[3] in _SAMPLED else None
        if int.from_bytes(message.id[-7:], "big") >= self._below or not any(message.id):
            return None
        return int.from_bytes(message.id, "big"), None

    def _add(
        self,
        context: tuple[int, int | None],
        start_ns: int,
        end_ns: int,
        names: tuple[str, str, str],
        message: UMessage,
        outcome: Outcome,
        code: UCode,
        text: str,
        attempts: int,
        is_confirmed: bool,
    ) -> None:
        if len(self._queue) >= self._max_queued:
            self.dropped += 1
            return
        self._queue.append(
            SpanRecord(
                *context,
                start_ns,
                end_ns,
                names,
                message.id,
                message.attributes.shared,
                outcome,
                code,
                text,
                attempts,
                is_confirmed,
            )
        )


class TracerPair:
    """Passes every call on to two tracers. Only the first may pack records."""

    def __init__(self, first: Tracer, second: Tracer) -> None:
        self._first, self._second = first, second

    def delivered(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        self._first.delivered(deliveries, now_s)
        self._second.delivered(deliveries, now_s)

    def failed(self, delivery: Delivery, failure: Failure, now_s: float) -> None:
        self._first.failed(delivery, failure, now_s)
        self._second.failed(delivery, failure, now_s)

    def turned_away(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self._first.turned_away(message, names, failure, now_s, now_ms)
        self._second.turned_away(message, names, failure, now_s, now_ms)

    def unconfirmed(self, delivery: Delivery, now_s: float) -> bytes:
        self._second.unconfirmed(delivery, now_s)
        return self._first.unconfirmed(delivery, now_s)

    def confirmed(self, lane: Lane, packed: bytes | bytearray, now_s: float) -> None:
        self._first.confirmed(lane, packed, now_s)
        self._second.confirmed(lane, packed, now_s)

    def lost(self, lane: Lane, packed: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int) -> None:
        self._first.lost(lane, packed, count, failure, now_s, now_ms)
        self._second.lost(lane, packed, count, failure, now_s, now_ms)
