"""Processes that the test of killed traces starts and kills: one writes a spool, one compacts it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from streamer.traces.compact import compact_spool
from streamer.traces.layout import Folders
from streamer.traces.spool import SpoolWriter
from tests.unit.traces.streams import noon_buffer

STREAMER = "gateway.veh1"
BATCH = 200
ROTATE_BYTES = 60_000
MAX_BYTES = 1024**3


def write(path: str, run_us: str) -> None:
    """Write batches for ever; say after each how many records are safe."""
    spool = SpoolWriter(Folders(Path(path), STREAMER), int(run_us), 3600, ROTATE_BYTES, MAX_BYTES, lambda: None)
    spool.start()
    count = 0
    while True:
        spool.take(noon_buffer(count, BATCH))
        count += BATCH
        while spool.written < count:
            time.sleep(0.0002)
        print(count, flush=True)  # noqa: T201  # this is how it talks to the test


def compact_when_told(path: str) -> None:
    """Compact once a line comes, and say so."""
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    compact_spool(Folders(Path(path), STREAMER), MAX_BYTES)
    print("compacted", flush=True)  # noqa: T201


def main() -> None:
    actions: dict[str, Callable[..., None]] = {"write": write, "compact": compact_when_told}
    actions[sys.argv[1]](*sys.argv[2:])
