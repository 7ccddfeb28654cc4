"""The two clocks: the wall for TTLs, the monotonic one for everything that waits. Passed in, so that tests can steer."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the router asks for the time."""

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
