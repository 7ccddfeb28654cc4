"""A daemon of its own between two memory endpoints, for what a test of the console puts into its files. No tests."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.console.scene import TOKEN
from tests.process import StreamerProcess


@contextmanager
def memory_daemon(folder: Path, **changes: Any) -> Iterator[StreamerProcess]:
    """Its token is `TOKEN`. The browser has the event loop of this thread, so it starts and ends on another one."""
    (folder / "token").write_text(TOKEN)
    config = {
        "authority": "gateway.veh1",
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "console-vehicle"}},
            "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": "console-cloud"}},
        },
        "routes": [{"from": "vehicle", "to": "cloud"}],
        "control": {"http_token_file": str(folder / "token")},
        **changes,
    }
    daemon = StreamerProcess(folder, config)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, daemon.__aenter__()).result()
        yield daemon
        pool.submit(asyncio.run, daemon.__aexit__()).result()
