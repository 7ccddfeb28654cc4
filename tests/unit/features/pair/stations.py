"""Two sides of a pair as the daemon has them, with real journals and a real link between them."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from streamer.clock import SystemClock
from streamer.features.host.state import StateFile
from streamer.features.pair.lease import Changed, Timing
from streamer.features.pair.link import Link
from streamer.features.pair.member import FIRST, Identity, Member
from streamer.features.pair.mirror import MirroredJournal
from streamer.journal.codec import pack
from streamer.journal.entries import Batch, Row
from streamer.journal.journal import Journal
from streamer.journal.schema import Tables
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests import hosted
from tests.ports import HOST, free_port
from tests.unit.journal.harness import BOUNDS, row

KEY = b"k" * 32
TABLES = {**hosted.TABLES, "noted": "CREATE TABLE noted (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"}
"""The features' own, and one for which no other feature is needed."""

TIMING = Timing()
_MOST_S = 0.06
"""Somewhat more than the pause between two readings of the clock."""


class PatientClock(SystemClock):
    """The time in which this process runs: one that does not get the processor for a while hears nothing meanwhile."""

    def __init__(self) -> None:
        self._read_s = self._now_s = time.monotonic()

    def monotonic_s(self) -> float:
        read_s = time.monotonic()
        self._now_s += min(read_s - self._read_s, _MOST_S)
        self._read_s = read_s
        return self._now_s


class Station:
    """One side as the daemon has it: on standby with a journal, then active with it."""

    def __init__(self, folder: Path, name: str, port: int, clock: PatientClock, config: str = "same") -> None:
        self._clock = clock
        self.path = folder / name / "journal.db"
        self.path.parent.mkdir(exist_ok=True)
        self.name = name
        self._address = HOST, port
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self.adopted: list[Received] = []
        self.reaches = ["vehicle", "cloud"]
        self.accepts: dict[str, bool] = {}
        self.wants = ""
        self.foreign: dict[str, set[str]] = {}  # nodes by endpoint
        self.aside: list[Callable[[bytes], None]] = []  # who hears what it says beside the link
        self.has_stepped_back = self.drains = False
        self.authority = "gw"

    async def start(self) -> None:
        self.at_work = asyncio.Event()
        identity = Identity(self.name, self._config, "1", authority=self.authority)
        self.member = Member(identity, self.path.with_name("pair.json"), self._clock, TIMING, self, key=KEY, prefer_s=0.5)
        where = "listen" if self.name == FIRST else "connect"
        self.link = link = Link(
            **{where: self._address},  # type: ignore[arg-type]
            key=KEY,
            name=self.name,
            authority=self.authority,
            on_frame=self.member.on_frame,
            on_up=self.member.on_up,
            on_down=self.member.on_down,
        )
        self.member.use(link)
        self.journal = await self._opened(Journal)
        self.state = StateFile(self.journal, TABLES)
        self.member.stand_by(self.journal, self.state)
        self._tasks = [asyncio.create_task(work) for work in (link.run(), self.member.beat(), self._work())]

    def role_changed(self, changed: Changed) -> None:
        if changed.is_active:
            self.at_work.set()
        else:
            self.has_stepped_back = True

    def reached(self) -> list[str]:
        return self.reaches

    def accepting(self) -> dict[str, bool]:
        return {} if self.at_work.is_set() else self.accepts

    def lost(self) -> list[str]:
        return [name for name in ("vehicle", "cloud") if name not in self.reaches]

    def nodes(self) -> dict[str, set[str]]:
        return self.foreign

    def is_draining(self) -> bool:
        return self.drains

    def adopt(self, endpoint: str, batch: list[Received]) -> bool:
        if endpoint != "vehicle":
            return False
        self.adopted += batch
        return True

    def tell_interest(self, is_first: bool = False) -> pb.Interest | None:
        return pb.Interest(is_first=True) if is_first else None

    def hear_interest(self, told: pb.Interest) -> None:
        self.has_heard_interest = told.is_first

    def say_aside(self, payload: bytes) -> None:
        for hear in self.aside:
            hear(payload)

    def member_hears(self, payload: bytes) -> None:
        self.member.hear_aside(payload)

    def wants_to_hand_over(self, why: str) -> None:
        self.wants = why

    async def _work(self) -> None:
        await self.at_work.wait()
        self.member.end_standby()
        await asyncio.to_thread(self.journal.stop, 10)
        self.journal = await self._opened(MirroredJournal)
        self.state = StateFile(self.journal, TABLES, self.member.state)
        assert isinstance(self.journal, MirroredJournal)
        self.member.work(self.journal, self.state)

    async def _opened(self, kind: type[Journal]) -> Journal:
        journal = kind(self.path, 1 << 30, BOUNDS, asyncio.get_running_loop().call_soon_threadsafe, tables=Tables(TABLES))
        if isinstance(journal, MirroredJournal):
            self.member.arrange(journal)
        opened = asyncio.Event()
        journal.start(opened.set)
        async with asyncio.timeout(60):
            await opened.wait()
        return journal

    @property
    def works(self) -> bool:
        return isinstance(self.journal, MirroredJournal) and self.member.may_send()

    @property
    def protects(self) -> bool:
        """Whether what it writes is on both disks."""
        journal = self.journal
        is_stored = isinstance(journal, MirroredJournal) and journal.is_mirrored and journal._stored == journal._told
        return is_stored and self.member.state.is_whole

    async def note(self, name: str) -> None:
        """Write to a table, as a service does before it answers."""
        async with asyncio.timeout(60):
            await self.state.write([("INSERT INTO noted (name) VALUES (?)", (name,))])

    @property
    def noted(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM noted ORDER BY number")]

    async def write(self, *numbers: int, done: tuple[int, ...] = ()) -> None:
        await self.write_batch(Batch(rows=[row(number) for number in numbers], rows_done=list(done)))

    async def write_batch(self, batch: Batch) -> None:
        finished = asyncio.Event()
        self.journal.write(batch, finished.set)
        async with asyncio.timeout(60):
            await finished.wait()

    @property
    def mirrored(self) -> MirroredJournal:
        assert isinstance(self.journal, MirroredJournal)
        return self.journal

    async def cut(self) -> None:
        """End the link at this end."""
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)

    async def kill(self) -> None:
        """End it, as a kill would: nobody is told."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.journal.stop, 10)


def of_message(number: int, message: UMessage) -> Row:
    return row(number)._replace(source="vehicle", body=pack(message))


class Stations:
    def __init__(self, folder: Path, config: str = "same") -> None:
        port = free_port()
        clock = PatientClock()
        self.first = Station(folder, "a", port, clock)
        self.second = Station(folder, "b", port, clock, config)
