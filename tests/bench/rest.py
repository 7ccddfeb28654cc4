"""What a streamer takes that has nothing to do: memory, CPU time, wake-ups; and how long it takes to be ready.

It is connected to a broker and to a Zenoh peer, and neither has anything to say.
"""

import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.forms import NAMES, say
from tests.bench.run import Crossing, Streamer

_SETTLES_S = 5.0  # after the start


class Rest(NamedTuple):
    """One start."""

    ready_s: float
    rss_mb: float
    cpu_percent: float
    wakeups_per_s: float


def wakeups(pid: int) -> int:
    """How often the threads of a process have waited for something so far."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            count += int(value) if name == "voluntary_ctxt_switches" else 0
    return count


def use(subject: Streamer, seconds: float) -> tuple[float, float]:
    """What it uses meanwhile: CPU time in percent of a core, and wake-ups a second."""
    before_s, before = subject.cpu_s(), wakeups(subject.process.pid)
    time.sleep(seconds)
    return 100 * (subject.cpu_s() - before_s) / seconds, (wakeups(subject.process.pid) - before) / seconds


def at_rest(form: str, seconds: float, is_traced: bool) -> Rest:
    """Start it, and look at it for so long."""
    say(f"at rest: {NAMES[form]}, traces {'on' if is_traced else 'off'}")
    with Crossing(form, "up", is_traced=is_traced) as crossing:
        subject = crossing.subject
        assert isinstance(subject, Streamer)
        time.sleep(_SETTLES_S)
        cpu_percent, wakeups_per_s = use(subject, seconds)
        return Rest(subject.ready_s, subject.rss_mb(), cpu_percent, wakeups_per_s)
