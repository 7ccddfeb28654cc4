"""Two sides of a pair with real journals and a real link: who works, and what is on both disks."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.clock import SystemClock
from streamer.delivery.inbound.refusals import FULL
from streamer.journal.entries import Batch
from streamer.journal.journal import Journal
from streamer.pair.lease import Changed, Timing
from streamer.pair.link import Link
from streamer.pair.member import FIRST, Identity, Member
from streamer.pair.mirror import MirroredJournal
from streamer.pair.notes import Notes, NotesError, read
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.ports import HOST, free_port
from tests.unit.journal.harness import BOUNDS, row
from tests.waiting import until

KEY = b"k" * 32
TIMING = Timing()


class Station:
    """One side as the daemon has it: on standby with a journal, then active with it."""

    def __init__(self, folder: Path, name: str, port: int, config: str = "same") -> None:
        self.path = folder / name / "journal.db"
        self.path.parent.mkdir(exist_ok=True)
        self.name = name
        self._address = HOST, port
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self.adopted: list[Received] = []
        self.reaches = ["vehicle", "cloud"]
        self.wants = ""
        self.has_stepped_back = False

    async def start(self) -> None:
        self.at_work = asyncio.Event()
        identity = Identity(self.name, self._config, "1")
        self.member = Member(identity, self.path.with_name("pair.json"), SystemClock(), TIMING, self, prefer_s=0.5)
        where = "listen" if self.name == FIRST else "connect"
        self.link = link = Link(
            **{where: self._address},  # type: ignore[arg-type]
            key=KEY,
            name=self.name,
            on_frame=self.member.on_frame,
            on_up=self.member.on_up,
            on_down=self.member.on_down,
        )
        self.member.use(link)
        self.journal = await self._opened(Journal)
        self.member.stand_by(self.journal)
        self._tasks = [asyncio.create_task(work) for work in (link.run(), self.member.beat(), self._work())]

    def role_changed(self, changed: Changed) -> None:
        if changed.is_active:
            self.at_work.set()
        else:
            self.has_stepped_back = True

    def reached(self) -> list[str]:
        return self.reaches

    def lost(self) -> list[str]:
        return [name for name in ("vehicle", "cloud") if name not in self.reaches]

    def adopt(self, endpoint: str, batch: list[Received]) -> bool:
        if endpoint != "vehicle":
            return False
        self.adopted += batch
        return True

    def wants_to_hand_over(self, why: str) -> None:
        self.wants = why

    async def _work(self) -> None:
        await self.at_work.wait()
        self.member.end_standby()
        await asyncio.to_thread(self.journal.stop, 10)
        self.journal = await self._opened(MirroredJournal)
        assert isinstance(self.journal, MirroredJournal)
        self.member.work(self.journal)

    async def _opened(self, kind: type[Journal]) -> Journal:
        journal = kind(self.path, 1 << 30, BOUNDS, asyncio.get_running_loop().call_soon_threadsafe)
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

    async def write(self, *numbers: int, done: tuple[int, ...] = ()) -> None:
        finished = asyncio.Event()
        self.journal.write(Batch(rows=[row(number) for number in numbers], rows_done=list(done)), finished.set)
        async with asyncio.timeout(60):
            await finished.wait()

    async def kill(self) -> None:
        """End it, as a kill would: nobody is told."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.journal.stop, 10)


class Stations:
    def __init__(self, folder: Path, config: str = "same") -> None:
        port = free_port()
        self.first = Station(folder, "a", port)
        self.second = Station(folder, "b", port, config)


@pytest.fixture
async def stations(tmp_path: Path) -> AsyncIterator[Stations]:
    found = Stations(tmp_path)
    for each in (found.first, found.second):
        await each.start()
    yield found
    for each in (found.first, found.second):
        await each.kill()


async def test_of_two_that_start_one_works_and_the_other_has_what_it_writes(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "one active, and a whole copy")
    await first.write(2, 4, 6)
    assert second.journal.numbers("rows") == [2, 4, 6]
    await first.write(8, done=(2, 6))
    assert second.journal.numbers("rows") == [4, 8]
    message = publish(1_700_000_000_000, SPEED, b"heard by both")
    second.member.shadows.hear("vehicle", [MemoryReceived(message)])
    first.member.settled.never_queued(message, ("", "vehicle", ""), FULL, 0.0, 0)
    await until(lambda: not len(second.member.shadows), "the other one knows that it is settled")
    assert not second.works


async def test_after_a_kill_the_other_one_works_with_what_waits_and_copies_it_back(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await first.write(2, 4)
    await until(lambda: read(first.path.with_name("pair.json")).shared == 4, "a note of what is shared")
    await first.kill()
    await until(lambda: second.works, "the other one works")
    assert second.member.lease.epoch == read(second.path.with_name("pair.json")).epoch == 2
    assert [each.number for each in second.journal.rows()] == [2, 4]
    await second.write(5, done=(2,))
    await first.start()
    await until(lambda: first.member.is_whole, "a whole copy of what waits now")
    assert first.journal.numbers("rows") == [4, 5]
    assert not first.works
    assert second.works


async def test_what_was_alone_is_copied_again_once_the_other_one_is_back(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone and first.works, "it works alone")
    await first.write(2)
    await second.start()
    await until(lambda: second.member.is_whole and not first.member.lease.is_alone, "a whole copy, and answers")
    await first.write(4)
    assert second.journal.numbers("rows") == [2, 4]


async def test_with_another_configuration_it_does_not_take_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stations = Stations(tmp_path, config="other")
    first, second = stations.first, stations.second
    for each in (first, second):
        await each.start()
    await until(lambda: second.member.other is not None and first.member.other is not None, "they have met")
    assert not first.member.lease.is_ready
    assert not second.member.lease.is_ready
    assert "pair_configuration is_alike=False" in caplog.text
    for each in (first, second):
        await each.kill()


async def test_nothing_is_handed_over_while_the_other_one_lacks_something(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    assert first.member.why_not_hand_over() == ""
    assert isinstance(first.journal, MirroredJournal)
    first.journal.work_alone()
    await first.write(2)
    assert second.journal.numbers("rows") == []
    assert second.member.is_whole  # as far as it knows
    assert "no complete copy" in first.member.why_not_hand_over()


async def test_before_a_handover_the_other_one_has_written_what_it_was_told(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    await first.write(2, 4)
    first.journal.write(Batch(rows_done=[2, 4]), lambda: None)
    await first.member.until_stored(60)
    assert second.journal.numbers("rows") == []


async def test_with_another_configuration_it_has_a_copy_and_can_be_the_first_to_be_updated(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    assert (second.member.why_not_ready(), second.member.why_not_whole()) == ("", "")
    second.member.configured("other")
    await until(lambda: not first.member.lease.is_ready, "the other one knows of it")
    await until(lambda: second.member.why_not_whole() == "", "the copy, which begins anew with what they say of themselves")
    assert second.member.why_not_ready() == "the other one has another configuration"
    await first.kill()
    await until(lambda: second.member.other is None, "no link")
    assert second.member.why_not_ready() == second.member.why_not_whole() == "there is no link to the other one"


def test_notes_that_cannot_be_read_say_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    for content in ("", "[]", '{"epoch": -1, "disk": "x"}', '{"epoch": true', '{"epoch": 1}', '{"epoch": "1", "disk": "x"}'):
        path.write_text(content)
        with pytest.raises(NotesError, match=r"pair\.json: expected"):
            read(path)
    path.write_text('{"epoch": 1, "disk": "x", "other": "y", "shared": -1}')
    with pytest.raises(NotesError, match=r"pair\.json: expected"):
        read(path)
    path.unlink()
    assert read(path)[:1] == Notes(0, "")[:1]
    assert os.listdir(tmp_path) == []
