"""No descriptors are left: 15."""

import asyncio

from tests.fault.faults_mqtt import BROKERS, times
from tests.fault.faults_zenoh import unconfirmed
from tests.fault.harness import FaultHarness
from tests.fault.hostile import no_more_descriptors
from tests.fault.ledger import Verdict
from tests.fault.registry import Run, fault
from tests.fault.setup import FaultSetup

RATE = 300.0


async def without_descriptors(run: Run, sides: tuple[str, ...]) -> Verdict:
    """Links break, and cannot be opened anew for a while."""
    rounds = int(run.lasts(1, 4))
    away_s = 0.0
    journal = {"path": str(run.directory / "journal.db")}
    async with FaultHarness(run.directory, run.seed, FaultSetup(changes={"journal": journal})) as harness:
        harness.load(RATE)
        for _ in range(rounds):
            await asyncio.sleep(run.between(0.3, 1))
            with no_more_descriptors(harness.daemon):
                harness.proxies[run.chance.choice(sides)].reset()
                this_s = run.between(0.2, run.lasts(1, 6))
                away_s += this_s
                await asyncio.sleep(this_s)
            await harness.until_ready()
        return await harness.finish(times(rounds) if "receiver" not in sides else unconfirmed(away_s + 5 * rounds))


@fault(15, "no descriptors when a broker's link breaks")
async def no_descriptors_for_brokers(run: Run) -> Verdict:
    return await without_descriptors(run, BROKERS)


@fault(15, "no descriptors when a Zenoh link breaks")
async def no_descriptors_for_zenoh(run: Run) -> Verdict:
    return await without_descriptors(run, ("receiver",))
