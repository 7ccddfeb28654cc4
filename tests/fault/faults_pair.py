"""What happens to a pair of streamers, one active and one on standby: 19."""

import asyncio
import signal
import time

from tests.fault.ledger import Verdict
from tests.fault.pair import Gateway, PairHarness
from tests.fault.registry import Run, fault
from tests.fault.setup import RECEIVE_MAXIMUM, UNCERTAIN_S, WINDOW

SEEDS = 20
NUMBER = 19


def rate(run: Run) -> float:
    return run.lasts(200, 500)


def window(run: Run, times: int = 1) -> dict[str, int]:
    """What was unconfirmed when the active one changed: plain receivers may get it twice."""
    return {"cloud": times * WINDOW, "veh": times * (RECEIVE_MAXIMUM + int(2 * rate(run) * UNCERTAIN_S))}


async def killed(harness: PairHarness, stays: bool = False) -> Gateway:
    """kill -9 of the active one; the other takes over."""
    first, second = harness.active, harness.standby
    began_s = time.monotonic()
    first.signal(signal.SIGKILL, stays=stays)
    await harness.until_active(second)
    await harness.until_flowing(since_s=began_s)
    return first


@fault(NUMBER, "pair: active one killed", seeds=SEEDS)
async def active_killed(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, has_far=True) as harness:
        harness.load(rate(run))
        rounds = int(run.lasts(1, 3))
        for _ in range(rounds):
            await harness.until_flowing()
            await asyncio.sleep(run.between(0.1, 1.0))
            await killed(harness)
            await harness.until_pair()
        return await harness.finish(window(run, rounds))


@fault(NUMBER, "pair: active one stopped for a while", seeds=SEEDS)
async def active_stopped(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, has_far=True) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        await asyncio.sleep(run.between(0.1, 1.0))
        first, second = harness.active, harness.standby
        began_s = time.monotonic()
        first.signal(signal.SIGSTOP)
        await harness.until(lambda: second.read_log() or second.is_active, "a take-over")
        await harness.until_flowing(since_s=began_s)
        await asyncio.sleep(max(0.0, run.lasts(4, 30) - (time.monotonic() - began_s)))
        first.signal(signal.SIGCONT)
        await harness.until_active(second)
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))
