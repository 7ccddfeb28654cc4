"""Log lines about single flows: failed messages, held flows, malformed and unwanted packets.

The law of this file:
- In each window (``log.repeat_s``) a flow gets one line, and each event at most `LINES` lines per endpoint. Anybody can
  cause any number of refused messages, so a suppressed line must cost next to nothing: its text is never made.
- When the window is over, the last suppressed line of each flow is written, with the number of those before it. So the last
  line about a flow is true. That holds for `FLOWS` flows; the others are counted together.
- Neither payloads nor tokens are logged, and every text is bounded.
- Denials by permissions are in the audit log, once per flow. Here such messages are only counted.

Call `tick` regularly.
"""

import logging
from collections.abc import Callable, Hashable
from functools import partial

from streamer.clock import Clock
from streamer.config.models import LogConfig
from streamer.delivery.lanes.lane import Lane
from streamer.logs.limit import Limit
from streamer.logs.lines import MAX_VALUE, bounded
from streamer.routing.outcome import Failure
from streamer.transports.errors import MalformedPacketError, Unwanted
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

SHORTEST_WINDOW_S = 1.0
"""The shortest window, also if ``log.repeat_s`` is 0, which disables suppression of all other lines."""

LINES = 50
"""The maximum number of lines of one event at one endpoint in a window."""

FLOWS = 50
"""For how many flows the last suppressed line is kept, for each event and endpoint."""

CHANGES = 4
"""How many lines per flow and window report that it is held or released."""

DEAD_LETTERED = "message_dead_lettered"
GIVEN_UP = "message_given_up"
REFUSED = "message_refused"
MALFORMED = "malformed_packet"
UNWANTED = "unwanted_packets"
HELD = "flow_held"
RELEASED = "flow_released"

PAUSED = "paused"
NOBODY_LISTENS = "nobody listens"
UNCONFIRMED = "too much of it is unconfirmed"
"""Why a flow is held."""

_MESSAGE = "outcome=%s code=%s reason=%s source=%s sink=%s id=%s route=%s ingress=%s egress=%s attempts=%d"
_FLOW = "endpoint=%s route=%s source=%s sink=%s reason=%s waiting=%d"
_FIELDS = {
    DEAD_LETTERED: _MESSAGE,
    GIVEN_UP: _MESSAGE,
    REFUSED: _MESSAGE,
    MALFORMED: "endpoint=%s reason=%s detail=%s",
    UNWANTED: "endpoint=%s reason=%s source=%s sink=%s count=%d",
    HELD: _FLOW,
    RELEASED: _FLOW,
}
_LIMITED = {"left_out": 0}
"""Marks a line that `streamer.logs.output` must not limit again."""

_INFO = frozenset((HELD, RELEASED, UNWANTED))

_Values = tuple[object, ...]
_Kept = tuple[str, Callable[[], _Values]]
"""An event, and a function that returns the values of its fields."""

logger = logging.getLogger("ustreamer.flows")


class FlowLog:
    """Writes lines about single flows, within the limits."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.monotonic_s
        self._window_s = SHORTEST_WINDOW_S
        self._limits: dict[tuple[str, str], Limit[Hashable, _Kept]] = {}  # by event and endpoint

    def use(self, config: LogConfig) -> None:
        """Use the window length of another configuration from the next window on."""
        self._window_s = max(config.repeat_s, SHORTEST_WINDOW_S)

    def failed(
        self, message: UMessage, failure: Failure, names: tuple[str, str, str], attempts: int = 0, event: str = REFUSED
    ) -> None:
        """Log that a message was not delivered. ``names``: of route, ingress and egress; empty for none.

        ``event``: `DEAD_LETTERED` or `GIVEN_UP` if the message was accepted on a route. Anybody can cause other failures in
        any number, so these are limited separately.
        """
        if not logger.isEnabledFor(logging.WARNING):
            return
        endpoint = names[1] if event == REFUSED else names[2]
        attributes = message.attributes
        source, sink = attributes.source, attributes.sink
        kept = (event, partial(_of_message, message.id, failure, source, sink, names, attempts))
        kind = (names[0], source, sink, failure.code)
        self._write(event, endpoint, kind, kept, 0 if failure.is_audited else 1)

    def malformed(self, endpoint: str, error: MalformedPacketError) -> None:
        """Log that a packet from an endpoint is not a valid message."""
        if logger.isEnabledFor(logging.WARNING):
            kept = (MALFORMED, partial(_as_given, endpoint, error.reason.value, str(error)[: MAX_VALUE + 1]))
            self._write(MALFORMED, endpoint, error.reason, kept)

    def unwanted(self, endpoint: str, reason: Unwanted, number: int, attributes: Attributes | None) -> None:
        """Log that no listener took ``number`` packets from an endpoint. ``attributes``: those of one packet, if known."""
        if logger.isEnabledFor(logging.INFO):
            source, sink = (None, None) if attributes is None else (attributes.source, attributes.sink)
            kept = (UNWANTED, partial(_as_given, endpoint, reason.value, source, sink, number))
            self._write(UNWANTED, endpoint, (reason, source, sink), kept)

    def held(self, lane: Lane, reason: str, event: str = HELD) -> None:
        """Log that a flow is held for a reason or, with `RELEASED`, no longer held for it."""
        if logger.isEnabledFor(logging.INFO):
            queue = lane.queue
            kept = (event, partial(_as_given, queue.target, queue.name, *lane.key, reason, lane.queued_messages))
            self._write(HELD, queue.target, (queue.name, lane.key, reason), kept, CHANGES)

    def tick(self, is_end: bool = False) -> None:
        """Write the last suppressed lines whose window is over, or with ``is_end`` all of them."""
        now_s = self._now_s()
        for (event, endpoint), limit in list(self._limits.items()):
            if limit.is_idle:
                del self._limits[event, endpoint]
            for kind, times, last in limit.over(now_s, is_end):
                if kind is None:
                    logger.warning("flows_left_out of=%s endpoint=%s count=%d", event, endpoint, times, extra=_LIMITED)
                else:
                    _say(last, times - 1)

    def _write(self, event: str, endpoint: str, kind: Hashable, kept: _Kept, most: int = 1) -> None:
        limit = self._limits.get((event, endpoint))
        if limit is None:
            limit = self._limits[event, endpoint] = Limit(self._window_s, LINES, FLOWS)
        now_s = self._now_s()
        if limit.has_line(kind, now_s, most):
            _say(kept, limit.left_out(kind))
        else:
            limit.leave_out(kind, kept, now_s)


def _say(kept: _Kept, left_out: int) -> None:
    event, values = kept
    level = logging.INFO if event in _INFO else logging.WARNING
    logger.log(level, f"{event} {_FIELDS[event]}", *map(bounded, values()), extra={"left_out": left_out})


def _of_message(
    uuid: bytes, failure: Failure, source: UUri, sink: UUri | None, names: tuple[str, str, str], attempts: int
) -> _Values:
    return (failure.outcome.value, failure.code.name, failure.text, source, sink, _id(uuid), *names, attempts)


def _as_given(*values: object) -> _Values:
    return values


def _id(uuid: bytes) -> str:
    """Return an id as text, also if it is not a UUID."""
    return format_id(uuid) if len(uuid) == 16 else uuid.hex()
