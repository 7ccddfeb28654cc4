"""Returns free memory to the operating system.

Messages that wait during an outage are in many small blocks among others that stay. When they are freed, glibc keeps their
pages: by itself it returns only free memory at the end of the heap.
"""

import asyncio
import ctypes
from typing import Final

EVERY_S: Final = 60.0

_LIBC: Final = ctypes.CDLL(None)


def give_back() -> None:
    """Return every entirely free page to the system. Blocks, without the GIL. Does nothing without glibc."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(ctypes.c_size_t(0))


async def keep_giving_back() -> None:
    """Return free memory now and every `EVERY_S` seconds, until cancelled."""
    while True:
        await asyncio.to_thread(give_back)
        await asyncio.sleep(EVERY_S)
