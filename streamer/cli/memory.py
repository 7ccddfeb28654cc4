"""Gives memory that is free back to the system.

What waits during an outage, or while the process is stopped for a moment, is in many small blocks between others that stay.
glibc keeps their pages when they are free, and gives back by itself only what is free at the end.
"""

import asyncio
import ctypes
from typing import Final

EVERY_S: Final = 60.0

_LIBC: Final = ctypes.CDLL(None)


def give_back() -> None:
    """Give back every page that is free throughout. Blocks, without the interpreter's lock. Does nothing without glibc."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(ctypes.c_size_t(0))


async def keep_giving_back() -> None:
    """Give back what is free now, and every `EVERY_S`; until cancelled."""
    while True:
        await asyncio.to_thread(give_back)
        await asyncio.sleep(EVERY_S)
