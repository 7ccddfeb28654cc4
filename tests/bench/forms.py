"""What is measured: the forms of the streamer, and what stands beside them. Each runs in a process of its own.

The compiled form is in a copy of the tree that ``make bench`` brings up to date: a compiled module beside its source would
hide every later change of it.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
COMPILED_TREE = ROOT / "build/bench/compiled"
_GATEWAY = Path(__file__).parent / "gateway"
"""Makes Python find no more than where only the streamer is installed."""

NAMES = {
    "raw": "raw loop",
    "compiled": "streamer, compiled",
    "traced": "streamer, pure",
    "streamer": "streamer, pure, no traces",
    "bridge": "aiomqtt bridge",
    "mosquitto": "mosquitto's bridge",
}


def streamers() -> list[str]:
    """The forms that can be measured here, everything on."""
    return ["compiled", "traced"] if list(COMPILED_TREE.glob("streamer/*/*.so")) else ["traced"]


def say(what: str) -> None:
    """What is being measured, for whoever waits for the tables."""
    print(f"… {what}", file=sys.stderr, flush=True)


class Child:
    """A child process that talks in lines."""

    def __init__(self, *args: str, form: str = "traced", program: str | None = None) -> None:
        command = [program] if program else [sys.executable, "-m"]
        self.process = subprocess.Popen(
            [*command, *args],
            cwd=COMPILED_TREE if form == "compiled" else ROOT,  # where Python looks for modules first
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{_GATEWAY}"},  # and then, for the tests
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if program else None,
            text=True,
        )
        self.watched = psutil.Process(self.process.pid)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def result(self) -> dict[str, float]:
        text = self.line()
        if not text:
            raise RuntimeError(f"{self.process.args!r} ended without a result")
        values: dict[str, float] = json.loads(text)
        return values

    def tell(self, **values: float) -> None:
        """Have it begin a phase, and wait until it has."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(values) + "\n")
        self.process.stdin.flush()
        self.line()

    def cpu_s(self) -> float:
        """CPU time of the process, to the nanosecond, and of those that it has started and that have ended."""
        own_s = time.clock_gettime(~self.process.pid << 3 | 2)  # CPUCLOCK_SCHED of a process, as clock_getcpuclockid(3) says
        ended = self.watched.cpu_times()
        return own_s + ended.children_user + ended.children_system

    def rss_mb(self) -> float:
        """Resident memory in millions of bytes."""
        return self.watched.memory_info().rss / 1e6

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=60)
