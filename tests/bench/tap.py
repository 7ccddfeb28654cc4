"""What a tap costs, per message: one that is read, one that nobody reads, one that wants something else; beside none.

    python -m tests.bench.tap [--rounds 9]

The whole router runs on memory transports. All take turns, and the best round of each counts: whatever else runs on the
machine only adds. Prints as well by how much the memory of the process has grown while nobody read.
"""

import argparse
import asyncio
import resource

from streamer.features.tap.tap import Tap, TapFilter
from tests.bench.in_memory import BATCH, arrivals, inject, spent_us
from tests.flow.harness import RouterHarness

MESSAGES = 20_000
TURN = 30  # batches between two turns of a reader: at 20 000 messages/s a tenth of a second
PAYLOAD = b"x" * 1000


def taps() -> dict[str, tuple[Tap | None, bool]]:
    """Each kind, and whether it is read."""
    return {
        "none": (None, False),
        "read, 100/s": (Tap(TapFilter(), 10, with_payload=True), True),
        "read, 1000/s": (Tap(TapFilter(), 100, with_payload=True), True),
        "nobody reads, 100/s": (Tap(TapFilter(), 10, with_payload=True), False),
        "nobody reads, 1000/s": (Tap(TapFilter(), 100, with_payload=True), False),
        "another route": (Tap(TapFilter(route="other"), 10, with_payload=True), True),
    }


async def cost_us(tap: Tap | None, is_read: bool) -> float:
    """The processor time of one message, from its arrival until it is confirmed."""
    async with RouterHarness(is_observed=False) as harness:
        harness.router.replace_observer(None, tap)
        like = harness.speed(PAYLOAD)
        made = arrivals(harness, [like], MESSAGES)

        def turns() -> None:
            for start in range(0, MESSAGES, TURN * BATCH):
                inject(harness, made[start : start + TURN * BATCH])
                if is_read and tap is not None:
                    tap.take()

        return spent_us(turns, MESSAGES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    best = dict.fromkeys(taps(), float("inf"))
    for _ in range(rounds):
        for name, (tap, is_read) in taps().items():
            best[name] = min(best[name], asyncio.run(cost_us(tap, is_read)))
    for name, us in best.items():
        print(f"{name:<24} {us:6.2f} us  {us / best['none']:.3f} of none")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tap = Tap(TapFilter(), 100, with_payload=True)
    for _ in range(10):
        asyncio.run(cost_us(tap, is_read=False))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{10 * MESSAGES} messages that nobody read: {grown} KiB more, {tap.left_out} left out")


if __name__ == "__main__":
    main()
