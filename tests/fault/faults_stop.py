"""SIGTERM while something waits and a Zenoh source goes on sending: 13.

The ledger takes the sender's side: what the source has put while it saw the daemon's subscriptions has to arrive, whether
the daemon has counted it or not. The drain is longer than anything that the daemon might do only at its beginning.
"""

import asyncio
import signal
from dataclasses import replace

from tests.fault.faults_daemon import RATE, journal, killed
from tests.fault.harness import FaultHarness
from tests.fault.ledger import Verdict
from tests.fault.registry import Run, fault
from tests.fault.setup import FaultSetup

DRAIN_S = 8.0
WAITING = 250
ON_THE_WIRE_S = 0.5


async def stop(harness: FaultHarness, within_s: float) -> None:
    """SIGTERM under load. What the source has put up to the end of the daemon's subscriptions counts from now on."""
    source = harness.source
    assert source is not None
    harness.daemon.signal(signal.SIGTERM)
    status = await harness.daemon.ended(within_s)
    assert status == 0, f"exit status {status}:\n{harness.daemon.log[-2000:]}"
    await harness.until(lambda: not source.is_matched, 10, "the end of the subscriptions")
    source.hand_over_put_before_the_end(ON_THE_WIRE_S)


def setting(run: Run, **changes: object) -> FaultSetup:
    return FaultSetup(changes={"journal": journal(run), "shutdown": {"drain_s": DRAIN_S}} | changes)


async def receiver_away(run: Run, setup: FaultSetup) -> Verdict:
    """Messages wait for a Zenoh receiver that is not there. They stay in the journal."""
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        assert harness.receiver is not None
        for number in range(WAITING):
            harness.send("cloud", "veh", 0x500, number)
        await harness.until(
            lambda: harness.daemon.total("ustreamer_queue_messages", egress="veh") >= WAITING, 30, "messages that wait"
        )
        harness.load(RATE, ("veh", "cloud"), ("cloud", "plant"), ("plant", "cloud"))
        await asyncio.sleep(run.between(1, run.lasts(2, 5)))
        await stop(harness, DRAIN_S + 10)
        await asyncio.to_thread(harness.receiver.start)
        await harness.restart_daemon()
        return await harness.finish(killed(2))


@fault(13, "SIGTERM while a receiver is away")
async def sigterm_without_receiver(run: Run) -> Verdict:
    return await receiver_away(run, replace(setting(run), has_receiver=False))


@fault(13, "SIGTERM while a receiver behind a router is away")
async def sigterm_without_receiver_behind_router(run: Run) -> Verdict:
    return await receiver_away(run, replace(setting(run), has_receiver=False, through_router=True))


@fault(13, "SIGTERM with a full queue")
async def sigterm_with_full_queue(run: Run) -> Verdict:
    """The cloud's link stalls, its queue is full, reading from Zenoh pauses: what waits in Zenoh's buffers is taken, too."""
    policy = {"queue": {"messages": 50, "stalled_factor": 0}, "window": 20}
    async with FaultHarness(run.directory, run.seed, setting(run, queue_policy=policy)) as harness:
        harness.load(4 * RATE, ("veh", "cloud"))
        await harness.until(lambda: bool(harness.ledger.crossed(0)), 30, "traffic")
        harness.proxies["cloud"].stall()
        backlog = "ustreamer_backlog_messages"
        await harness.until(lambda: harness.daemon.total(backlog, endpoint="veh") >= 1000, 30, "a backlog")
        await stop(harness, DRAIN_S + 15)
        await harness.proxies["cloud"].heal()
        await harness.restart_daemon()
        return await harness.finish(killed(2))
