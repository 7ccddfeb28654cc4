"""What happens to the daemon's own process and to its journal: 1, 7, 8, 13."""

import asyncio
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.fault.harness import FaultHarness
from tests.fault.ledger import Allowance, Breach, Verdict
from tests.fault.registry import Run, fault
from tests.fault.setup import RECEIVE_MAXIMUM, UNCERTAIN_S, WINDOW, FaultSetup

RATE = 300.0
MQTT_ONLY = ("cloud", "plant")
MIB = 1 << 20
LINK_LATER_S = 0.5
"""So long the disk has room again (or the new daemon a full one) before anything can leave: many flush intervals."""


def journal(run: Run, **more: Any) -> dict[str, object]:
    return {"path": str(run.directory / "journal.db")} | more


def killed(count: int) -> Allowance:
    """For each kill: what was unconfirmed, over MQTT in both directions and over Zenoh."""
    return Allowance(duplicates=count * (2 * (WINDOW + RECEIVE_MAXIMUM) + int(2 * RATE * UNCERTAIN_S)))


# -- 1 ----------------------------------------------------------------------------------------------------------------


async def kill_and_restart(run: Run, setup: FaultSetup) -> Verdict:
    rounds = int(run.lasts(1, 3))
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        harness.load(RATE)
        for _ in range(rounds):
            await asyncio.sleep(run.between(0.1, 1.5))
            await harness.kill_daemon()
            await asyncio.sleep(run.between(0, 0.5))
            await harness.restart_daemon()
        await harness.until_flowing()
        return await harness.finish(killed(rounds))


@fault(1, "daemon killed, MQTT and Zenoh")
async def daemon_killed(run: Run) -> Verdict:
    return await kill_and_restart(run, FaultSetup(changes={"journal": journal(run)}))


@fault(1, "daemon killed, MQTT only")
async def daemon_killed_on_mqtt(run: Run) -> Verdict:
    return await kill_and_restart(run, FaultSetup(MQTT_ONLY, changes={"journal": journal(run)}))


@fault(1, "daemon killed with a backlog")
async def daemon_killed_with_backlog(run: Run) -> Verdict:
    """What waits for a link that is down has been acknowledged to its source long ago: only the journal has it."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(changes={"journal": journal(run)})) as harness:
        harness.load(RATE)
        await harness.until_flowing()
        await harness.proxies["plant"].sever()
        await asyncio.sleep(run.between(0.5, 2))
        await harness.kill_daemon()
        backlog = len(harness.ledger.missing())
        await harness.start_daemon()
        await asyncio.sleep(run.between(0, 1))
        if run.chance.random() < 0.5:  # killed again before it has drained
            await harness.kill_daemon()
            await harness.start_daemon()
        await harness.proxies["plant"].heal()
        await harness.until_ready()
        await harness.until_flowing()
        assert backlog, "nothing waited"
        return await harness.finish(killed(2))


# -- 13 ---------------------------------------------------------------------------------------------------------------


async def terminate(harness: FaultHarness, drain_s: float) -> None:
    """SIGTERM: it ends, with exit status 0."""
    await harness.hand_over(unordered=64)
    harness.daemon.signal(signal.SIGTERM)
    status = await harness.daemon.ended(drain_s + 10)
    assert status == 0, f"exit status {status}:\n{harness.daemon.log[-2000:]}"


async def sigterm(run: Run, with_rest: bool) -> Verdict:
    drain_s = 2
    setup = FaultSetup(changes={"journal": journal(run), "shutdown": {"drain_s": drain_s}})
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        harness.load(RATE)
        await asyncio.sleep(run.between(0.2, run.lasts(0.8, 3)))
        if with_rest:
            harness.proxies["plant"].stall()
            await asyncio.sleep(run.between(0.2, 0.8))
        await terminate(harness, drain_s)
        if with_rest:
            assert harness.ledger.missing(), "nothing was left"
            await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        await harness.until_flowing()
        return await harness.finish(killed(1))


@fault(13, "SIGTERM under load")
async def sigterm_under_load(run: Run) -> Verdict:
    return await sigterm(run, with_rest=False)


@fault(13, "SIGTERM with a rest that cannot leave")
async def sigterm_with_rest(run: Run) -> Verdict:
    return await sigterm(run, with_rest=True)


# -- 7 ----------------------------------------------------------------------------------------------------------------


@fault(7, "journal at its bound", seeds=20)
async def journal_at_its_bound(run: Run) -> Verdict:
    """The file may be somewhat larger than ``max_bytes``: its free pages and the write-ahead log; not twice as large."""
    bound, most_bytes = MIB, 16_384
    setup = FaultSetup(MQTT_ONLY, changes={"journal": journal(run, max_bytes=bound)})
    async with FaultHarness(run.directory, run.seed, setup) as harness:
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(600, most_bytes=most_bytes)
        await asyncio.sleep(run.lasts(3, 20))
        await harness.until(lambda: len(harness.ledger.missing()) > 1000, 60, "reach the bound")
        held = sum(path.stat().st_size for path in run.directory.glob("journal.db*") if not path.name.endswith("-shm"))
        queued = await asyncio.to_thread(harness.daemon.total, "ustreamer_queue_bytes", route="cloud-plant")
        if run.chance.random() < 0.5:
            await harness.kill_daemon()
            await harness.start_daemon()
        await harness.proxies["plant"].heal()
        await harness.until_ready()
        verdict = await harness.finish(killed(1))
        most = bound + RECEIVE_MAXIMUM * (most_bytes + 600)  # what the source keeps waits in memory
        assert queued < most, f"{queued} bytes queued, more than {most}"
        assert held < 5 * bound, f"{held} bytes of journal files at a bound of {bound}"
        return verdict


# -- 8 ----------------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(directory: Path, max_bytes: int) -> Iterator[Path]:
    """A file system of its own, which is soon full."""
    mount = directory / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={max_bytes}", "tmpfs", str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def fill(disk: Path) -> Path:
    """Take what room is left."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (65_536, 4096, 512):
            try:
                while True:
                    os.write(descriptor, bytes(size))
            except OSError:
                continue
    finally:
        os.close(descriptor)
    return filler


@fault(8, "disk full, then not", seeds=20)
async def disk_full(run: Run) -> Verdict:
    with small_disk(run.directory, 48 * MIB) as disk:
        setup = FaultSetup(MQTT_ONLY, changes={"journal": {"path": str(disk / "journal.db")}})
        async with FaultHarness(run.directory, run.seed, setup) as harness:
            harness.load(RATE)
            await harness.until_flowing()
            await harness.proxies["plant"].sever()
            await asyncio.sleep(run.between(0.2, 0.8))
            filler = await asyncio.to_thread(fill, disk)
            await asyncio.sleep(run.lasts(1, 10))
            if run.chance.random() < 0.5:
                await harness.kill_daemon()
                if run.chance.random() < 0.5:
                    filler.unlink()
                await harness.start_daemon()
            if run.chance.random() < 0.5:
                filler.unlink(missing_ok=True)
            await asyncio.sleep(LINK_LATER_S)
            await harness.proxies["plant"].heal()
            await harness.until_linked()
            verdict = await harness.finish(killed(1))  # also with a disk that is still full: then nothing waits long
            filler.unlink(missing_ok=True)
            await harness.until_ready()
            return verdict


@fault(8, "journal not writable at start", seeds=5)
async def journal_not_writable(run: Run) -> Verdict:
    """Where its directory should be is a file. Later it is a directory, and the daemon finds it without a restart."""
    place = run.directory / "place"
    place.write_text("in the way")
    setup = FaultSetup(MQTT_ONLY, changes={"journal": {"path": str(place / "journal.db")}})
    async with FaultHarness(run.directory, run.seed, setup, starts_daemon=False) as harness:
        harness.daemon.start()
        await harness.until_linked()
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(RATE)
        await asyncio.sleep(run.lasts(1, 5))
        place.unlink()
        place.mkdir()
        await harness.until((place / "journal.db").exists, 15, "the journal")
        await harness.daemon.until_total(1, "ustreamer_journal_up")
        waiting = len(harness.ledger.missing())
        written = "ustreamer_journal_written_messages_total"
        await harness.until(lambda: harness.daemon.total(written) >= waiting, 15, "what waits to be in the journal")
        await harness.kill_daemon()
        assert harness.ledger.missing()
        await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        return await harness.finish(killed(1))


async def damaged(run: Run, harm: Callable[[Run], str], what: str, may_be_silent: bool = False) -> Verdict:
    """A backlog in the journal, a kill, damage to a file. The daemon starts, says what it has lost, and loses no more."""
    async with FaultHarness(run.directory, run.seed, FaultSetup(MQTT_ONLY, changes={"journal": journal(run)})) as harness:
        await harness.proxies["plant"].sever()
        await harness.daemon.until_down("plant")
        harness.load(RATE)
        await asyncio.sleep(run.between(0.5, run.lasts(1.5, 5)))
        await harness.kill_daemon()
        # Those of which the sender has not heard yet that the broker took them are meant, too.
        before = {entry.id for entry in harness.ledger.entries()}
        details = harm(run)
        await harness.proxies["plant"].heal()
        await harness.restart_daemon()
        harness.stop_load()
        await harness.settle()
        missing = {entry.id for entry in harness.ledger.missing()}
        unsaid = bool(missing) and not may_be_silent and not told_of_damage(harness)
        harness.ledger.excuse(missing & before, f"{what}: {details}")
        verdict = await harness.finish(killed(1))
        verdict.figures["damaged"] = len(missing)
        if unsaid:
            verdict.add(Breach.LOST, [f"{len(missing)} messages are gone ({details}), and no metric says so"])
        return verdict


def told_of_damage(harness: FaultHarness) -> bool:
    return (
        sum(harness.daemon.total(f"ustreamer_journal_{name}_total") for name in ("files_set_aside", "entries_corrupt")) > 0
    )


def torn(path: Path, run: Run) -> str:
    """The last page ends in the middle."""
    size = path.stat().st_size
    cut = min(size, run.chance.randint(1, 4095))
    with path.open("r+b") as file:
        file.truncate(size - cut)
    return f"{path.name} of {size} bytes without the last {cut}"


def flipped(path: Path, run: Run) -> str:
    """A few bits are not what they were."""
    data = bytearray(path.read_bytes())
    places = [run.chance.randrange(len(data)) for _ in range(run.chance.randint(1, 8))]
    for place in places:
        data[place] ^= 1 << run.chance.randrange(8)
    path.write_bytes(data)
    return f"{path.name} of {len(data)} bytes with flipped bits at {places}"


def checkpoint(run: Run) -> Path:
    """Bring everything from the write-ahead log into the file, as SQLite does by itself from time to time."""
    path = run.directory / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@fault(8, "journal file torn")
async def file_torn(run: Run) -> Verdict:
    return await damaged(run, lambda run: torn(checkpoint(run), run), "torn page")


@fault(8, "journal file with flipped bits")
async def file_flipped(run: Run) -> Verdict:
    return await damaged(run, lambda run: flipped(checkpoint(run), run), "flipped bits")


# SQLite takes a damaged frame for the end of its write-ahead log: what comes after it was never there. A disk that keeps
# what it has synced does not do that; nobody can tell if it does.


@fault(8, "write-ahead log torn")
async def log_torn(run: Run) -> Verdict:
    return await damaged(run, lambda run: torn(run.directory / "journal.db-wal", run), "torn log", may_be_silent=True)


@fault(8, "write-ahead log with flipped bits")
async def log_flipped(run: Run) -> Verdict:
    return await damaged(run, lambda run: flipped(run.directory / "journal.db-wal", run), "flipped log", may_be_silent=True)
