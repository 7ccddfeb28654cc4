"""What happens to the disks of a pair beyond being full: 19. One comes back with less than it had, or hangs."""

import asyncio
import functools
import itertools
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing

from tests.fault.faults_pair import NUMBER, SEEDS, SIGN_S, rate, under_way, window
from tests.fault.hanging_disk import preloaded
from tests.fault.ledger import Verdict
from tests.fault.pair import Gateway, PairHarness
from tests.fault.registry import Run, fault
from tests.fault.setup import PairSetup

PAGE_BYTES = 4096

Harm = Callable[[Run, Gateway], None]


def without_anything(_: Run, gateway: Gateway) -> None:
    gateway.empty_disk()


def without_journal(_: Run, gateway: Gateway) -> None:
    """What else is in the folder stays."""
    for path in gateway.disk.glob("journal.db*"):
        path.unlink()


def with_a_bad_page(run: Run, gateway: Gateway) -> None:
    """Any but the first one."""
    path = gateway.disk / "journal.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(PAGE_BYTES * run.chance.randrange(1, path.stat().st_size // PAGE_BYTES))
        file.write(run.chance.randbytes(PAGE_BYTES))


def as_it_was(_: Run, gateway: Gateway) -> None:
    shutil.rmtree(gateway.disk)
    shutil.move(gateway.copied_disk, gateway.disk)


async def back_with_less(run: Run, *, harm: Harm) -> Verdict:
    """Messages wait on both disks. Both are killed, and one of the two disks comes back with less: nothing is lost.

    It is that of the active one or that of the standby, and starts together with the other one or first and works alone.
    """
    async with PairHarness(run.directory, run.seed, PairSetup(has_publishes=False)) as harness:
        first, second = await harness.until_pair()
        worse, is_alone = run.one_of(*itertools.product((first, second), (True, False)))
        await harness.receiver_leaves()
        for part in range(2):
            await harness.pile_up_on_both(rate(run), run.lasts(2, 10))
            if part == 0:
                await asyncio.to_thread(worse.copy_disk)
        for gateway in (first, second):
            gateway.signal(signal.SIGKILL, stays=True)
            await harness.until(lambda each=gateway: not each.is_running, "the end of both")  # type: ignore[misc]
        await asyncio.to_thread(harm, run, worse)
        worse.start()
        if is_alone:
            await harness.until_takes_over(worse)
            await asyncio.sleep(run.between(0, 1))
        harness.other(worse).start()
        await harness.until_pair()
        await harness.receiver_returns()
        return await harness.finish(inversions=True)


for _name, _harm in {
    "with an empty disk": without_anything,
    "without its journal": without_journal,
    "with a bad page": with_a_bad_page,
    "with an older copy": as_it_was,
}.items():
    fault(NUMBER, f"pair: both killed and one back {_name}", seeds=SEEDS)(functools.partial(back_with_less, harm=_harm))


@fault(NUMBER, "pair: disk of the active one hangs", seeds=SEEDS)
async def active_hangs(run: Run) -> Verdict:
    """What cannot be written for 5 s counts, and the other one goes on."""
    async with PairHarness(run.directory, run.seed, PairSetup(environ=preloaded(run.directory))) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        with first.hanging_disk():
            await harness.until_takes_over(second)
            await harness.until_flowing()
            await asyncio.sleep(run.lasts(2, 25))
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish(window(run))


@fault(NUMBER, "pair: disk of the standby hangs", seeds=SEEDS)
async def standby_hangs(run: Run) -> Verdict:
    """The active one goes on, and nobody takes over."""
    async with PairHarness(run.directory, run.seed, PairSetup(environ=preloaded(run.directory))) as harness:
        harness.load(rate(run))
        first, second = await under_way(run, harness)
        with second.hanging_disk():
            if not await harness.happens(lambda: not second.is_ready(), SIGN_S):
                harness.sign_was_wrong("the standby is ready, and its disk hangs")
            await harness.until_flowing()
            await asyncio.sleep(run.lasts(2, 25))
        assert harness.active is first
        await harness.until_pair()
        await harness.until_flowing()
        return await harness.finish()
