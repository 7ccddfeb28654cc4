"""What uTwin, and policies for topics, add to a message: ``python -m tests.bench.present_values``.

First the router alone, on memory transports; the best round counts, because whatever else runs on the machine only adds.
Then (``--crossings 5``) whole runs between real networks at full load, with everything else on. All take turns.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping
from typing import Any

from streamer.uprotocol.uri import UUri
from tests.bench.figures import quotients, spread
from tests.bench.forms import NAMES, Child, say, streamers
from tests.bench.in_memory import arrivals, inject, spent_us
from tests.bench.run import DIRECTIONS, measure
from tests.flow.harness import RouterHarness, configuration

EVERY_TOPIC = {"topic": "//*/FFFFFFFF/FF/FFFF", "keep": "latest"}
KEYS: dict[str, Mapping[str, Any]] = {
    "without": {},
    "utwin": {"utwin": {}},
    "topics": {"queue_policy": {"topics": [EVERY_TOPIC]}},
}
FLOWS = 16
MESSAGES = 20_000
ROUNDS = 10


async def cost_us(key: str) -> float:
    """CPU time of one message in the router, from its arrival until it is confirmed."""
    config = configuration(**KEYS[key])
    async with RouterHarness(config, is_observed=False) as harness:
        likes = [harness.speed(b"x" * 256, UUri("veh1", 1 + number, 1, 0x8001)) for number in range(FLOWS)]
        made = arrivals(harness, likes, MESSAGES)
        message_us = spent_us(lambda: inject(harness, made), MESSAGES)
        assert len(harness.sent("cloud")) == MESSAGES
        return message_us


def in_router() -> dict[str, float]:
    best = dict.fromkeys(KEYS, float("inf"))
    for _ in range(ROUNDS):
        for key in KEYS:
            best[key] = min(best[key], asyncio.run(cost_us(key)))
    return best


def crossings(form: str, rounds: int, count: int) -> None:
    for direction in ("down", "up"):
        cpu_us: dict[str, list[float]] = {key: [] for key in KEYS}
        for number in range(rounds):
            for key in sorted(KEYS, reverse=bool(number % 2)):
                say(f"{DIRECTIONS[direction]}: {NAMES[form]}, {key}")
                cpu_us[key].append(measure(form, direction, count, 0, 256, has_journal=True, **KEYS[key]).cpu_us)
        for key, values in cpu_us.items():
            text = f"{spread(values)} µs, {spread(quotients(values, cpu_us['without']))} ×"
            print(f"{DIRECTIONS[direction]}, {NAMES[form]}, {key}: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--crossings", type=int, default=0, help="rounds of whole runs")
    parser.add_argument("--count", type=int, default=100_000, help="messages of each of them")
    parser.add_argument("--form", nargs="+", default=streamers(), choices=streamers())
    parser.add_argument("--json", action="store_true", help="only the router, in this process")
    a = parser.parse_args()
    if a.json:
        print(json.dumps(in_router()))
        return
    for form in a.form:
        child = Child("tests.bench.present_values", "--json", form=form)
        try:
            found = child.result()
        finally:
            child.end()
        for key, us in found.items():
            print(f"router alone, {NAMES[form]}, {key}: {us:.2f} µs, {us - found['without']:+.2f} µs", flush=True)
        if a.crossings:
            crossings(form, a.crossings, a.count)


if __name__ == "__main__":
    main()
