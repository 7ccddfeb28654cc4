"""The event loop's part of tracing: packs one record per outcome into a buffer and hands full buffers to the spool.

Nothing here waits or fails. Records that cannot be handed over are counted and leave a gap in ``seq``.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from streamer.delivery.lanes.lane import REDELIVERED, RESTORED, Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.features.traces.record import DTYPE, NO_TTL, OUTCOME_NUMBERS, RECORD, Buffer, TraceFlow, pack_traceparent
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import OVERHEAD_BYTES, UMessage
from streamer.uprotocol.uri import UUri

MAX_RECORDS = 10_000
"""Records per buffer."""

MAX_AGE_S = 1.0

_SIZE: Final = RECORD.size
_BYTES: Final = MAX_RECORDS * _SIZE
_DELIVERED: Final = OUTCOME_NUMBERS[Outcome.DELIVERED]

Take = Callable[[Buffer], bool]
"""Takes a buffer to be written, without waiting; returns False if there is no room for it."""


class Recorder(OutcomeObserver):
    """Packs records for the router. ``transports``: the kind of transport of each endpoint, by name."""

    def __init__(self, transports: dict[str, str], take: Take, offset_us: Callable[[], int], config: str = "") -> None:
        """``offset_us``: Unix time minus the monotonic clock, in µs, now. ``config``: see `Buffer`."""
        self.records = 0
        self.dropped = 0
        self._transports = transports
        self._take = take
        self._offset_us = offset_us
        self._config = config
        self._seq = 0
        self._began_s = 0.0  # when the oldest record in the buffer was packed
        self._packed = bytearray(_BYTES)
        self._at = 0
        self._flows: list[TraceFlow] = []
        self._numbers: dict[object, int] = {}  # of the flows, by lane, or by names, source and sink

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        """Record deliveries that the destination has confirmed."""
        pack_into, numbers = RECORD.pack_into, self._numbers
        packed, at = self._packed, self._at
        if not at:
            self._began_s = now_s
        for delivery in deliveries:
            message = delivery.message
            attributes = message.attributes
            number = numbers.get(delivery.lane)
            if number is None:
                number = self._number_of(delivery.lane)
            payload = message.payload
            ttl = attributes.ttl
            pack_into(
                packed,
                at,
                number,
                0 if payload is None else len(payload),
                delivery.entered_s,
                delivery.sent_s,
                now_s,
                delivery.entered_ms,
                message.id,
                attributes.reqid or b"",
                NO_TTL if ttl is None else ttl,
                delivery.attempts,
                attributes.type,
                attributes.priority,
                _DELIVERED,
                0,
                delivery.history,
                b"" if attributes.traceparent is None else pack_traceparent(attributes.traceparent),
            )
            at += _SIZE
            if at == _BYTES:
                self._at = at
                self.hand_on()
                packed, at, numbers, self._began_s = self._packed, 0, self._numbers, now_s
        self._at = at

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        """Record a delivery that has failed."""
        outcome = OUTCOME_NUMBERS[failure.outcome]
        self._add(_pack(delivery, now_s, self._number_of(delivery.lane), outcome, failure.code), now_s)

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Record a message that never became a delivery."""
        source, sink = message.attributes.source, message.attributes.sink
        number = self._numbers.get((names, source, sink))
        if number is None:
            number = self._numbers[names, source, sink] = self._add_flow(names, source, sink)
        size, outcome = len(message.payload or b""), OUTCOME_NUMBERS[failure.outcome]
        self._add(_pack_message(message, number, size, now_s, 0.0, now_s, now_ms, 0, outcome, failure.code, 0), now_s)

    # -- unconfirmed deliveries

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        """Pack the record of a delivery that was sent to a network that does not confirm it, and return it."""
        return _pack(delivery, now_s, 0, _DELIVERED, 0)

    def confirmed(self, lane: Lane, records: bytes | bytearray, count: int, now_s: float) -> None:
        """Record messages of a lane that count as delivered now."""
        for start in range(0, len(records), _BYTES):
            piece = bytearray(records[start : start + _BYTES])
            if self._at + len(piece) > _BYTES:
                self.hand_on()
            np.frombuffer(piece, DTYPE)["flow"] = self._number_of(lane)  # a view: this changes the piece
            self._add(piece, now_s)

    def never_confirmed(
        self, lane: Lane, records: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Record the failure of sent messages of a lane. Those without a packed record get one without id and type."""
        rows = np.zeros(count, DTYPE)
        rows["entered_s"] = rows["settled_s"] = now_s
        rows["entered_ms"] = now_ms
        rows["ttl_ms"] = NO_TTL
        rows["flags"] = REDELIVERED | RESTORED
        known = np.frombuffer(records, DTYPE)
        rows[: len(known)] = known
        rows["outcome"] = OUTCOME_NUMBERS[failure.outcome]
        rows["code"] = failure.code
        self.confirmed(lane, rows.tobytes(), count, now_s)

    # -- handing over

    def tick(self, now_s: float) -> None:
        """Hand over a buffer that is old enough."""
        if self._at and self._began_s + MAX_AGE_S <= now_s:
            self.hand_on()

    def use(self, config: str) -> None:
        """Messages have their outcomes with another configuration from now on."""
        if config != self._config:
            self.hand_on()
            self._config = config

    def hand_on(self) -> None:
        """Hand over the buffer, to be written."""
        if not self._at:
            return
        count = self._at // _SIZE
        packed, self._packed = self._packed, bytearray(_BYTES)
        del packed[self._at :]
        buffer = Buffer(packed, self._flows, self._seq, self._offset_us(), self._config)
        self._at = 0
        self._flows, self._numbers = [], {}
        self._seq += count
        self.records += count
        if not self._take(buffer):
            self.dropped += count

    def _add(self, records: bytes | bytearray, now_s: float) -> None:
        if not self._at:
            self._began_s = now_s
        self._packed[self._at : self._at + len(records)] = records
        self._at += len(records)
        if self._at == _BYTES:
            self.hand_on()

    def _number_of(self, lane: Lane) -> int:
        number = self._numbers.get(lane)
        if number is None:
            queue = lane.queue
            number = self._numbers[lane] = self._add_flow((queue.name, queue.source, queue.target), *lane.key)
        return number

    def _add_flow(self, names: tuple[str, str, str], source: UUri, sink: UUri | None) -> int:
        route, ingress, egress = names
        kinds = self._transports
        self._flows.append(TraceFlow(route, source, sink, ingress, egress, kinds.get(ingress, ""), kinds.get(egress, "")))
        return len(self._flows) - 1


def _pack(delivery: Delivery, now_s: float, number: int, outcome: int, code: int) -> bytes:
    return _pack_message(
        delivery.message,
        number,
        delivery.size - OVERHEAD_BYTES - delivery.message.attributes.extra_bytes,  # the payload may be only in the journal
        delivery.entered_s,
        delivery.sent_s,
        now_s,
        delivery.entered_ms,
        delivery.attempts,
        outcome,
        code,
        delivery.history,
    )


def _pack_message(
    message: UMessage,
    number: int,
    payload_bytes: int,
    entered_s: float,
    sent_s: float,
    now_s: float,
    entered_ms: int,
    attempts: int,
    outcome: int,
    code: int,
    flags: int,
) -> bytes:
    attributes = message.attributes
    ttl = attributes.ttl
    return RECORD.pack(
        number,
        payload_bytes,
        entered_s,
        sent_s,
        now_s,
        entered_ms,
        message.id,
        attributes.reqid or b"",
        NO_TTL if ttl is None else ttl,
        attempts,
        attributes.type,
        attributes.priority,
        outcome,
        code,
        flags,
        b"" if attributes.traceparent is None else pack_traceparent(attributes.traceparent),
    )
