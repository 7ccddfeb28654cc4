"""Two sides of a pair with real journals and a real link: who works, and what is on both disks."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from streamer.clock import SystemClock
from streamer.delivery.inbound.refusals import FULL
from streamer.journal.codec import PackedFlow, pack, pack_flow, pack_record, pack_segment
from streamer.journal.entries import Batch, Row, Segment
from streamer.journal.journal import Journal
from streamer.pair.lease import Changed, Timing
from streamer.pair.link import Link
from streamer.pair.member import FIRST, Identity, Member
from streamer.pair.mirror import MirroredJournal
from streamer.pair.notes import Notes, NotesError, read
from streamer.services.host import TABLES
from streamer.services.state import StateFile
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage, publish
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
        self.state = StateFile(self.path.with_name("state.db"), TABLES)
        await asyncio.to_thread(self.state.open)
        self.member.stand_by(self.journal, self.state)
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
        await asyncio.to_thread(self.state.close)
        self.state = StateFile(self.path.with_name("state.db"), TABLES, self.member.state)
        await asyncio.to_thread(self.state.open)
        self.journal = await self._opened(MirroredJournal)
        assert isinstance(self.journal, MirroredJournal)
        self.member.work(self.journal, self.state)

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

    @property
    def protects(self) -> bool:
        """Whether what it writes is on both disks."""
        journal = self.journal
        is_stored = isinstance(journal, MirroredJournal) and journal.is_mirrored and journal._stored == journal._told
        return is_stored and self.member.state.is_whole

    async def write(self, *numbers: int, done: tuple[int, ...] = ()) -> None:
        await self.write_batch(Batch(rows=[row(number) for number in numbers], rows_done=list(done)))

    async def write_batch(self, batch: Batch) -> None:
        finished = asyncio.Event()
        self.journal.write(batch, finished.set)
        async with asyncio.timeout(60):
            await finished.wait()

    async def pause(self, name: str) -> None:
        """Write a rule into the state file, as a service does before it answers."""
        async with asyncio.timeout(60):
            await self.state.write([("INSERT INTO dispatch_stops (source, sink) VALUES (?, '')", (name,))])

    @property
    def paused(self) -> list[str]:
        with closing(sqlite3.connect(self.state.path or "")) as connection:
            return [name for (name,) in connection.execute("SELECT source FROM dispatch_stops ORDER BY number")]

    async def kill(self) -> None:
        """End it, as a kill would: nobody is told."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.journal.stop, 10)
        await asyncio.to_thread(self.state.close)


def of_message(number: int, message: UMessage) -> Row:
    return row(number)._replace(source="vehicle", body=pack(message))


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


async def test_what_a_service_was_answered_is_there_after_a_kill_and_after_another_one(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await first.pause("one")
    assert second.paused == ["one"]
    await first.kill()
    await until(lambda: second.works, "the other one works")
    await second.pause("two")
    await first.start()
    await until(lambda: first.member.is_whole, "a whole copy")
    await second.pause("three")
    assert first.paused == second.paused == ["one", "two", "three"]
    await second.kill()
    await until(lambda: first.works, "the first one works again")
    assert first.paused == ["one", "two", "three"]


async def test_after_it_was_alone_what_it_writes_is_on_both_disks_again(stations: Stations) -> None:
    """It hears of the other one before its lease does: what answers has to be told everything once the lease knows, too."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it is alone")
    await first.write(2)
    await second.start()
    await until(lambda: second.member.is_whole and not first.member.lease.is_alone, "a whole copy")
    await until(lambda: first.protects, "what it writes is on both disks")
    for number in (4, 6, 8):
        said = first.member.lease._number
        await until(lambda said=said: first.member.lease._number > said + 1, "two more heartbeats")  # type: ignore[misc]
        await first.write(number)
        await first.pause(str(number))
        assert second.journal.numbers("rows")[-1] == number
        assert second.paused[-1] == str(number)


async def test_one_that_did_not_answer_for_a_while_gets_what_it_has_missed(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    answer, second.member._say_heartbeat = second.member._say_heartbeat, lambda: None  # type: ignore[method-assign]
    await until(lambda: first.member.lease.is_alone, "it is alone, with a link")
    await first.write(2)
    await first.pause("missed")
    second.member._say_heartbeat = answer  # type: ignore[method-assign]
    await until(lambda: first.protects, "what it writes is on both disks")
    assert second.journal.numbers("rows") == [2]
    assert second.paused == ["missed"]


async def test_one_whose_journal_opens_late_gets_everything(stations: Stations) -> None:
    """The link is there before: what it was told until then has gone nowhere."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    second.member.end_standby()
    await until(lambda: first.works, "it works")
    first.member._copy_to_other()
    await asyncio.sleep(0)
    second.member.stand_by(second.journal, second.state)
    await until(lambda: second.member.is_whole, "a whole copy")
    await first.write(2)
    await first.pause("one")
    assert second.journal.numbers("rows") == [2]
    assert second.paused == ["one"]


async def test_what_one_has_accepted_alone_is_handed_to_the_other_that_works_since(
    stations: Stations, tmp_path: Path
) -> None:
    """Each message once it is safe there, rows as well as segments; another endpoint's stay."""
    first, second = stations.first, stations.second
    await until(lambda: first.works and second.member.is_whole, "a whole copy")
    await second.kill()
    await until(lambda: first.member.lease.is_alone, "it works alone")
    messages = [publish(1_700_000_000_000, SPEED, b"%d" % number) for number in range(4)]
    rows = [of_message(number, message) for number, message in zip((2, 4, 6), messages, strict=False)]
    rows.append(of_message(8, messages[0])._replace(source="gone"))
    flow = PackedFlow("r", "vehicle", "cloud", "=", messages[3].attributes)
    packed = pack_segment([pack_flow(flow)], list(pack_record(0, 99, 0, messages[3])))
    await first.write_batch(Batch(rows=rows, segments=[Segment(10, "cloud", packed)]))
    await first.kill()
    await second.start()
    await until(lambda: second.works, "the other one works alone", within_s=60)
    await first.start()
    await until(lambda: len(second.adopted) == 4, "they are handed over")
    assert [each.message for each in second.adopted] == messages
    assert first.journal.numbers("rows") == [2, 4, 6, 8]
    for each in second.adopted:
        each.release()
    await until(lambda: first.journal.numbers("rows") == [8] and not first.journal.numbers("segments"), "only one is left")


async def test_one_that_cannot_write_is_not_waited_for_and_is_copied_to_once_it_can(
    stations: Stations, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    monkeypatch.setattr(second.member, "_problem", lambda: "the disk is full")
    await until(lambda: not first.member.is_protected, "it is known")
    await first.write(2)
    assert "pair_alone reason=the other one cannot write: the disk is full" in caplog.text
    assert first.member.why_not_hand_over() == "the other one cannot write its journal: the disk is full"
    monkeypatch.undo()
    await until(lambda: first.member.is_protected, "a whole copy again")
    assert second.journal.numbers("rows") == [2]


async def test_it_wants_to_hand_over_to_one_that_reaches_more(stations: Stations) -> None:
    first, second = stations.first, stations.second
    await until(lambda: first.works and first.member.is_protected, "a whole copy")
    second.reaches = ["cloud"]
    first.reaches = ["vehicle"]
    await until(lambda: list(first.member.report.reaches) == ["cloud"], "a report")
    assert first.wants == ""  # each reaches what the other one does not
    second.reaches = ["cloud", "vehicle"]
    await until(lambda: first.wants != "", "it wants to")
    assert first.wants == "there is no link to cloud, and the other one can reach more"
    first.member.hand_over()
    await until(lambda: second.works, "the other one works")
    assert first.has_stepped_back
    assert second.member.why == "the other hands over"


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
