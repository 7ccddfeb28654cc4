"""The wall clock for TTLs, and the monotonic clock for waiting. Passed in, so that tests control them."""

import time
from typing import Protocol


class Clock(Protocol):
    """The interface of the clocks."""

    def wall_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Return the time in seconds on the monotonic clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
