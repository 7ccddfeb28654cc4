"""``make bench-fleet``: what a night costs beside the number of gateways. It should grow no faster than they do.

For each number, a day of `tests.spark.fleet_day` with so many records per gateway, a third of them of broadcasts to all, and
one night of its tables and report, in a process of its own. Prints its time, the CPU time and peak memory of Python and of
Java's machine, and the heap that was in use after its last full collection of garbage.
"""

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.bench.figures import plain
from tests.bench.peak_memory import PeakMemory
from tests.spark.fleet_day import generate_fleet, of_records

DAY = dt.date(2026, 11, 20)
ROOT = Path(__file__).parents[2]
_GIB, _MIB = 2**30, 2**20


def _java(me: psutil.Process) -> Iterator[psutil.Process]:
    return (each for each in me.children(recursive=True) if each.name() == "java")


def _cpu_s(processes: Iterator[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def night(traces: Path, tables: Path, memory: str) -> dict[str, Any]:
    """Run a night in this process. Returns what it took."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] --driver-memory {memory} pyspark-shell"
    from spark_jobs import nightly, records  # noqa: PLC0415  # after the environment is set
    from spark_jobs.session import session  # noqa: PLC0415

    context: Any = session(small=records.is_small(str(traces), [DAY])).sparkContext
    me = psutil.Process()
    began_s, python_s, java_s = time.perf_counter(), time.process_time(), _cpu_s(_java(me))
    with PeakMemory() as watched:
        code = nightly.main(["--input", str(traces), "--output", str(tables), "--date", str(DAY)])
    if code:
        raise SystemExit(code)
    found = {
        "wall_s": time.perf_counter() - began_s,
        "python_s": time.process_time() - python_s,
        "java_s": _cpu_s(_java(me)) - java_s,
        "python_bytes": watched.python_bytes,
        "java_bytes": watched.java_bytes,
    }
    context._jvm.java.lang.System.gc()
    heap = context._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return found | {"heap_bytes": heap.getUsed()}


def measured(gateways: int, each: int, memory: str) -> dict[str, Any]:
    """Generate the day of a fleet and run its night in a process of its own. Returns what that took."""
    with tempfile.TemporaryDirectory() as directory:
        traces = Path(directory) / "traces"
        truth = generate_fleet(of_records(DAY, gateways, gateways * each), traces)
        _run("tests.bench.fleet", "--night", directory, "--memory", memory)
        files = sum(1 for _ in traces.rglob("*.parquet"))
        found: dict[str, Any] = json.loads((Path(directory) / "took.json").read_text())
        return found | {"records": truth["records"], "files": files}


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def row(gateways: int, took: dict[str, Any]) -> list[str]:
    return [
        f"{gateways:,}",
        f"{took['records']:,}",
        f"{took['files']:,}",
        f"{took['wall_s']:.0f} s",
        f"{took['python_s']:.1f} s",
        f"{took['java_s']:.0f} s",
        f"{took['python_bytes'] / _MIB:.0f} MiB",
        f"{took['java_bytes'] / _GIB:.2f} GiB",
        f"{took['heap_bytes'] / _MIB:.0f} MiB",
    ]


HEAD = ("gateways", "records", "files", "time", "CPU, Python", "CPU, Java", "peak, Python", "peak, Java", "heap in use")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, nargs="+", default=[250, 500, 1000, 2000])
    parser.add_argument("--each", type=int, default=48, help="records per gateway")
    parser.add_argument("--memory", default="2g", help="Spark's driver memory")
    parser.add_argument("--night", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.night:
        took = night(given.night / "traces", given.night / "tables", given.memory)
        (given.night / "took.json").write_text(json.dumps(took))
        return
    found = [row(number, measured(number, given.each, given.memory)) for number in given.gateways]
    print("\n".join(plain(HEAD, found)))


if __name__ == "__main__":
    main()
