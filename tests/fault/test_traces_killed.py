"""kill -9 of the processes that write and compact traces, at random points: nothing torn, lost or doubled."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamer.traces.compact import compact_spool
from streamer.traces.layout import Folders
from streamer.traces.spool import SpoolWriter
from tests.fault.trace_children import MAX_BYTES, STREAMER

SEEDS = range(3)
RUNS = 4
COMPACTIONS = 3
CHILD = """
import sys

class WithoutPandas:
    @staticmethod
    def find_spec(name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, WithoutPandas)

from tests.fault.trace_children import main

main()
"""
"""A streamer has no pandas. Where it is installed, as for the tests of the jobs, pyarrow spends half of the start on it."""


def child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def write_and_kill(path: Path, run_us: int, lines: int) -> int:
    """Run a daemon and kill it after so many batches. Returns how many records were safe by its own word."""
    with child("write", str(path), str(run_us)) as writer:
        assert writer.stdout is not None
        safe = 0
        for _ in range(lines):
            safe = int(writer.stdout.readline())
        writer.kill()
        for line in writer.stdout:  # what it said before it was killed
            if line.endswith("\n"):
                safe = int(line)
    return safe


def compact_and_kill(path: Path, after_s: float) -> None:
    with child("compact", str(path)) as compaction:
        assert compaction.stdin is not None
        assert compaction.stdout is not None
        assert compaction.stdout.readline() == "ready\n"
        compaction.stdin.write("go\n")
        compaction.stdin.flush()
        time.sleep(after_s)  # the moment of the kill is what is random here
        compaction.kill()


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
        safe[run] = write_and_kill(path, run_us=run, lines=rng.randrange(1, 60))
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
