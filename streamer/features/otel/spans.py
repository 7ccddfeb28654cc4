"""The event loop's part of spans: puts a record per outcome of a sampled message into a bounded queue. Never waits.

A message with a ``traceparent`` is sampled if the flag in that is set, and its span is a child of the span named there.
Otherwise the message's id decides, and is the trace id: so all streamers on a message's path sample the same messages, and
their spans are in one trace.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from streamer.delivery.lanes.lane import RESTORED, Delivery
from streamer.delivery.observers import OutcomeObserver
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


class Spans(OutcomeObserver):
    """Keeps records until `take` fetches them, which another thread may do.

    The span of a message that the destination's network does not confirm ends when the message is sent.
    """

    def __init__(self, sample: float, max_queued: int) -> None:
        """``sample``: the share of messages without a traceparent that are sampled, 0 to 1."""
        self.dropped = 0
        self._queue: deque[SpanRecord] = deque()
        self._max_queued = max_queued
        self._below = round(sample * (1 << _RANDOM_BITS))

    def take(self, most: int) -> list[SpanRecord]:
        """Take up to ``most`` records, the oldest first."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def put_back(self, records: Sequence[SpanRecord]) -> None:
        """Put records from `take` back to the head of the queue."""
        self._queue.extendleft(reversed(records))

    def __len__(self) -> int:
        return len(self._queue)

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        """Record a span for each sampled delivery."""
        below = self._below
        for delivery in deliveries:
            message = delivery.message
            if message.attributes.traceparent or int.from_bytes(message.id[-7:], "big") < below:
                self._of_delivery(delivery, Outcome.DELIVERED, UCode.OK, "", now_s, now_ms)

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        """Record the span of a delivery that has failed."""
        self._of_delivery(delivery, failure.outcome, failure.code, failure.text, now_s, now_ms)

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        """Record the span of a delivery that its network does not confirm."""
        self._of_delivery(delivery, Outcome.DELIVERED, UCode.OK, "", now_s, now_ms, is_confirmed=False)
        return b""

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Record the span of a message that never became a delivery."""
        if (context := self._context(message)) is not None:
            now_ns = now_ms * 1_000_000
            self._add(context, now_ns, now_ns, names, message, failure.outcome, failure.code, failure.text, 0, True)

    def _of_delivery(
        self,
        delivery: Delivery,
        outcome: Outcome,
        code: UCode,
        text: str,
        now_s: float,
        now_ms: int,
        is_confirmed: bool = True,
    ) -> None:
        message = delivery.message
        if (context := self._context(message)) is None:
            return
        end_ns = now_ms * 1_000_000
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
