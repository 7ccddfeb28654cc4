"""Pauses and resumes receiving at an endpoint: while its backlog is large, and briefly while a destination is behind.

A source may be faster than its destination confirms. Its messages then wait in lanes, and those that wait for longer than
`flush_times.FLUSH_S` are written to the journal, which costs as much as forwarding them. A network such as Zenoh buffers
them if this endpoint stops reading for a moment (*pacing*). So once `MANY_WAITING_MESSAGES` messages wait for room in the
window of their destination, receiving pauses until few wait, or for `PACE_S`. If that time was not enough, the destination
is slow, and for `SLOW_S` there are no such pauses: the journal takes the messages. Nor is there a pause while messages of
several priority classes wait, because a message outside could not overtake those of lower classes.
"""

import logging
from collections.abc import Callable
from typing import Final

from streamer.clock import Clock
from streamer.delivery.custody.flush_times import Later
from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.outbound.egress import Egress
from streamer.transports.base import UTransport

logger = logging.getLogger("ustreamer.ingress")

# At this backlog the transport is paused; a source with a window stops by itself.
_PAUSE_AT = 1000
_PAUSE_AT_BYTES = 16 * 1024 * 1024

MANY_WAITING_MESSAGES: Final = 32
PACE_S: Final = 0.03
SLOW_S: Final = 1.0


class Receiving:
    """Pauses and resumes the transport of the endpoint ``name``. ``is_paused_by_backlog``: it is paused for its backlog."""

    def __init__(self, name: str, transport: UTransport, later: Later, clock: Clock) -> None:
        self._name = name
        self._transport = transport
        self._later = later
        self._clock = clock
        self.is_paused_by_backlog = False
        self._paces = 0  # how often receiving was paced
        self._paced_by: Egress | None = None
        self._no_pacing_until_s = 0.0
        self._on_few_waiting: Callable[[], None] = self._resume  # bound once
        self._may_pause = True  # False once it is closed or takes everything

    def close(self) -> None:
        """Pause receiving for good."""
        self._may_pause = False
        self._stop_pacing()
        self._transport.set_receiving(False)

    def open(self, transport: UTransport) -> None:
        """Receive from another transport, after `close` or `stop_pausing`."""
        self._transport = transport
        self._may_pause = True
        self.is_paused_by_backlog = False

    def stop_pausing(self) -> None:
        """Receive without pauses from now on."""
        if self._may_pause and (self.is_paused_by_backlog or self._paced_by is not None):
            self._transport.set_receiving(True)
        self._may_pause = self.is_paused_by_backlog = False
        self._stop_pacing()

    def disable_pacing(self, now_s: float) -> None:
        """Do not pace for `SLOW_S`, because the destination is slow, or the source sends to several."""
        self._no_pacing_until_s = now_s + SLOW_S

    def backlog_changed(self, backlog: Backlog) -> None:
        """Pause or resume receiving, after the backlog has grown or shrunk."""
        if not self._may_pause:
            return
        if not self.is_paused_by_backlog:
            if len(backlog) >= _PAUSE_AT or backlog.bytes >= _PAUSE_AT_BYTES:
                self.is_paused_by_backlog = True
                self._transport.set_receiving(False)
                self._log("paused", backlog)
        elif len(backlog) < _PAUSE_AT // 2 and backlog.bytes < _PAUSE_AT_BYTES // 2:
            self.is_paused_by_backlog = False
            if self._paced_by is None:
                self._transport.set_receiving(True)
            self._log("resumed", backlog)

    def pace(self, egress: Egress) -> None:
        """Pause receiving for `PACE_S` at most if many messages wait for the window of an egress, the last one used."""
        if self.is_paused_by_backlog or self._paced_by is not None or not self._may_pause:
            return
        if egress.waiting_for_window < MANY_WAITING_MESSAGES:
            return
        if self._clock.monotonic_s() < self._no_pacing_until_s:
            return
        self._paced_by = egress
        self._paces += 1
        pace = self._paces
        self._transport.set_receiving(False)
        egress.flight.call_when_few_wait(self._on_few_waiting)
        self._later(PACE_S, lambda: self._time_out(pace))

    def _resume(self) -> None:
        if self._paced_by is not None:
            self._stop_pacing()
            if not self.is_paused_by_backlog:
                self._transport.set_receiving(True)

    def _stop_pacing(self) -> None:
        if self._paced_by is not None:
            self._paced_by.flight.cancel_call(self._on_few_waiting)
            self._paced_by = None

    def _time_out(self, pace: int) -> None:
        if pace == self._paces and self._paced_by is not None:
            self.disable_pacing(self._clock.monotonic_s())
            self._resume()

    def _log(self, state: str, backlog: Backlog) -> None:
        text = f"receiving_{state} endpoint=%s backlog=%d bytes=%d"
        extra = {"state": (f"receiving {self._name}", state)}
        logger.info(text, self._name, len(backlog), backlog.bytes, extra=extra)
