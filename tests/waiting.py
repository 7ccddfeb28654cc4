"""Waiting for a condition, always with a deadline."""

import asyncio
import time
from collections.abc import Callable

POLL_S = 0.002


async def until(condition: Callable[[], object], what: str = "the condition", within_s: float = 30.0) -> None:
    """Return once ``condition`` is true. Raises AssertionError if it is not within ``within_s``."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(POLL_S)
