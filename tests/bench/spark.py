"""``make bench-spark``: the whole nightly set on one generated day, and DuckDB doing the same aggregations beside it.

Reports seconds per table, records/s, CPU time, peak memory of the JVM and of Python, and bytes shuffled; run it with
several ``--records`` to see how the time grows. DuckDB has no staging, no manifests and no 14 days of memory: it is the
floor for one machine, not a rival.
"""

import argparse
import datetime as dt
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.bench.peak_memory import PeakMemory

DAY = dt.date(2026, 11, 20)
ROOT = Path(__file__).parents[2]

QUERIES = {
    "rollup tables": """
        SELECT hour, streamer, route, ingress, egress, src_authority, src_ue_id, sink_authority, outcome, ucode,
               CASE WHEN outcome IN ('expired', 'rejected', 'dead_lettered') THEN sink_ue_id END AS sink,
               count(*), sum(payload_bytes), sum(retries), max(retries), count_if(redelivered), min(ts), max(ts),
               count_if(ttl_ms * 1000 - age_us - latency_us <= 0), min(ttl_ms * 1000 - age_us - latency_us)
        FROM records GROUP BY ALL""",
    "latency, hourly": """
        SELECT hour, streamer, route, approx_quantile(latency_us, [0.5, 0.99]), approx_quantile(queue_wait_us, [0.5, 0.99])
        FROM records WHERE outcome = 'delivered' GROUP BY ALL""",
    "latency, daily, exact": """
        SELECT streamer, route, quantile_disc(latency_us, [0.5, 0.9, 0.95, 0.99, 0.999]), min(latency_us), max(latency_us),
               quantile_disc(queue_wait_us, [0.5, 0.9, 0.95, 0.99, 0.999])
        FROM records WHERE outcome = 'delivered' GROUP BY ALL""",
    "delivery_audit": """
        SELECT path, count(*), approx_quantile(last_us, [0.5, 0.99]), max(last_us)
        FROM (SELECT msg_id, string_agg(streamer || route || outcome, ',' ORDER BY ts) AS path,
                     max(age_us + latency_us) AS last_us
              FROM records GROUP BY msg_id)
        GROUP BY path""",
    "streamer_health": """
        SELECT streamer, run_ts, seq // 65536, count(*), min(seq), max(seq), min(ts), max(ts) FROM records GROUP BY ALL""",
}


def cpu_s() -> float:
    """What this process and its children, the JVM among them, have used so far."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def generate(traces: Path, records: int) -> int:
    command = [sys.executable, "-m", "spark_jobs.generate", "--output", str(traces), "--from", str(DAY)]
    begun_s = time.perf_counter()
    said = subprocess.run([*command, "--records", str(records)], cwd=ROOT, check=True, capture_output=True, text=True)
    found = re.match(r"(\d+) records", said.stdout)
    assert found is not None, said.stdout
    size = sum(file.stat().st_size for file in traces.rglob("*.parquet"))
    count = int(found[1])
    print(f"generated {count:,} records in {time.perf_counter() - begun_s:.0f} s, {size / count:.1f} bytes each")
    return count


def spark(traces: Path, tables: Path, count: int, cores: int, memory: str) -> None:
    """Run the nightly set here, so that Spark's own counters can be read at its end."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[{cores}] --driver-memory {memory} pyspark-shell"
    from spark_jobs import nightly, records  # noqa: PLC0415  # after the environment is set
    from spark_jobs.session import session  # noqa: PLC0415

    begun_s = time.perf_counter()
    context: Any = session(small=records.is_small(str(traces), [DAY])).sparkContext
    started_s = time.perf_counter() - begun_s
    with PeakMemory() as watched:
        begun_s, begun_cpu_s = time.perf_counter(), cpu_s()
        code = nightly.main(["--input", str(traces), "--output", str(tables), "--date", str(DAY)])
        took_s, took_cpu_s = time.perf_counter() - begun_s, cpu_s() - begun_cpu_s
    if code:
        raise SystemExit(code)
    executor = context._jsc.sc().statusStore().executorSummary("driver")
    scheduler = context._jsc.sc().dagScheduler()
    print(f"Spark, local[{cores}]: {took_s:.1f} s and {started_s:.1f} s to start, {count / took_s:,.0f} records/s")
    print(f"  {took_cpu_s:.1f} s of CPU, {scheduler.numTotalJobs()} jobs, {scheduler.nextStageId()} stages")
    print(f"  peak memory {watched.peak_bytes / 2**30:.2f} GiB (JVM and Python, driver memory {memory})")
    shuffled, read = executor.totalShuffleWrite() / 2**20, executor.totalInputBytes() / 2**20
    print(f"  shuffled {shuffled:,.0f} MiB, read from files {read:,.0f} MiB")
    print(f"  garbage collection {executor.totalGCTime() / 1000:.1f} s of {executor.totalDuration() / 1000:.1f} s in tasks")


def duckdb(traces: Path, cores: int) -> None:
    import duckdb as engine  # noqa: PLC0415  # only here

    begun_s, begun_cpu_s = time.perf_counter(), cpu_s()
    with PeakMemory() as watched, engine.connect(config={"threads": cores}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        source = f"read_parquet('{traces}/date={DAY}/*/*/*.parquet', hive_partitioning = true)"
        connection.execute(f"CREATE VIEW records AS SELECT * FROM {source}")
        for name, query in QUERIES.items():
            at_s = time.perf_counter()
            rows = len(connection.execute(query).fetchall())
            print(f"  {name}: {time.perf_counter() - at_s:.1f} s, {rows} rows")
    took_s, took_cpu_s = time.perf_counter() - begun_s, cpu_s() - begun_cpu_s
    memory = f"peak memory {watched.peak_bytes / 2**30:.2f} GiB"
    print(f"DuckDB, {cores} threads: {took_s:.1f} s, {took_cpu_s:.1f} s of CPU, {memory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g", help="Spark's driver memory")
    parser.add_argument("--traces", type=Path, help="folder to keep the generated day in, or to take it from")
    parser.add_argument("--no-duckdb", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        traces = a.traces or Path(directory) / "traces"
        kept = traces / "count"
        if kept.exists():
            count = int(kept.read_text())
        else:
            count = generate(traces, a.records)
            kept.write_text(str(count))
        if not a.no_duckdb:
            duckdb(traces, a.cores)
        spark(traces, Path(directory) / "tables", count, a.cores, a.memory)


if __name__ == "__main__":
    main()
