"""A disk that hangs returns from no fsync before it does not hang any more."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.fault.hanging_disk import WHILE, is_possible, preloaded

PROGRAM = "import os, sys\nprint('open', flush=True)\nos.fsync(os.open(sys.argv[1], os.O_RDWR))\nprint('synced', flush=True)"
"""Says when it has its file, and when it is synced."""


@pytest.mark.skipif(not is_possible(), reason="it takes a C compiler")
async def test_fsync_waits_for_the_disk(tmp_path: Path) -> None:
    hangs, file = tmp_path / "hangs", tmp_path / "file"
    hangs.touch()
    file.touch()
    environ = os.environ | preloaded(tmp_path) | {WHILE: str(hangs)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(file), env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.stdout.readline(), 0.3)
    hangs.unlink()
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"synced\n"
    assert await process.wait() == 0
