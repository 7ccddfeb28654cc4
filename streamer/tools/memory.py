"""Returns free memory to the operating system, and says how much there may be.

Messages that wait during an outage are in many small blocks among others that stay. When they are freed, glibc keeps their
pages: by itself it returns only free memory at the end of the heap.
"""

import asyncio
import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

EVERY_S: Final = 60.0

_UNIT: Final = "streamer.service"
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


def allowed_bytes(cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> dict[str, int]:
    """Return how much memory this machine has, and each limit of this process's control groups, by what sets it."""
    found = {"this machine": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    for file in _limits(cgroup, root):
        with suppress(OSError, ValueError):  # ValueError: "max"
            found[str(file)] = int(file.read_text())
    return found


def _limits(cgroup: Path, root: Path) -> Iterator[Path]:
    lines = cgroup.read_text().splitlines() if cgroup.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers:
            top, name = root, "memory.max"
        elif controllers == "memory":  # version 1
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        yield from (folder / name for folder in (group, *group.parents) if folder.is_relative_to(top))


def unit_bytes() -> dict[str, int]:
    """Return ``MemoryMax`` of the service on this machine, if it has one; it need not run."""
    command = ["systemctl", "show", "--property=MemoryMax", "--value", _UNIT]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: "infinity"
        said = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout
        return {f"MemoryMax of {_UNIT}": int(said)}
    return {}
