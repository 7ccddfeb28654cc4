"""What a hostile broker does to a pair that has another broker as well: 19."""

import asyncio
import signal
from contextlib import AbstractAsyncContextManager

from tests.fault.faults_pair import NUMBER, SEEDS, rate, under_way, window
from tests.fault.hostile_broker import REFUSALS, brief_sessions, refusing, taken_over, thief
from tests.fault.ledger import Breach, Verdict
from tests.fault.pair import NAMES, PLANT_CLIENT_ID, PairHarness
from tests.fault.registry import Run, fault
from tests.fault.setup import PairSetup

WORKS = 95.0
"""For how much of the time the routes that do not lead to the hostile broker have to work, in per cent."""
MOST_TAKE_OVERS = 1


async def beside(run: Run, harness: PairHarness, hostile: AbstractAsyncContextManager[None]) -> Verdict:
    """One of the two is gone, comes back, and all the time the broker of plant is hostile. The other routes work."""
    harness.load(rate(run))
    first, second = await under_way(run, harness)
    was_alone = first.count("pair_alone")
    second.signal(signal.SIGKILL, stays=True)
    await harness.until(lambda: first.count("pair_alone") > was_alone, "the active one alone")
    await harness.until_flowing()
    lost = first.count("link_down")
    async with hostile:
        await harness.until(lambda: first.count("link_down") > lost, "the first end of a session")
        with harness.measured(WORKS):
            await asyncio.sleep(run.lasts(15, 60))
        second.start()
        await harness.until_pair()
        with harness.measured(WORKS):
            await asyncio.sleep(run.lasts(10, 60))
    await harness.until_flowing()
    verdict = await harness.finish(window(run) | {"plant": len(harness.ledger.entries())})
    if verdict.figures["take_overs"] > MOST_TAKE_OVERS:
        verdict.add(Breach.DEAD, [f"{verdict.figures['take_overs']} changes of roles"])
    return verdict


def at_plant(run: Run) -> PairHarness:
    return PairHarness(run.directory, run.seed, PairSetup("broker"))


@fault(NUMBER, "pair: one of two brokers ends sessions after 0.3 s", seeds=SEEDS)
async def broker_ends_sessions(run: Run) -> Verdict:
    async with at_plant(run) as harness:
        return await beside(run, harness, brief_sessions([harness.proxies[name, "plant"] for name in NAMES]))


@fault(NUMBER, "pair: somebody takes the client id at one of two brokers", seeds=SEEDS)
async def client_id_taken(run: Run) -> Verdict:
    async with at_plant(run) as harness:
        return await beside(run, harness, thief(harness.plant_port, PLANT_CLIENT_ID))


@fault(NUMBER, "pair: one of two brokers says that the session is another's", seeds=SEEDS)
async def broker_says_taken_over(run: Run) -> Verdict:
    async with at_plant(run) as harness:
        return await beside(run, harness, taken_over([harness.proxies[name, "plant"] for name in NAMES]))


@fault(NUMBER, "pair: one of two brokers refuses the connection", seeds=SEEDS)
async def broker_refuses(run: Run) -> Verdict:
    """Neither of the two can do better, so neither hands over.

    Or once, if only the standby has not been refused yet; and once more after a minute, when that may be tried again.
    """
    async with PairHarness(run.directory, run.seed, PairSetup("broker", pair={"prefer_s": 3})) as harness:
        harness.load(rate(run))
        await under_way(run, harness)
        async with refusing([harness.proxies[name, "plant"] for name in NAMES], run.chance.choice(REFUSALS)):
            with harness.measured(0):
                await asyncio.sleep(run.lasts(40, 120))
            take_overs = harness.take_overs
        harness.stop_load()  # what waits for plant by now would hold up what is sent to it
        await harness.until_pair()
        verdict = await harness.finish(window(run, 2) | {"plant": len(harness.ledger.entries())})
        if take_overs > run.lasts(1, 2):
            verdict.add(Breach.DEAD, [f"{take_overs} changes of roles while both are refused"])
        return verdict
