"""What a Publish to many authorities costs, for each copy, beside a message of its own.

    python -m tests.bench.copies [--authorities 100]

A network that wants an address for a Publish gets one copy for each authority that has subscribed. The whole router runs on
memory transports. Both take turns, and the best round of each counts: whatever else runs on the machine only adds.
"""

import argparse
import asyncio
import json

from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.memory import MemoryReceived
from tests.bench.in_memory import arrivals, inject, spent_us
from tests.flow.harness import SPEED, RouterHarness, configuration

MESSAGES = 2000
BATCH = 16
ROUNDS = 9


async def cost_us(authorities: int, messages: int) -> float:
    """The processor time of one copy, from the arrival of its message until it is confirmed."""
    config = configuration(routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}])
    async with RouterHarness(config, addressed=("cloud",), is_observed=False) as harness:
        interested = dict.fromkeys((f"cloud{number}" for number in range(authorities)), EVERY_MESSAGE)
        harness.router.set_interest(SPEED, interested, "bench")
        await asyncio.sleep(0)
        await harness.router.listening.catch_up()
        like = harness.speed(b"x" * 256)
        harness.transports["vehicle"].inject(MemoryReceived(like))
        made = arrivals(harness, [like], messages)
        copy_us = spent_us(lambda: inject(harness, made, batch=BATCH), messages * authorities)
        assert len(harness.transports["cloud"].sent) == (messages + 1) * authorities
        return copy_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--authorities", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print a line of JSON")
    a = parser.parse_args()
    own_us = copy_us = float("inf")
    for _ in range(ROUNDS):
        own_us = min(own_us, asyncio.run(cost_us(1, MESSAGES)))
        copy_us = min(copy_us, asyncio.run(cost_us(a.authorities, max(1, 20 * MESSAGES // a.authorities))))
    if a.json:
        print(json.dumps({"ratio": copy_us / own_us}))
    else:
        print(f"a message {own_us:.2f} us, each of {a.authorities} copies {copy_us:.2f} us: {copy_us / own_us:.2f} of it")


if __name__ == "__main__":
    main()
