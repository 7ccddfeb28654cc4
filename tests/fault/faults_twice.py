"""Two faults at once: 18. The second comes while the streamer is still busy with the first."""

import asyncio
import os
import signal

from tests.fault.faults_daemon import MIB, MQTT_ONLY, RATE, fill, journal, killed, small_disk
from tests.fault.faults_mqtt import kill_and_start_broker, times
from tests.fault.faults_stop import stop
from tests.fault.harness import FaultHarness
from tests.fault.ledger import Allowance, Verdict
from tests.fault.registry import Run, fault
from tests.fault.setup import FaultSetup

END_S = 20.0


def setting(run: Run, drain_s: float = 4) -> FaultSetup:
    return FaultSetup(changes={"journal": journal(run), "shutdown": {"drain_s": drain_s}})


@fault(18, "daemon killed in the middle of a stop")
async def killed_in_a_stop(run: Run) -> Verdict:
    """SIGTERM while a broker takes nothing, and SIGKILL before the drain is over."""
    async with FaultHarness(run.directory, run.seed, setting(run)) as harness:
        harness.load(RATE)
        await harness.until_flowing()
        harness.proxies["plant"].stall()
        await asyncio.sleep(run.between(0.2, 0.8))
        await harness.hand_over(unordered=64)
        harness.daemon.signal(signal.SIGTERM)
        await asyncio.sleep(run.between(0.3, 3))
        assert harness.daemon.process is not None
        harness.daemon.process.kill()
        assert await harness.daemon.ended(END_S) == -signal.SIGKILL
        await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        await harness.until_flowing()
        return await harness.finish(killed(2))


@fault(18, "SIGTERM while a killed daemon's backlog is redelivered")
async def sigterm_in_a_recovery(run: Run) -> Verdict:
    async with FaultHarness(run.directory, run.seed, setting(run, drain_s=1)) as harness:
        harness.load(RATE)
        await harness.until_flowing()
        await harness.proxies["plant"].sever()
        await harness.stop_receiver(run.between(0.5, 1.5))
        await harness.kill_daemon()
        assert harness.ledger.missing(), "nothing waited"
        starts = harness.daemon.log.count('"event": "starting"')
        await harness.start_daemon()
        await harness.proxies["plant"].heal()
        # Before that a signal ends it as any other program.
        await harness.until(lambda: harness.daemon.log.count('"event": "starting"') > starts, 30, "the start")
        await asyncio.sleep(run.between(0, 0.8))
        await harness.hand_over(unordered=64)
        harness.daemon.signal(signal.SIGTERM)
        status = await harness.daemon.ended(END_S)
        assert status == 0, f"exit status {status}:\n{harness.daemon.log[-2000:]}"
        await harness.restart_daemon()
        await harness.until_flowing()
        return await harness.finish(killed(3))


@fault(18, "brokers restarted while the disk is full", seeds=20)
async def brokers_restarted_on_a_full_disk(run: Run) -> Verdict:
    with small_disk(run.directory, 48 * MIB) as disk:
        setup = FaultSetup(MQTT_ONLY, changes={"journal": {"path": str(disk / "journal.db")}})
        async with FaultHarness(run.directory, run.seed, setup) as harness:
            harness.load(RATE)
            await harness.until_flowing()
            filler = await asyncio.to_thread(fill, disk)
            for side in run.chance.sample(MQTT_ONLY, 2):
                await kill_and_start_broker(harness, side, run.between(0, 1.5))
            filler.unlink()
            await harness.until_ready()
            await harness.until_flowing()
            return await harness.finish(times(2))


@fault(18, "SIGTERM while the disk is full", seeds=20)
async def sigterm_on_a_full_disk(run: Run) -> Verdict:
    """What came over Zenoh is kept by nobody else: it becomes dead letters."""
    with small_disk(run.directory, 48 * MIB) as disk:
        changes = {"journal": {"path": str(disk / "journal.db")}, "shutdown": {"drain_s": 1}}
        async with FaultHarness(run.directory, run.seed, FaultSetup(changes=changes)) as harness:
            harness.load(RATE)
            await harness.until_flowing()
            filler = await asyncio.to_thread(fill, disk)
            await harness.proxies["cloud"].sever()
            await asyncio.sleep(run.between(1, 2))
            await stop(harness, END_S)
            filler.unlink()
            await harness.proxies["cloud"].heal()
            await harness.restart_daemon()
            await harness.until_flowing()
            # What the cut left unconfirmed may have arrived.
            return await harness.finish(Allowance(killed(1).duplicates, dead_letters=True, two_ends=True))


@fault(18, "journal emptied while in use, then daemon killed")
async def killed_after_the_journal_was_emptied(run: Run) -> Verdict:
    """A tool that truncates files in place: what was acknowledged since must not be lost."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(MQTT_ONLY, changes={"journal": journal(run)})) as harness:
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(RATE)
        await harness.until(lambda: len(harness.ledger.missing()) > 50, 20, "messages that wait")
        os.truncate(run.directory / "journal.db", 0)
        before = len(harness.ledger.missing())
        await harness.until(lambda: len(harness.ledger.missing()) > before + RATE, 20, "messages after that")
        await harness.kill_daemon()
        await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        await harness.until_flowing()
        return await harness.finish(killed(1))
