"""The wall clock, for TTLs, and the monotonic clock, for waiting. They are passed in, so that tests control them."""

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of both clocks."""

    def wall_ms(self) -> int:
        """Unix milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
