"""Processes that the test of killed traces starts and kills: one writes a spool, one compacts it."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from streamer.features.traces.compact import compact_spool
from streamer.features.traces.layout import Folders
from streamer.features.traces.spool import SpoolWriter
from tests.unit.features.traces.streams import noon_buffer

STREAMER = "gateway.veh1"
BATCH = 200
ROTATE_BYTES = 60_000
MAX_BYTES = 1024**3


def write(told: Connection, path: Path, run_us: int) -> None:
    """Write batches for ever; say after each how many records are safe."""
    spool = SpoolWriter(Folders(path, STREAMER), run_us, 3600, ROTATE_BYTES, MAX_BYTES, lambda: None)
    spool.start()
    count = 0
    while True:
        spool.take(noon_buffer(count, BATCH))
        count += BATCH
        while spool.written < count:
            time.sleep(0.0002)
        told.send(count)


def compact_when_told(told: Connection, path: Path) -> None:
    """Compact once the test says so."""
    told.send("ready")
    told.recv()
    compact_spool(Folders(path, STREAMER), MAX_BYTES)
