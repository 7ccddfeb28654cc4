"""``python -m tests.bench.week``: how long it takes to read the distinct flows out of seven days of traces.

The records are made by the product's own recorder format, compaction and layout: one Parquet file for each five minutes.
`streamer diff --traces` is to read 30 million of them within 20 s on a machine with two cores.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from streamer.features.traces.compact import PartFiles
from streamer.features.traces.layout import Folders
from streamer.features.traces.record import DTYPE, NO_TTL, OUTCOME_NUMBERS, Buffer, TraceFlow, to_columns
from streamer.routing.outcome import Outcome
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import UUri

STREAMER = "gateway.veh1"
END = datetime(2026, 11, 22, tzinfo=UTC)
DAYS = 7
_FILE_S = 300  # trace.rotate_s
_BATCH = 10_000  # traces.recorder.MAX_RECORDS
_SEED = 44


def trace_flows(count: int) -> tuple[list[TraceFlow], np.ndarray]:
    """Flows of a gateway, and the type of each: half of them Publishes to the cloud, the others calls and their answers."""
    flows, kinds = [], []
    for number in range(count):
        vehicle = UUri("veh1", 0x1_0000 + number, 2, 0x8000 + number % 100)
        app = UUri("app.cloud", 0x100 + number, 1, 0)
        method = UUri("veh1", 0x1_0000 + number, 2, 1 + number % 100)
        if number % 4 < 2:
            flows.append(TraceFlow("vehicle-cloud", vehicle, None, "vehicle", "cloud", "zenoh", "mqtt5"))
            kinds.append(UMessageType.PUBLISH)
        elif number % 4 == 2:
            flows.append(TraceFlow("cloud-vehicle", app, method, "cloud", "vehicle", "mqtt5", "zenoh"))
            kinds.append(UMessageType.REQUEST)
        else:
            flows.append(TraceFlow("vehicle-cloud", method, app, "vehicle", "cloud", "zenoh", "mqtt5"))
            kinds.append(UMessageType.RESPONSE)
    return flows, np.array(kinds, np.uint8)


def generate(folder: Path, records: int, flows: int) -> None:
    """Write the records of seven days, evenly over the time and by Zipf over the flows."""
    random = np.random.default_rng(_SEED)
    named, kinds = trace_flows(flows)
    weights = 1 / np.arange(1, flows + 1)
    shares = np.cumsum(weights / weights.sum())
    folders = Folders(folder, STREAMER)
    folders.create()
    files = DAYS * 86_400 // _FILE_S
    begin_ms = int(END.timestamp() - DAYS * 86_400) * 1000
    seq = 0
    for number in range(files):
        count = records * (number + 1) // files - records * number // files
        parts = PartFiles(folders, folders.spool / f"1-{number}.arrows")
        for start in range(0, count, _BATCH):
            size = min(_BATCH, count - start)
            rows = np.zeros(size, DTYPE)
            rows["flow"] = np.minimum(np.searchsorted(shares, random.random(size)), flows - 1)
            moments = begin_ms + number * _FILE_S * 1000 + (start + np.arange(size)) * _FILE_S * 1000 // max(count, 1)
            rows["entered_ms"] = moments
            rows["entered_s"] = moments / 1000
            rows["sent_s"] = rows["entered_s"] + random.exponential(0.001, size)
            rows["settled_s"] = rows["sent_s"] + random.exponential(0.02, size)
            ids = random.integers(0, 256, (size, 16), np.uint8)
            ids[:, :6] = (moments - 3).astype(">i8").view(np.uint8).reshape(-1, 8)[:, 2:]
            ids[:, 6] = 0x70 | ids[:, 6] & 0x0F
            rows["id"] = ids.view("V16").reshape(-1)
            rows["type"] = kinds[rows["flow"]]
            rows["priority"] = np.where(rows["type"] == UMessageType.PUBLISH, 2, 5)
            rows["ttl_ms"] = np.where(rows["type"] == UMessageType.REQUEST, 5000, NO_TTL)
            rows["payload_bytes"] = random.integers(20, 1500, size)
            rows["outcome"] = np.where(random.random(size) < 0.01, OUTCOME_NUMBERS[Outcome.EXPIRED], 0)
            parts.add(to_columns(Buffer(rows.tobytes(), named, seq, 0, "0123456789ab"), begin_ms * 1000))
            seq += size
        parts.publish()


READ = """
import json, resource, sys, time
from pathlib import Path
from streamer.features.traces.flows import read_week
begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
week = read_week(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), print)
print(json.dumps({
    "records": week.records, "files": week.files, "left_out": week.left_out, "flows": len(week.flows),
    "more_flows": week.more_flows, "more_messages": week.more_messages, "days": week.days,
    "per_day": sum(flow.messages_per_day for flow in week.flows),
    "s": time.perf_counter() - begun_s, "cpu_s": time.process_time() - begun_cpu_s,
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
}))
"""


def read(folder: Path) -> dict[str, float]:
    """Read the week in a process of its own; return its figures."""
    end_us = int(END.timestamp()) * 1_000_000
    arguments = [str(folder), str(end_us - DAYS * 86_400_000_000), str(end_us)]
    answer = subprocess.run([sys.executable, "-c", READ, *arguments], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=30_000_000)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--traces", type=Path, help="a folder to keep the records in, or to take them from")
    a = parser.parse_args()
    folder = a.traces or Path(tempfile.mkdtemp(prefix="week-"))
    try:
        if not any(folder.glob("date=*")):
            begun_s = time.perf_counter()
            generate(folder, a.records, a.flows)
            size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
            took_s = time.perf_counter() - begun_s
            print(f"generated {a.records:,} records in {took_s:.0f} s, {size / a.records:.1f} bytes each", flush=True)
        for _ in range(a.rounds):
            found = read(folder)
            print(
                f"{found['s']:.1f} s, {found['cpu_s']:.1f} s of CPU, {found['rss_mb']:.0f} MB: {found['records']:,.0f} "
                f"records in {found['files']:.0f} files, {found['flows']:.0f} flows",
                flush=True,
            )
    finally:
        if a.traces is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
