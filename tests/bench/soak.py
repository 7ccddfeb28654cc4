"""``make soak``: whether memory stays flat, with and without new flows.

Messages go both ways at a fixed rate, everything on. There are three phases: nothing new; new flows from Zenoh; new flows
from MQTT, so many a second. The slope is that of the second half of a phase. Few ids are remembered, for that memory has a
bound that would only be reached after minutes.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.bench.figures import markdown, plain, slope_per_minute, text
from tests.bench.forms import NAMES, streamers
from tests.bench.run import Crossing, Streamer, lag_p99_ms

_LINE_S = 30.0
_SAMPLE_S = 1.0
_MIB = 1.048576  # in millions of bytes
_NEW = ("--flows", str(1 << 20))
_OTHERS = {
    "down sender": ("mqtt-send",),
    "down receiver": ("zenoh-receive",),
    "new from Zenoh": ("zenoh-send", "--first", "1000", *_NEW),
    "new from MQTT": ("mqtt-send", "--first", "1000", *_NEW),
}
PHASES = {"nothing new": None, "new flows from Zenoh": "new from Zenoh", "new flows from MQTT": "new from MQTT"}
HEADER = ["phase", "RSS MiB, from, to", "MiB a minute, second half", "CPU %", "lag p99 ms, at most", "arrived"]


@dataclass(slots=True)
class Phase:
    """What was seen in a phase: seconds since its beginning, and the memory at that moment."""

    name: str
    seconds: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    cpu_percent: float = 0.0
    lag_p99_ms: float = 0.0
    arrived: float = 0.0

    def cells(self) -> list[str]:
        return [
            self.name,
            f"{text(self.rss_mib[0])} → {text(self.rss_mib[-1])}",
            text(slope_per_minute(self.seconds, self.rss_mib)),
            text(self.cpu_percent),
            text(self.lag_p99_ms),
            f"{100 * self.arrived:.0f} %",
        ]


def soak(crossing: Crossing, name: str, a: argparse.Namespace) -> Phase:
    """One phase."""
    found, loads, subject = Phase(name), crossing.loads, crossing.subject
    assert isinstance(subject, Streamer)
    seconds, newcomers = a.seconds / len(PHASES), PHASES[name]
    usual, new = int(a.rate * seconds), int(a.new * seconds)
    up, down = (usual + new * (newcomers == each) for each in ("new from Zenoh", "new from MQTT"))
    loads["receiver"].tell(count=up)
    loads["down receiver"].tell(count=down)
    began_s, began_cpu_s, lags = time.monotonic(), subject.cpu_s(), subject.lags()
    for sender in ("sender", "down sender"):
        loads[sender].tell(count=usual, rate=a.rate)
    if newcomers:
        loads[newcomers].tell(count=new, rate=a.new)
    said_s = 0.0
    while (passed_s := time.monotonic() - began_s) < seconds:
        found.seconds.append(passed_s)
        found.rss_mib.append(subject.rss_mb() / _MIB)
        if passed_s - said_s >= _LINE_S or not said_s:
            said_s = passed_s
            print(f"{name:<22}{passed_s:>6.0f} s  RSS {found.rss_mib[-1]:6.1f} MiB", flush=True)
        time.sleep(min(_SAMPLE_S, seconds - passed_s))
    found.cpu_percent = 100 * (subject.cpu_s() - began_cpu_s) / (time.monotonic() - began_s)
    found.lag_p99_ms = lag_p99_ms(lags, subject.lags())
    for sender in ("sender", "down sender", *([newcomers] if newcomers else [])):
        loads[sender].line()
    results = [loads[receiver].result() for receiver in ("receiver", "down receiver")]
    found.arrived = sum(each["arrived"] for each in results) / (up + down)
    return found


def phases(form: str, a: argparse.Namespace) -> Iterator[Phase]:
    with Crossing(form, "up", others=_OTHERS, remember={"ids": 10_000}) as crossing:
        crossing.warm_up()
        for name in PHASES:
            yield soak(crossing, name, a)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="all phases together")
    parser.add_argument("--rate", type=float, default=500, help="messages/s in each direction")
    parser.add_argument("--new", type=float, default=2, help="new flows per second")
    parser.add_argument("--form", choices=("compiled", "traced"), default=streamers()[0], help="traced: the pure form")
    parser.add_argument("--markdown", action="store_true", help="the table as the documents have it")
    a = parser.parse_args()
    print(f"{NAMES[a.form]}: {a.seconds:.0f} s, {a.rate:.0f} messages/s each way, {a.new:g} new flows a second\n")
    found = list(phases(a.form, a))
    print("", *(markdown if a.markdown else plain)(HEADER, [each.cells() for each in found]), sep="\n")


if __name__ == "__main__":
    main()
