"""The senders' timer, and the clocks that all parts of the demonstration share."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator


def now_ms() -> int:
    """Return Unix milliseconds, for ids and TTLs."""
    return time.time_ns() // 1_000_000


def now_s() -> float:
    """Return seconds of the monotonic clock, for latencies."""
    return time.monotonic()


async def wait(stop: asyncio.Event, within_s: float | None) -> None:
    """Wait for ``stop``, at most for so long; None: without an end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await stop.wait()


async def ticks(every_s: float, first_s: float, stop: asyncio.Event) -> AsyncIterator[int]:
    """Yield 0, 1, 2, … at a steady rate until ``stop``; a late tick does not delay the next one."""
    start_s = now_s() + first_s
    number = 0
    while True:
        wait_s = start_s + number * every_s - now_s()
        if wait_s > 0:
            await wait(stop, wait_s)
        if stop.is_set():
            return
        yield number
        number += 1
