"""The tap: shows messages and their outcomes to people, live, while somebody watches.

The law of this file:
- It never delays a message. A tap keeps as many messages as it may show with the next `Tap.take`, with the start of their
  payload, and no more bytes than `MAX_BYTES`. A slow reader sees fewer messages.
- Messages that are not shown are counted.
- If there are more than may be shown, flows with few messages displace those with many; inside a flow, each message is as
  likely to be shown as any other.
- It keeps nothing that proves an identity: no token.

Pure: no event loop, no clock, no logger; time is passed in.
"""

from collections.abc import Sequence
from random import random
from typing import NamedTuple

from streamer.delivery.lanes.lane import RESTORED, Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.features.api.payloads import PAYLOAD_BYTES
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, sink_matches
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

SENT = "sent"
"""The outcome shown for a message that was sent to a network that does not confirm (Zenoh). It is not shown again."""

OUTCOMES = (SENT, *(outcome.value for outcome in Outcome))

MAX_BYTES = 1024 * 1024
"""How many bytes a tap keeps between two calls of `Tap.take`, by default."""

_ENTRY_BYTES = 1000  # of a message, without its payload
_TEXT = 500  # characters of a reason, which may contain text from other systems
_PICKS = 3  # messages that are examined, to find one to drop


class TapFilter(NamedTuple):
    """The messages that a tap shows; None: no restriction. ``endpoint`` is the ingress or the egress of a message."""

    route: str | None = None
    endpoint: str | None = None
    source: UUri | None = None
    sink: UUri | None = None
    types: tuple[UMessageType, ...] | None = None
    outcomes: tuple[str, ...] | None = None


class Tapped(NamedTuple):
    """One message with its outcome, as a tap shows it. ``in_daemon_s``: None if it is not known.

    ``payload``: its beginning; None if there is none, or it is not shown. ``payload_bytes``: None without a payload.
    """

    when_ms: int
    route: str
    ingress: str
    egress: str
    id: bytes
    attributes: Attributes
    outcome: str
    code: UCode
    text: str
    attempts: int
    in_daemon_s: float | None
    payload: bytes | None
    payload_bytes: int | None


class Tap(OutcomeObserver):
    """Keeps up to ``most`` messages that a filter lets through, until they are taken. ``left_out`` counts the others."""

    def __init__(self, wanted: TapFilter, most: int, with_payload: bool, max_bytes: int = MAX_BYTES) -> None:
        self.left_out = 0
        self._max_bytes = max_bytes
        self._wanted = wanted
        self._wants_all = wanted == TapFilter()
        self._most = most
        self._with_payload = with_payload
        self._kept: list[tuple[int, Tapped]] = []  # each with its number, in the order of their outcomes
        self._bytes = 0
        self._seen = 0
        self._of_flow: dict[Attributes, int] = {}

    def take(self) -> list[Tapped]:
        """Remove and return the messages kept since the last call, in the order of their outcomes."""
        kept, self._kept = self._kept, []
        self._of_flow = {}
        self._bytes = self._seen = 0
        kept.sort(key=_number)
        return [tapped for _, tapped in kept]

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        """Show deliveries that the destination has confirmed."""
        for delivery in deliveries:
            self._ended(delivery, Outcome.DELIVERED.value, UCode.OK, "", now_s, now_ms)

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        """Show a delivery that was sent to a network that does not confirm."""
        self._ended(delivery, SENT, UCode.OK, "", now_s, now_ms)
        return b""

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        """Show a delivery that has failed."""
        self._ended(delivery, failure.outcome.value, failure.code, failure.text, now_s, now_ms)

    def never_confirmed(
        self, lane: Lane, records: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Count messages of a lane that ended after they were sent: they were shown then."""
        attributes = Attributes(UMessageType.UNSPECIFIED, lane.key[0], lane.key[1])
        if self.wants(_names(lane), attributes, failure.outcome.value):
            self.left_out += count

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        """Show a message that never became a delivery."""
        self._show(message, names, failure.outcome.value, failure.code, failure.text, 0, None, now_ms)

    def _ended(self, delivery: Delivery, outcome: str, code: UCode, text: str, now_s: float, now_ms: int) -> None:
        in_daemon_s = None if delivery.history & RESTORED else now_s - delivery.entered_s
        names = _names(delivery.lane)
        self._show(delivery.message, names, outcome, code, text, delivery.attempts, in_daemon_s, now_ms)

    def _show(
        self,
        message: UMessage,
        names: tuple[str, str, str],
        outcome: str,
        code: UCode,
        text: str,
        attempts: int,
        in_daemon_s: float | None,
        now_ms: int,
    ) -> None:
        attributes, payload = message.attributes, message.payload
        if not self.wants(names, attributes, outcome) or not self._has_room(attributes, payload):
            return
        tapped = Tapped(
            now_ms,
            names[0],
            names[1],
            names[2],
            message.id,
            attributes.shared,  # without the token
            outcome,
            code,
            text[:_TEXT],
            attempts,
            in_daemon_s,
            payload[:PAYLOAD_BYTES] if self._with_payload and payload is not None else None,
            None if payload is None else len(payload),
        )
        self._kept.append((self._seen, tapped))
        self._bytes += self._size(payload)
        self._of_flow[tapped.attributes] = self._of_flow.get(tapped.attributes, 0) + 1

    def wants(self, names: tuple[str, str, str], attributes: Attributes, outcome: str) -> bool:
        """Whether the filter lets a message through. ``names``: of route, ingress and egress."""
        if self._wants_all:
            return True
        wanted = self._wanted
        if wanted.outcomes is not None and outcome not in wanted.outcomes:
            return False
        if wanted.route is not None and wanted.route != names[0]:
            return False
        if wanted.endpoint is not None and wanted.endpoint != names[1] and wanted.endpoint != names[2]:
            return False
        if wanted.types is not None and attributes.type not in wanted.types:
            return False
        if wanted.source is not None and not wanted.source.matches(attributes.source):
            return False
        return wanted.sink is None or sink_matches(wanted.sink, attributes.sink)

    def _has_room(self, attributes: Attributes, payload: bytes | None) -> bool:
        """Make room for a message, and return whether that succeeded. Messages that are dropped count as left out."""
        self._seen += 1
        size = self._size(payload)
        if len(self._kept) < self._most and self._bytes + size <= self._max_bytes:
            return True
        self.left_out += 1
        return self._make_room(attributes.shared, size)

    def _size(self, payload: bytes | None) -> int:
        """Return the bytes that a message takes here, given its whole payload or the part that is kept."""
        if payload is None or not self._with_payload:
            return _ENTRY_BYTES
        return _ENTRY_BYTES + min(len(payload), PAYLOAD_BYTES)

    def _make_room(self, flow: Attributes, size: int) -> bool:
        """Drop a kept message of a flow with more kept ones, or by chance of this flow. False: drop the new one."""
        kept = self._kept
        own = self._of_flow.get(flow, 0)
        is_drawn = random() * self._seen < len(kept)
        if not kept or (not is_drawn and own * len(self._of_flow) >= len(kept)):
            return False
        for _ in range(_PICKS):
            at = int(random() * len(kept))
            _, victim = kept[at]
            other = victim.attributes
            has_more = self._of_flow[other] > own + 1
            if not has_more and not (is_drawn and (other == flow or not own)):
                continue
            left = self._size(victim.payload)
            if self._bytes - left + size > self._max_bytes:
                continue
            kept[at] = kept[-1]
            kept.pop()
            self._bytes -= left
            if self._of_flow[other] == 1:
                del self._of_flow[other]
            else:
                self._of_flow[other] -= 1
            return True
        return False


def _names(lane: Lane) -> tuple[str, str, str]:
    queue = lane.queue
    return queue.name, queue.source, queue.target


def _number(entry: tuple[int, Tapped]) -> int:
    return entry[0]
