"""An endpoint that moves by reloads under load: 17.

What a broker has confirmed to a sender has to arrive, once and in order, over the old link or over the new one.
"""

import asyncio
import copy
import signal
from contextlib import AsyncExitStack

from tests.fault.faults_daemon import RATE, journal
from tests.fault.harness import FaultHarness
from tests.fault.ledger import Verdict
from tests.fault.proxy import Proxy
from tests.fault.registry import Run, fault
from tests.fault.setup import FaultSetup

RELOAD_S = 30


async def use(harness: FaultHarness, name: str, port: int) -> None:
    """Have the daemon reach the cloud's broker at a port, by an endpoint of that name."""
    daemon = harness.daemon
    config = copy.deepcopy(daemon.config)
    before = next(each for each in config["endpoints"] if each.startswith("cloud"))
    endpoint = config["endpoints"][name] = config["endpoints"].pop(before)
    endpoint["options"]["broker"] = f"mqtt://127.0.0.1:{port}"
    for route in config["routes"]:
        route |= {end: name for end in ("from", "to") if route[end] == before}
    reloads = await asyncio.to_thread(daemon.total, "ustreamer_reloads_total", result="ok")
    daemon.write(config)
    daemon.signal(signal.SIGHUP)
    async with asyncio.timeout(RELOAD_S):
        while await asyncio.to_thread(daemon.total, "ustreamer_reloads_total", result="ok") == reloads:
            await asyncio.sleep(0.05)


async def move(run: Run, renames: bool, **changes: object) -> Verdict:
    """The cloud's broker is behind another address each time; ``renames``: of an endpoint with another name."""
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(FaultHarness(run.directory, run.seed, FaultSetup(changes=changes)))
        other = await stack.enter_async_context(Proxy(harness.brokers["cloud"].port))
        harness.load(RATE)
        for number in range(int(run.lasts(4, 20))):
            await asyncio.sleep(run.between(0.1, 1))
            port = (harness.proxies["cloud"] if number % 2 else other).port
            await use(harness, f"cloud{number}" if renames else "cloud", port)
        await harness.until_flowing()
        return await harness.finish()


@fault(17, "endpoint moves by reloads")
async def endpoint_moves(run: Run) -> Verdict:
    return await move(run, renames=False)


@fault(17, "endpoint moves by reloads under new names, with a journal")
async def endpoint_moves_under_new_names(run: Run) -> Verdict:
    return await move(run, renames=True, journal=journal(run))
