"""Schedules custody's flushes. A flush wakes the event loop, so there are as few as the promised waiting times allow."""

from collections.abc import Callable
from typing import Final

from streamer.clock import Clock

FLUSH_S: Final = 0.01

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after a number of seconds, as asyncio's ``call_later`` does."""


class FlushTimes:
    """Calls ``flush`` at the times asked for. ``asked_s`` is the time of the oldest open request (monotonic)."""

    def __init__(self, later: Later, clock: Clock, flush: Callable[[], None]) -> None:
        self._later = later
        self._clock = clock
        self._flush = flush
        self.asked_s: float | None = None
        self._is_soon = self._is_late = self._is_next = False

    @property
    def is_soon(self) -> bool:
        """Whether a flush is due within `FLUSH_S`."""
        return self._is_soon or self._is_next

    def soon(self) -> None:
        """Schedule a flush within `FLUSH_S`."""
        self._ask()
        if not self._is_soon:
            self._is_soon = True
            self._later(FLUSH_S, self._at_soon)

    def late(self, within_s: float) -> None:
        """Schedule a flush within ``within_s`` seconds. An earlier schedule may delay it by that much."""
        if self.asked_s is None:  # called for every message
            self._ask()
        if within_s <= FLUSH_S:
            self.soon()
        elif not (self._is_soon or self._is_late):
            self._is_late = True
            self._later(within_s, self._at_late)

    def next(self) -> None:
        """Schedule a flush in the next cycle of the event loop."""
        self._ask()
        if not self._is_next:
            self._is_next = True
            self._later(0.0, self._at_next)

    def _ask(self) -> None:
        if self.asked_s is None:
            self.asked_s = self._clock.monotonic_s()

    def _at_soon(self) -> None:
        self._is_soon = False
        self._flush()

    def _at_late(self) -> None:
        self._is_late = False
        if not self._is_soon:  # else that flush comes within `FLUSH_S` and does the work of this one
            self._flush()

    def _at_next(self) -> None:
        self._is_next = False
        self._flush()
