"""One point of a curve of `growth`: the router on memory transports, in a process of its own.

    python -m tests.bench.point endpoints 100

Prints a line of JSON: microseconds of processor time per message, by the name of the curve.
"""

import argparse
import asyncio
import gc
import json
from collections.abc import Callable, Coroutine

from streamer.features.every import FILE
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri
from tests.bench import permissions
from tests.bench.in_memory import arrivals, inject, spent_us
from tests.flow.harness import GATEWAY, RouterHarness, configuration

MESSAGES = 20_000
FLOWS = 100
ROUNDS = 3


async def endpoints(count: int) -> dict[str, float]:
    """Messages go to one of so many endpoints, and to all of them in turn."""
    names = [f"cloud{number}" for number in range(count)]
    config = FILE.model_validate(
        {
            "authority": GATEWAY,
            "endpoints": {
                name: {"transport": "memory", "authorities": [authority]}
                for name, authority in (("vehicle", "veh1"), *zip(names, names, strict=True))
            },
            "routes": [{"from": "vehicle", "to": name} for name in names],
        }
    )
    async with RouterHarness(config, is_observed=False) as harness:
        likes = [
            notification(harness.clock.ms, UUri("veh1", 1, 1, 0x8001), UUri(name, 1, 1, 0), b"x" * 256) for name in names
        ]
        inject(harness, arrivals(harness, likes, 2 * count))
        to_one, to_all = arrivals(harness, likes[:1], MESSAGES), arrivals(harness, likes, MESSAGES)
        one_us = spent_us(lambda: inject(harness, to_one), MESSAGES)
        return {"to one of them": one_us, "to all in turn": spent_us(lambda: inject(harness, to_all), MESSAGES)}


async def waiting(count: int) -> dict[str, float]:
    """Messages come while so many wait for an absent network. Then all are sent."""
    queue = {"messages": 2_000_000, "bytes": "8GiB"}
    config = configuration(queue_policy={"queue": queue}, remember={"ids": 4_000_000})
    async with RouterHarness(config, is_observed=False) as harness:
        likes = [harness.speed(b"x" * 64, UUri("veh1", 1 + number, 1, 0x8001)) for number in range(FLOWS)]
        inject(harness, arrivals(harness, likes, FLOWS))
        cloud = harness.transports["cloud"]
        cloud.lose_link()
        inject(harness, arrivals(harness, likes, count))
        batch = arrivals(harness, likes, MESSAGES)
        taken_us = spent_us(lambda: inject(harness, batch), MESSAGES)
        sent_us = spent_us(cloud.restore_link, count + MESSAGES)
        assert len(cloud.sent) == FLOWS + count + MESSAGES, len(cloud.sent)
        return {"taken": taken_us, "sent": sent_us}


async def rules(count: int) -> dict[str, float]:
    """Messages of a few flows, and of a new flow each, with so many rules of permissions."""
    old_us = await permissions.cost_us(MESSAGES, count, is_new=False)
    return {"old flow": old_us, "new flow": await permissions.cost_us(MESSAGES // 5, count, is_new=True)}


CURVES: dict[str, Callable[[int], Coroutine[None, None, dict[str, float]]]] = {
    "endpoints": endpoints,
    "waiting": waiting,
    "rules": rules,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curve", choices=CURVES)
    parser.add_argument("count", type=int)
    a = parser.parse_args()
    gc.set_threshold(5000, 200, 100)  # as `streamer run` does
    best: dict[str, float] = {}
    for _ in range(1 if a.count >= 100_000 else ROUNDS):
        for name, cost_us in asyncio.run(CURVES[a.curve](a.count)).items():
            best[name] = min(cost_us, best.get(name, cost_us))
    print(json.dumps(best))


if __name__ == "__main__":
    main()
