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


@fault(NUMBER, "pair: link cut, broker there", seeds=SEEDS)
async def link_cut(run: Run) -> Verdict:
    """The broker decides: it gives the session to whoever connects last, and the other one stands back."""
    async with PairHarness(run.directory, run.seed, has_far=True) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        await asyncio.sleep(run.between(0.1, 1.0))
        if run.chance.random() < 0.5:
            await harness.link.sever()
        else:
            harness.link.stall()
        await asyncio.sleep(run.lasts(5, 20))
        await harness.until_flowing()
        await harness.link.heal()
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run, 2))


@fault(NUMBER, "pair: link cut, no broker", seeds=SEEDS)
async def split(run: Run) -> Verdict:
    """Both work. Each of them hears something on Zenoh that the other one does not hear."""
    async with PairHarness(run.directory, run.seed, has_far=True) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        first, second = harness.active, harness.standby
        for each in run.chance.sample(["a", "b"], 2):
            await harness.proxies[each, "broker"].sever()
        await harness.link.sever()
        await harness.until(lambda: second.read_log() or second.is_active, "a second active one")
        assert first.is_active
        for deaf in (first, second):
            await harness.deafen(deaf)
            await asyncio.sleep(run.lasts(1, 5))
            await harness.undeafen(deaf)
        if run.chance.random() < 0.5:
            await harness.link.heal()
            await asyncio.sleep(run.between(0, 3))
        for each in run.chance.sample(["a", "b"], 2):
            await harness.proxies[each, "broker"].heal()
            await asyncio.sleep(run.between(0, 1))
        await harness.link.heal()
        await harness.until_pair()
        await harness.until_flowing()
        everything = len(harness.ledger.entries())  # both work, and who is behind them gets it twice
        return await harness.finish({"cloud": everything, "veh": everything})


@fault(NUMBER, "pair: standby back with an empty disk, then the active one killed", seeds=SEEDS)
async def empty_standby(run: Run) -> Verdict:
    async with PairHarness(run.directory, run.seed, has_far=True) as harness:
        harness.load(rate(run))
        await harness.until_flowing()
        second = harness.standby
        second.signal(signal.SIGKILL, stays=True)
        await harness.until(lambda: not second.is_running, "the end of the standby")
        second.empty_disk()
        await harness.until_flowing()
        await harness.pile_up(harness.active, run.lasts(1, 5))
        second.start()
        await harness.until_whole()
        assert harness.ledger.missing(), "nothing waits"
        await asyncio.sleep(run.between(0, 1))
        first = harness.active
        first.signal(signal.SIGKILL, stays=True)
        await harness.until_active(second)
        await harness.until_flowing()
        first.start()
        await harness.until_pair()
        return await harness.finish(window(run, 2))
