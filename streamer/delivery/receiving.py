"""Pauses and resumes receiving at an endpoint: while its backlog is large, and briefly while a destination is behind.

A source may be faster than its destination confirms. Its messages then wait in lanes, and those that wait for longer than
`flush_times.FLUSH_S` are written to the journal, which costs as much as forwarding them. A network such as Zenoh can hold
them back instead, if we stop reading for a moment. So once `MANY_WAIT` messages wait for room in the window of their
destination, receiving pauses until few do, or for `PACE_S`. If that time was not enough, the destination is slow, and for
`SLOW_S` there are no such pauses: the journal takes the messages. Nor is there a pause while messages of several priority
classes wait, because a message outside could not overtake those of lower classes.
"""

import logging
from collections.abc import Callable
from typing import Final

from streamer.clock import Clock
from streamer.delivery.backlog import Backlog
from streamer.delivery.egress import Egress
from streamer.delivery.flush_times import Later
from streamer.transports.base import UTransport

logger = logging.getLogger("ustreamer.ingress")

# At this backlog the transport is asked to pause; one with a window of its own stops by itself.
_PAUSE_AT = 1000
_PAUSE_AT_BYTES = 16 * 1024 * 1024

MANY_WAIT: Final = 32
PACE_S: Final = 0.03
SLOW_S: Final = 1.0


class Receiving:
    """Pauses and resumes the transport of the endpoint ``name``. ``is_held_up``: because of its backlog."""

    def __init__(self, name: str, transport: UTransport, later: Later, clock: Clock) -> None:
        self._name = name
        self._transport = transport
        self._later = later
        self._clock = clock
        self.is_held_up = False
        self._paces = 0  # how often it has waited for an egress
        self._waits_for: Egress | None = None
        self._freely_until_s = 0.0
        self._on_few: Callable[[], None] = self._few_wait  # made once
        self._is_free = True  # nothing is paused any more otherwise

    def close(self) -> None:
        """Receive nothing from now on."""
        self._is_free = False
        self._stop_waiting()
        self._transport.pause_receiving()

    def open(self, transport: UTransport) -> None:
        """Receive from another transport, after `close` or `take_all`."""
        self._transport = transport
        self._is_free = True
        self.is_held_up = False

    def take_all(self) -> None:
        """Receive without pauses from now on."""
        if self._is_free and (self.is_held_up or self._waits_for is not None):
            self._transport.resume_receiving()
        self._is_free = self.is_held_up = False
        self._stop_waiting()

    def take_freely(self, now_s: float) -> None:
        """Do not pause for a slow destination for a while: the source sends to several."""
        self._freely_until_s = now_s + SLOW_S

    def look_at(self, backlog: Backlog) -> None:
        """The backlog has grown or shrunk."""
        if not self._is_free:
            return
        if not self.is_held_up:
            if len(backlog) >= _PAUSE_AT or backlog.bytes >= _PAUSE_AT_BYTES:
                self.is_held_up = True
                self._transport.pause_receiving()
                self._log("paused", backlog)
        elif len(backlog) < _PAUSE_AT // 2 and backlog.bytes < _PAUSE_AT_BYTES // 2:
            self.is_held_up = False
            if self._waits_for is None:
                self._transport.resume_receiving()
            self._log("resumed", backlog)

    def wait_for(self, egress: Egress) -> None:
        """The last messages go to this egress: pause receiving for a moment, if many messages wait there already."""
        if self.is_held_up or self._waits_for is not None or not self._is_free or egress.surplus < MANY_WAIT:
            return
        if self._clock.monotonic_s() < self._freely_until_s:
            return
        self._waits_for = egress
        self._paces += 1
        pace = self._paces
        self._transport.pause_receiving()
        egress.flight.tell_when_few_wait(self._on_few)
        self._later(PACE_S, lambda: self._give_up(pace))

    def _few_wait(self) -> None:
        if self._waits_for is not None:
            self._stop_waiting()
            if not self.is_held_up:
                self._transport.resume_receiving()

    def _stop_waiting(self) -> None:
        if self._waits_for is not None:
            self._waits_for.flight.forget(self._on_few)
            self._waits_for = None

    def _give_up(self, pace: int) -> None:
        if pace == self._paces and self._waits_for is not None:
            self.take_freely(self._clock.monotonic_s())
            self._few_wait()

    def _log(self, state: str, backlog: Backlog) -> None:
        text = f"receiving_{state} endpoint=%s backlog=%d bytes=%d"
        told = {"state": (f"receiving {self._name}", state)}
        logger.info(text, self._name, len(backlog), backlog.bytes, extra=told)
