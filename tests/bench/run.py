"""``make bench``: throughput, CPU per message and latency in both directions, beside a raw loop that routes nothing.

The raw loop and the streamer are measured in turn, so that a slow minute of the machine hits both. Figures are the
medians of the rounds. Latency is taken at a moderate rate, where it says something about the subject and not about the
length of the queue in front of it.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.brokers import Mosquitto, free_port

ROOT = Path(__file__).parents[2]

CONFIG = """
authority: gateway
endpoints:
  vehicle:
    transport: zenoh
    authorities: [veh1]
    options: {{mode: peer, connect: ["{endpoint}"]}}
  cloud:
    transport: mqtt5
    authorities: [cloud]
    options: {{broker: "mqtt://127.0.0.1:{port}", topics: off-vehicle}}
routes:
  - {{from: vehicle, to: cloud, publish: ["//veh1/FFFFFFFF/FF/FFFF"]}}
  - {{from: cloud, to: vehicle}}
metrics: {{listen: "127.0.0.1:{admin}"}}
log: {{level: error}}
shutdown: {{drain_s: 0}}
journal: {journal}
trace: {trace}
"""


@dataclass
class Figures:
    """One run."""

    rate: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    lag_p99_ms: float = 0.0
    """Of the event loop: upper bound of the histogram's bucket."""
    ready_s: float = 0.0
    """From the start of the streamer to the moment when all endpoints work."""
    rss_mb: float = 0.0
    """Resident memory of the streamer at the end, in millions of bytes."""


class Child:
    """A child process that talks in lines."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *args], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def result(self) -> dict[str, float]:
        text = self.line()
        if not text:
            raise RuntimeError(f"{self.process.args!r} ended without a result")
        values: dict[str, float] = json.loads(text)
        return values

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def cpu_s(self) -> float:
        """Of the process, and of those that it has started and that have ended."""
        times = psutil.Process(self.process.pid).cpu_times()
        return sum(times[:4])

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=30)


def wait_ready(admin: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=5) as answer:
                body = answer.read()
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as answer:
                if answer.read().count(b"} 1.0\n") and body.count(b"true"):
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise RuntimeError("the streamer did not become ready")


def lag_p99_ms(admin: int) -> float:
    """The 99th percentile of the event loop's lag: the bucket of the histogram that it lies in."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as answer:
        found = re.findall(r'event_loop_lag_seconds_bucket{le="([^"]+)"} (\S+)', answer.read().decode())
    total = float(found[-1][1])
    return next(float(bound) for bound, count in found if float(count) >= 0.99 * total) * 1000


def measure(
    subject: str,
    direction: str,
    count: int,
    rate: float,
    size: int,
    has_journal: bool,
    config: str = CONFIG,
    observe: Callable[[int], AbstractContextManager[object]] = nullcontext,
) -> Figures:
    """One run of ``subject`` in ``direction`` (up: Zenoh → MQTT, down: MQTT → Zenoh) with a configuration like `CONFIG`.

    Subjects: raw, streamer, and traced, which is the streamer with tracing on. While the messages pass, the subject is
    observed: ``observe`` gets its process id.
    """
    lag_ms = ready_s = rss_mb = 0.0
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    sender_kind, receiver_kind = ("zenoh", "mqtt") if direction == "up" else ("mqtt", "zenoh")
    children: list[Child] = []
    with Mosquitto(max_inflight=1000) as broker, tempfile.TemporaryDirectory() as directory:
        place = {"zenoh": ["--endpoint", endpoint], "mqtt": ["--port", str(broker.port)]}
        common = ["--count", str(count), "--size", str(size)]
        try:
            receiver = Child("tests.bench.load", f"{receiver_kind}-receive", *place[receiver_kind], *common)
            children.append(receiver)
            receiver.line()
            sender = Child("tests.bench.load", f"{sender_kind}-send", *place[sender_kind], *common, "--rate", str(rate))
            children.append(sender)
            sender.line()
            if subject == "raw":
                under_test = Child("tests.bench.raw", direction, *place["mqtt"], *place["zenoh"])
                children.append(under_test)
                under_test.line()
            else:
                admin = free_port()
                path = Path(directory) / "streamer.yaml"
                journal = f"{{path: {directory}/journal.db}}" if has_journal else "null"
                trace = f"{{path: {directory}/traces, rotate_s: 5}}" if subject == "traced" else "null"
                path.write_text(
                    config.format(endpoint=endpoint, port=broker.port, admin=admin, journal=journal, trace=trace)
                )
                begin_s = time.monotonic()
                under_test = Child("streamer", "run", "--config", str(path))
                children.append(under_test)
                wait_ready(admin)
                ready_s = time.monotonic() - begin_s
            time.sleep(1)  # routes and subscriptions spread through Zenoh
            before_s = under_test.cpu_s()
            with observe(under_test.process.pid):
                sender.go()
                result = receiver.result()
            cpu_s = under_test.cpu_s() - before_s
            if subject != "raw":
                lag_ms = lag_p99_ms(admin)
                rss_mb = psutil.Process(under_test.process.pid).memory_info().rss / 1e6
        finally:
            for child in reversed(children):
                child.end()
    if result["arrived"] != count:
        raise RuntimeError(f"{subject} {direction}: {result['arrived']} of {count} arrived")
    return Figures(
        count / result["seconds"], cpu_s / count * 1e6, result["p50_ms"], result["p99_ms"], lag_ms, ready_s, rss_mb
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="messages per throughput run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2000, help="messages/s of the latency run")
    parser.add_argument("--size", type=int, default=256, help="payload bytes")
    parser.add_argument("--no-journal", action="store_true", help="custody in memory only")
    parser.add_argument("--only", choices=("up", "down"), help="one direction")
    arguments = parser.parse_args()
    a = arguments
    print(f"{a.rounds} rounds of {a.count} messages of {a.size} bytes; latency at {a.rate:.0f} messages/s")
    print(f"{'direction':<15}{'subject':<10}{'messages/s':>12}{'CPU µs/msg':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for direction, name in (("down", "MQTT → Zenoh"), ("up", "Zenoh → MQTT")):
        if a.only not in (None, direction):
            continue
        runs: dict[str, list[Figures]] = {"raw": [], "streamer": []}
        slow: dict[str, list[Figures]] = {"raw": [], "streamer": []}
        for _ in range(arguments.rounds):
            for subject, results in runs.items():
                results.append(measure(subject, direction, a.count, 0, a.size, not a.no_journal))
                slow[subject].append(measure(subject, direction, int(a.rate * 5), a.rate, a.size, not a.no_journal))
        median = {
            subject: Figures(
                statistics.median(run.rate for run in runs[subject]),
                statistics.median(run.cpu_us for run in runs[subject]),
                statistics.median(run.p50_ms for run in slow[subject]),
                statistics.median(run.p99_ms for run in slow[subject]),
            )
            for subject in runs
        }
        for subject, figures in median.items():
            print(
                f"{name:<15}{subject:<10}{figures.rate:>12,.0f}{figures.cpu_us:>12.1f}"
                f"{figures.p50_ms:>9.2f}{figures.p99_ms:>9.2f}"
            )
        ratios = [s.cpu_us / r.cpu_us for s, r in zip(runs["streamer"], runs["raw"], strict=True)]
        speeds = [s.rate / r.rate for s, r in zip(runs["streamer"], runs["raw"], strict=True)]
        print(
            f"{name:<15}ratio: CPU per message {statistics.median(ratios):.2f} times the raw loop "
            f"({min(ratios):.2f}–{max(ratios):.2f}), throughput {statistics.median(speeds):.2f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
