"""kill -9 of the processes that write and compact traces, at random points: nothing torn, lost or doubled."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamer.features.traces.compact import compact_spool
from streamer.features.traces.layout import Folders
from streamer.features.traces.spool import SpoolWriter
from tests.fault.trace_children import MAX_BYTES, STREAMER, compact_when_told, write
from tests.preloaded import FORKS

SEEDS = range(3)
RUNS = 4
COMPACTIONS = 3


@contextmanager
def child(action: Callable[..., None], *arguments: object) -> Iterator[tuple[ForkServerProcess, Connection]]:
    """A process, and the connection by which it talks to us. It is killed at the end."""
    ours, told = FORKS.Pipe()
    process = FORKS.Process(target=action, args=(told, *arguments), daemon=True)
    process.start()
    told.close()
    with ours:
        try:
            yield process, ours
        finally:
            process.kill()
            process.join()


def write_and_kill(path: Path, run_us: int, batches: int) -> int:
    """Run a daemon and kill it after so many batches. Returns how many records were safe by its own word."""
    with child(write, path, run_us) as (writer, told):
        safe = 0
        for _ in range(batches):
            safe = told.recv()
        writer.kill()
        with suppress(EOFError):
            while True:  # what it said before it was killed
                safe = told.recv()
    return safe


def compact_and_kill(path: Path, after_s: float) -> None:
    with child(compact_when_told, path) as (_, told):
        assert told.recv() == "ready"
        told.send("go")
        time.sleep(after_s)  # the moment of the kill is what is random here


def parquet_records(path: Path) -> Counter[tuple[int, int]]:
    """(run, seq) of everything under a final name. A torn file would raise."""
    found: Counter[tuple[int, int]] = Counter()
    for file in path.glob("date=*/**/*"):
        if file.is_file():
            assert file.suffix == ".parquet"
            table = pq.ParquetFile(file).read(["run_ts", "seq"])
            runs = table.column("run_ts").cast("int64").to_pylist()
            found.update(zip(runs, table.column("seq").to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed}")
def test_records_of_completed_batches_are_kept_once_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "traces"
    safe: dict[int, int] = {}
    for run in range(1, RUNS + 1):
        safe[run] = write_and_kill(path, run_us=run, batches=rng.randrange(1, 60))
        for _ in range(rng.randrange(COMPACTIONS)):
            compact_and_kill(path, rng.uniform(0, 0.06))
            assert max(parquet_records(path).values(), default=1) == 1
    folders = Folders(path, STREAMER)
    last = SpoolWriter(folders, 99, 3600, MAX_BYTES, MAX_BYTES, lambda: None)  # the next start
    last.start()
    assert last.stop(10)
    compact_spool(folders, MAX_BYTES)
    found = parquet_records(path)
    assert set(found.values()) == {1}
    missing = [(run, seq) for run, count in safe.items() for seq in range(count) if (run, seq) not in found]
    assert missing == []
    assert [*folders.closed(), *folders.left_open(), *folders.unfinished.iterdir()] == []
