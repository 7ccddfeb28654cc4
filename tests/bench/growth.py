"""How cost grows: processor time per message over six sizes. ``make bench ARGS=--growth`` draws ``docs/benchmarks/*.svg``.

Flows, payloads and subscriptions are measured on a streamer between its networks, with everything on; what only the router
knows (endpoints, waiting messages, rules) on memory transports.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.bench import subscriptions
from tests.bench.drawing import draw, number
from tests.bench.figures import text
from tests.bench.forms import NAMES, ROOT, Child, say, streamers
from tests.bench.run import DIRECTIONS, Crossing

FOLDER = ROOT / "docs/benchmarks"
GROWTH_HEADER = ["grows", "curve", "CPU µs per message at each size"]
_AXIS = "CPU µs per message"
_MESSAGES = 20_000
_BYTES = 200_000_000
"""At most so much is sent in one run."""
_SUBSCRIBERS, _TOPICS = 1000, 2000
"""At most."""
_state = tempfile.TemporaryDirectory(prefix="bench-")

Values = dict[str, float]
"""Microseconds per message, by the name of the curve."""


def flows(form: str, count: int) -> Values:
    found = {}
    for direction in ("down", "up"):
        with Crossing(form, direction, ("--flows", str(count))) as crossing:
            for _ in range(4 if count <= _MESSAGES else 1):  # with the fourth message a flow gets a publisher
                crossing.phase(max(count, 1000), may_lose=True)
            found[DIRECTIONS[direction]] = crossing.phase(max(count, _MESSAGES)).cpu_us
    return found


def payload(form: str, size: int) -> Values:
    found = {}
    count = max(100, min(_MESSAGES, _BYTES // max(1, size)))
    for direction in ("down", "up"):
        with Crossing(form, direction, ("--size", str(size))) as crossing:
            crossing.phase(max(20, count // 10), may_lose=True)
            found[DIRECTIONS[direction]] = crossing.phase(count).cpu_us
    return found


@cache
def remembered(folder: str, count: int) -> Path:
    """A journal with so many subscriptions."""
    path = Path(folder) / f"{count}.db"
    wanted = subscriptions.wishes(count, min(_SUBSCRIBERS, count), max(16, min(_TOPICS, count // 5)))
    asyncio.run(subscriptions.remember(path, wanted))
    return path


def subscribed(form: str, count: int) -> Values:
    path = remembered(_state.name, count)
    with Crossing(form, "up", **subscriptions.changes(path)) as crossing:
        crossing.warm_up()
        return {DIRECTIONS["up"]: crossing.phase(_MESSAGES).cpu_us}


def on_memory(curve: str) -> Callable[[str, int], Values]:
    """Measured by `point`."""

    def measure(form: str, count: int) -> Values:
        child = Child("tests.bench.point", curve, str(count), form=form)
        try:
            return child.result()
        finally:
            child.end()

    return measure


@dataclass(frozen=True, slots=True)
class Growth:
    """One drawing."""

    name: str
    title: str
    axis: str
    sizes: Sequence[int]
    measure: Callable[[str, int], Values]


GROWTHS = [
    Growth("flows", "flows", "flows", (10, 100, 1000, 10_000, 100_000), flows),
    Growth("payload", "payload", "bytes", (0, 64, 1024, 16_384, 131_072, 1_048_576), payload),
    Growth("endpoints", "endpoints (router alone)", "endpoints", (1, 3, 10, 30, 100, 200), on_memory("endpoints")),
    Growth(
        "waiting", "waiting messages (router alone)", "messages", (0, 1000, 10_000, 100_000, 1_000_000), on_memory("waiting")
    ),
    Growth("subscriptions", "subscriptions", "subscriptions", (16, 100, 1000, 10_000, 100_000), subscribed),
    Growth("rules", "permission rules (router alone)", "rules", (0, 1, 10, 100, 1000), on_memory("rules")),
]


def drawn(names: Sequence[str]) -> Iterator[list[list[str]]]:
    """Measure, draw, and say the values: for each drawing, one line for each curve."""
    for growth in GROWTHS:
        if growth.name not in names:
            continue
        curves: dict[str, list[tuple[float, float]]] = {}
        for size in growth.sizes:
            for form in streamers():
                say(f"{growth.title}: {size}, {NAMES[form]}")
                for curve, cost_us in growth.measure(form, size).items():
                    curves.setdefault(f"{curve}, {NAMES[form].removeprefix('streamer, ')}", []).append((size, cost_us))
        draw(FOLDER / f"{growth.name}.svg", f"{_AXIS}: {growth.title}", (growth.axis, _AXIS), curves)
        yield [
            [growth.title, curve, "; ".join(f"{number(size)}: {text(cost_us)}" for size, cost_us in points)]
            for curve, points in curves.items()
        ]
