"""The wall clock for TTLs, and the monotonic clock for waiting. Passed in, so that tests control them."""

import time
from typing import Protocol

SET_BACK_S = 1.0
"""What sets the wall clock back by less corrects it, as NTP does all the time."""


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


class SetBacks:
    """Notices when the wall clock is set back. ``count``: how often that happened."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._zero_s = clock.wall_ms() / 1000 - clock.monotonic_s()  # when the monotonic clock was 0, by the wall clock

    def look(self, now_ms: int, now_s: float) -> float:
        """Return by how many seconds the wall clock was set back since the last look, if it is worth saying; else 0."""
        zero_s = now_ms / 1000 - now_s
        back_s, self._zero_s = self._zero_s - zero_s, zero_s
        return self.noted(back_s)

    def noted(self, back_s: float) -> float:
        """Count that the wall clock is this many seconds behind what it was; return them, or 0 if they are too few."""
        if back_s < SET_BACK_S:
            return 0.0
        self.count += 1
        return back_s
