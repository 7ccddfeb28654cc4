"""Runs of a router on one journal file: each ends as by a kill, and the next recovers what is there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamer.journal.entries import Batch, Letter
from streamer.journal.journal import Journal
from streamer.routing.pause_rules import PauseRule
from streamer.uprotocol.message import UMessage
from tests.clock import FakeClock
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness, configuration
from tests.unit.journal.harness import BOUNDS
from tests.waiting import until

MIB = 1 << 20
DOWN = "cloud-vehicle"


class RecordingJournal(Journal):
    """Knows the letters that it was given. ``is_killed``: nothing is written any more."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.letters: list[Letter] = []
        self.is_killed = False

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        self.letters += batch.letters
        if not self.is_killed:
            super().write(batch, done)


class JournaledRun:
    """One run of the router, from recovery to the kill."""

    def __init__(self, harness: RouterHarness, journal: RecordingJournal) -> None:
        self.harness = harness
        self.journal = journal

    @property
    def letters(self) -> list[Letter]:
        """What the journal was given, and is about to get."""
        return [*self.journal.letters, *self.harness.router.custody._letters]

    async def flush(self) -> None:
        """Write what is due, and all that comes of it."""
        while self.harness.due or self.journal.is_busy:
            due = list(self.harness.due)
            self.harness.due.clear()
            for flush in due:
                flush()
            await until(lambda: not self.journal.is_busy, within_s=10, what="the commit")
        self.harness.check_books()

    def recover(self) -> None:
        """Recover what could not be recovered before, as the daemon does now and then."""
        for _ in self.harness.router.recover():
            pass

    def hold(self, endpoint: str = "vehicle") -> None:
        self.harness.transports[endpoint].is_withholding = True


@asynccontextmanager
async def journaled_run(
    path: Path,
    addressed: tuple[str, ...] = (),
    max_bytes: int = 64 * MIB,
    memory: int = 64 * MIB,
    unconfirmed_s: float = 0,
    clock: FakeClock | None = None,
    pause_rules: Iterable[PauseRule] = (),
    **changes: Any,
) -> AsyncIterator[JournaledRun]:
    """A router on ``path``, under these rules, that has recovered what was there. It ends as by a kill."""
    config = configuration(journal={"path": str(path), "max_bytes": max_bytes, "memory": memory}, **changes)
    journal = RecordingJournal(
        path, max_bytes, BOUNDS._replace(max_bytes=max_bytes // 4), asyncio.get_running_loop().call_soon_threadsafe
    )
    opened = asyncio.Event()
    harness: RouterHarness | None = None
    marked: list[tuple[list[Letter], list[int | None]]] = []  # before the router is there

    def redrive(letters: list[Letter], ttls: list[int | None]) -> None:
        if harness is None:
            marked.append((letters, ttls))
        else:
            harness.router.redrive.take(letters, ttls)

    journal.start(opened.set, redrive)
    await asyncio.wait_for(opened.wait(), 10)
    try:
        async with RouterHarness(config, addressed, unconfirmed_s=unconfirmed_s, journal=journal, clock=clock) as harness:
            for rule in pause_rules:
                harness.router.pause_rules.add(rule)
            harness.router.start_recovery()
            for _ in harness.router.recover():
                pass
            for each in marked:
                harness.router.redrive.take(*each)
            yield JournaledRun(harness, journal)
            journal.is_killed = True
            harness.due.clear()
    finally:
        assert await asyncio.to_thread(journal.stop, 10)


def order(harness: RouterHarness, text: bytes = b"", **options: Any) -> UMessage:
    return harness.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)
