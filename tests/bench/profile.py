"""``make profile``: where the CPU time of a message goes, by stage and thread, with journal and traces on, at full speed.

Each round has two runs. In the first nothing watches but the kernel, which counts the CPU time of each thread. In the second
`py-spy` looks into the process many times a second, and stops it for a moment each time: so that run says what a thread does
with its time, not how much time that is. The time of a thread is spread over the stages as its samples are. Threads that run
no Python, such as Zenoh's, have one row together.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.forms import NAMES, ROOT, streamers
from tests.bench.run import measure

PY_SPY = Path(sys.executable).with_name("py-spy")
WARM_UP_S = 5.0  # the first sample reads the symbols of all libraries, while the process stands still
TICKS_PER_S = 100  # of /proc/PID/task/TID/stat

SWITCHES = "switches between threads"
# The interpreter's lock, and the locks that threads hand work over with.
_LOCKS = re.compile(r"take_gil|drop_gil|PyEval_(Restore|Save)Thread|PyThread_(acquire|release)|acquire_timed")

# The stage of a module of the streamer: the first pattern that matches its path below the package, and the function.
_STAGES = [
    (re.compile(pattern), stage)
    for pattern, stage in (
        (r"transports/(mqtt5/wire|zenoh/wire .*(encode|key_))", "encode"),
        (r"transports/(mqtt5/(decoder|frames|headers|intake)|zenoh/(intake|wire))", "decode"),
        (r"transports/", "session"),
        (r"delivery/(inbound|seen)|routing/", "ingress"),
        (r"delivery/lanes/", "lane"),
        (r"delivery/(outbound/|pump|custody/unconfirmed)", "egress"),
        (r"delivery/custody|journal/", "journal"),
        (r"features/traces/|delivery/observers", "trace"),
        (r"delivery/", "settle"),
        (r"(daemon|features|logs)", "daemon"),
    )
]
_THREADS = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"MainThread$", "event loop"),
        (r".*-send$", "sender"),
        (r"zenoh-recv", "receiver"),
        (r"journal$", "journal"),
        (r"trace-", "trace"),
        (r"(rx|tx|net|app|acc)-", "Zenoh"),
    )
]
STAGES = ["decode", "ingress", "lane", "egress", "encode", "session", "settle", "journal", "trace", "daemon", SWITCHES]
LOOP = "libraries and sockets"

_PYTHON = re.compile(r"(?P<function>\S+) \(streamer/(?P<path>[\w/]+)\.py:\d+\)")
_COMPILED = re.compile(r"CPy(?:Def|Py)_(?P<name>\w+?) \(streamer__mypyc")


def _compiled_names() -> dict[str, str]:
    """How mypyc may name a module in the symbols of its functions → the module's path below the package."""
    names: dict[str, str] = {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for module in project["tool"]["ustreamer"]["compiled"]:
        parts = module.split(".")[1:]
        for start in range(len(parts)):
            names["___".join(parts[start:])] = "/".join(parts)
    return names


def stage_of(frames: Sequence[str], compiled: dict[str, str]) -> str:
    """The stage that a stack, outermost frame first, belongs to: that of its innermost frame that has one."""
    if any(_LOCKS.match(frame) for frame in frames[-4:]):
        return SWITCHES
    for frame in reversed(frames):
        if found := _PYTHON.match(frame):
            place = f"{found['path']} {found['function']}"
        elif found := _COMPILED.match(frame):
            name = found["name"]
            heads = [head for head in compiled if name.startswith(f"{head}___")]
            if not heads:
                continue
            head = max(heads, key=len)
            place = f"{compiled[head]} {name[len(head) + 3 :]}"
        else:
            continue
        for pattern, stage in _STAGES:
            if pattern.match(place):
                return stage
    return LOOP


def thread_of(name: str) -> str:
    """What the table calls a thread; ``name`` is Python's, or the kernel's if Python does not know it."""
    return next((kind for pattern, kind in _THREADS if pattern.match(name)), "other")


class Threads:
    """The CPU time of each thread while something happens, in seconds, by what the table calls it."""

    def __init__(self) -> None:
        self.cpu_s: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def observe(self, pid: int) -> Iterator[None]:
        said = subprocess.run([PY_SPY, "dump", "--json", "--pid", str(pid)], capture_output=True, check=True)
        names = {each["os_thread_id"]: each["thread_name"] for each in json.loads(said.stdout)}
        before = self._read(pid)
        yield
        for thread, (name, ticks) in self._read(pid).items():
            spent = ticks - before.get(thread, (name, 0))[1]
            self.cpu_s[thread_of(names.get(thread) or name)] += spent / TICKS_PER_S

    @staticmethod
    def _read(pid: int) -> dict[int, tuple[str, int]]:
        found = {}
        for task in Path(f"/proc/{pid}/task").iterdir():
            head, _, rest = (task / "stat").read_text().rpartition(") ")
            fields = rest.split()
            found[int(task.name)] = (head.partition("(")[2], int(fields[11]) + int(fields[12]))
        return found


class Samples:
    """What threads do, by thread and stage: so many samples each."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    @contextmanager
    def observe(self, pid: int) -> Iterator[None]:
        compiled = _compiled_names()
        with tempfile.TemporaryDirectory() as directory:
            raw = Path(directory) / "raw"
            options = ["--native", "--threads", "--format", "raw", "--rate", str(self.rate), "--output", str(raw)]
            spy = subprocess.Popen(
                [PY_SPY, "record", "--pid", str(pid), "--duration", "600", *options],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(WARM_UP_S)
            try:
                yield
            finally:
                spy.send_signal(signal.SIGINT)
                spy.wait(60)
            for line in raw.read_text().splitlines():
                stack, _, count = line.rpartition(" ")
                thread, *frames = stack.split(";")
                self.counts[thread_of(thread.partition(": ")[2])][stage_of(frames, compiled)] += int(count)


def table(threads: Threads, samples: Samples, messages: int) -> Iterator[str]:
    """Lines of Markdown: µs per message by stage and thread."""
    busiest = sorted(threads.cpu_s.items(), key=lambda each: -each[1])
    columns = [name for name, cpu_s in busiest if cpu_s / messages * 1e6 >= 0.05]
    cells: dict[tuple[str, str], float] = {}
    for thread in columns:
        counts = samples.counts.get(thread) or Counter({LOOP if thread == "event loop" else "its own": 1})
        for stage, count in counts.items():
            cells[stage, thread] = threads.cpu_s[thread] / messages * 1e6 * count / counts.total()
    yield f"| stage | {' | '.join(columns)} | all |"
    yield "|---|" + "---|" * (len(columns) + 1)
    for stage in (*STAGES, LOOP, "its own"):
        row = [cells.get((stage, thread), 0.0) for thread in columns]
        if sum(row) >= 0.05:
            yield f"| {stage} | {' | '.join(f'{each:.1f}' if each >= 0.05 else '' for each in row)} | {sum(row):.1f} |"
    sums = [threads.cpu_s[thread] / messages * 1e6 for thread in columns]
    yield f"| all | {' | '.join(f'{each:.1f}' for each in sums)} | {sum(sums):.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="messages per run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--size", type=int, default=256, help="payload bytes")
    parser.add_argument("--rate", type=int, default=50, help="samples per second")
    parser.add_argument("--only", choices=("up", "down"), help="one direction")
    parser.add_argument("--pure", action="store_true", help="the pure form; otherwise the compiled one, if there is one")
    a = parser.parse_args()
    form = "traced" if a.pure else streamers()[0]
    for direction, name in (("down", "MQTT → Zenoh"), ("up", "Zenoh → MQTT")):
        if a.only in (None, direction):
            threads, samples = Threads(), Samples(a.rate)
            for _ in range(a.rounds):
                for observe in (threads.observe, samples.observe):
                    measure(form, direction, a.count, 0, a.size, has_journal=True, observe=observe)
            print(
                f"\n{name}, {NAMES[form]}: CPU µs per message, {a.rounds} rounds of {a.count} messages of {a.size} bytes\n"
            )
            print(*table(threads, samples, a.rounds * a.count), sep="\n", flush=True)


if __name__ == "__main__":
    main()
