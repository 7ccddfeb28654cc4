"""The machine's clocks."""

import time
from itertools import pairwise

from streamer.clock import SystemClock


def test_the_wall_clock_is_unix_milliseconds() -> None:
    before = time.time() * 1000
    now_ms = SystemClock().wall_ms()
    assert isinstance(now_ms, int)
    assert before - 1 <= now_ms <= time.time() * 1000


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    times_s = [clock.monotonic_s() for _ in range(1000)]
    assert all(earlier <= later for earlier, later in pairwise(times_s))


def test_the_monotonic_clock_is_the_one_of_the_event_loop() -> None:
    before_s = time.monotonic()
    assert before_s <= SystemClock().monotonic_s() <= time.monotonic()
