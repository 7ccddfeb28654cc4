"""Lives of a router on the file of one journal: each ends without a farewell, and the next recovers what is there."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from streamer.journal.entries import Letter
from streamer.journal.journal import Journal
from streamer.routing.pause_rules import PauseRule
from streamer.uprotocol.message import UMessage
from tests.flow.stage import ORDERS, VEHICLE_APP, Stage, WoundClock, configuration
from tests.independent import until

MIB = 1 << 20
DOWN = "cloud-vehicle"


class Life:
    """One life of the daemon's router, on the journal's file."""

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self.stage = stage
        self.journal = journal
        self.letters: list[Letter] = []  # that the journal was given
        custody = stage.router.custody
        keep = custody.letter

        def letter(letter: Letter) -> None:
            self.letters.append(letter)
            keep(letter)

        custody.letter = letter  # type: ignore[method-assign]

    async def flush(self) -> None:
        """Write what is due, and all that comes of it."""
        while self.stage.due or self.journal.is_busy:
            due = list(self.stage.due)
            self.stage.due.clear()
            for flush in due:
                flush()
            await until(lambda: not self.journal.is_busy, 10, "the commit")
        self.stage.check_books()

    def hold(self, endpoint: str = "vehicle") -> None:
        self.stage.transports[endpoint].hold = True


@asynccontextmanager
async def life(
    path: Path,
    max_bytes: int = 64 * MIB,
    memory: int = 64 * MIB,
    unconfirmed_s: float = 0,
    clock: WoundClock | None = None,
    pause_rules: Iterable[PauseRule] = (),
    **changes: object,
) -> AsyncIterator[Life]:
    """A router on ``path``, under these rules, that has recovered what was there. It ends without a farewell."""
    config = configuration(journal={"path": str(path), "max_bytes": max_bytes, "memory": memory}, **changes)
    journal = Journal(path, max_bytes, 1000, max_bytes // 4, asyncio.get_running_loop().call_soon_threadsafe)
    opened = asyncio.Event()
    journal.start(opened.set)
    await asyncio.wait_for(opened.wait(), 10)
    try:
        async with Stage(config, unconfirmed_s=unconfirmed_s, journal=journal, clock=clock) as stage:
            for rule in pause_rules:
                stage.router.pause_rules.add(rule)
            stage.router.recover()
            journal.on_redrive = stage.router.redrive.take
            yield Life(stage, journal)
            stage.router.custody.flush = lambda: None  # type: ignore[method-assign]  # nothing is written after the end
            stage.due.clear()
    finally:
        assert await asyncio.to_thread(journal.stop, 10)


def order(stage: Stage, text: bytes = b"", **options: object) -> UMessage:
    return stage.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)
