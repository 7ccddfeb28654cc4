"""The tables of two journals with a link between them: what a service is answered about one is in the other, too."""

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from streamer.features.host.state import StateError, StateFile, Statement
from streamer.features.pair import wire
from streamer.features.pair.sending import LONGEST_PAUSE_S, MOST_BYTES
from streamer.features.pair.state import SILENT_S, MirroredState, StateReplica, Written
from streamer.journal.journal import JournalState
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.hosted import TABLES, StateOn
from tests.waiting import POLL_S, until

pytestmark = pytest.mark.needs("pause", "usubscription", "utwin")  # their tables

Contents = dict[str, list[tuple[object, ...]]]

NEWER = {"later": "CREATE TABLE later (number INTEGER PRIMARY KEY) STRICT"}
"""A table that this version does not have."""


def pause(number: int) -> Statement:
    """A transaction that cannot be repeated: the number is unique."""
    return "INSERT INTO dispatch_stops VALUES (?, ?, ?)", (number, f"//veh1/A/1/{number:X}", "")


def resume(number: int) -> Statement:
    return "DELETE FROM dispatch_stops WHERE number = ?", (number,)


def value(topic: str, message: bytes) -> Statement:
    return "INSERT OR REPLACE INTO utwin_messages (topic, message, at_ms) VALUES (?, ?, ?)", (topic, message, 1)


class Link:
    """Carries what both say as the real one does, packed and in order; or holds it."""

    def __init__(self) -> None:
        self.is_up = False
        self.is_held = False
        self.most_on_the_way = 0
        self.mirror: MirroredState
        self.replica: StateReplica
        self._frames: deque[bytes] = deque()
        self._unanswered: dict[int, int] = {}  # bytes of parts, by number

    @property
    def held(self) -> int:
        return len(self._frames)

    def tell(self, written: Written) -> bool:
        if self.is_up:
            self._put(pb.Frame(state=wire.state_to_proto(written)))
            self._unanswered[written.number] = len(self._frames[-1])
            self.most_on_the_way = max(self.most_on_the_way, sum(self._unanswered.values()))
        return self.is_up

    def answer(self, number: int, problem: str) -> None:
        if self.is_up:
            self._put(pb.Frame(state_stored=pb.StateStored(number=number, problem=problem)))

    def go_on(self) -> None:
        self.is_held = False
        while self._frames:
            self._carry()

    def cut(self) -> None:
        """What is on its way is lost."""
        self.is_up = self.is_held = False
        self._frames.clear()
        self._unanswered.clear()
        self.mirror.other_left()

    def _put(self, frame: pb.Frame) -> None:
        self._frames.append(frame.SerializeToString())
        if not self.is_held:
            asyncio.get_running_loop().call_soon(self._carry)

    def _carry(self) -> None:
        if not self._frames or self.is_held:
            return
        frame = pb.Frame.FromString(self._frames.popleft())
        if frame.WhichOneof("content") == "state":
            self.replica.take(wire.state_from_proto(frame.state))
        else:
            self._unanswered.pop(frame.state_stored.number, None)
            self.mirror.other_stored(frame.state_stored.number, frame.state_stored.problem)


class Pair:
    """The tables of the active streamer, and those on standby."""

    def __init__(self, folder: Path, more_tables: dict[str, str] | None = None) -> None:
        self.link = Link()
        self.now_s = 1_000_000.0  # the machine has run for long
        self.mirror = MirroredState(self.link.tell, lambda: self.now_s)
        self.here = StateOn(folder / "here.db", {**TABLES, **(more_tables or {})}, self.mirror)
        self.here.open()
        self.mirror.work(self.here)
        self.there_path = folder / "there.db"
        self.there = StateOn(self.there_path, TABLES)
        self.replica = StateReplica(self.there, self.link.answer)
        self.link.mirror, self.link.replica = self.mirror, self.replica

    def connect(self) -> None:
        self.there.open(goes_on=True)
        self.link.is_up = True
        self.replica.other_came()
        self.mirror.other_came()

    async def copied(self) -> None:
        self.connect()
        await until(lambda: self.mirror.is_whole, "a copy of everything")
        assert self.replica.is_whole

    def tick(self, later_s: float = 0.0) -> None:
        self.now_s += later_s
        self.mirror.tick()

    def send_one_part_at_a_time(self) -> None:
        self.mirror._window._most_bytes = 1

    async def retried(self) -> None:
        """It is told everything again, which is good this time."""
        self.tick()
        assert not self.mirror.is_whole
        self.tick(LONGEST_PAUSE_S)
        await until(lambda: self.mirror.is_whole, "a copy of everything")

    async def fail_again(self) -> None:
        self.tick()
        self.tick(LONGEST_PAUSE_S)
        assert not self.mirror._has_failed
        await until(lambda: self.mirror._has_failed, "it has failed again")

    def same(self) -> bool:
        return contents(self.here) == contents(self.there)

    def close(self) -> None:
        self.here.close()
        self.there.close()


def contents(file: StateFile) -> Contents:
    """What is on disk, in the order in which the services read it."""
    assert file.path is not None
    connection = sqlite3.connect(file.path)
    try:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in TABLES}
    finally:
        connection.close()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


async def test_alone_a_change_is_answered_once_it_is_on_disk_here(pair: Pair) -> None:
    await pair.here.write([pause(1)])
    assert len(contents(pair.here)["dispatch_stops"]) == 1
    assert not pair.there_path.exists()


async def test_the_other_one_gets_everything_and_what_it_had_is_gone(pair: Pair) -> None:
    pair.there.open()
    await pair.there.write([pause(1), pause(7), value("//veh1/A/1/8000", b"old")])
    await pair.here.write([pause(2), pause(7)])
    await pair.here.write(
        [
            value("//veh1/A/1/8001", b"\0\xff"),
            value("//veh1/A/1/8000", "ü\0".encode()),
            ("INSERT INTO usubscription_subscriptions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (1, "t", "s", "", 1, None, -5, b"")),
        ]
    )
    await pair.copied()
    assert pair.same()
    assert [row[0] for row in contents(pair.there)["utwin_messages"]] == ["//veh1/A/1/8001", "//veh1/A/1/8000"]


async def test_a_change_is_answered_once_it_is_on_both_disks(pair: Pair) -> None:
    await pair.copied()
    pair.link.is_held = True
    write = asyncio.create_task(pair.here.write([pause(1), pause(2)]))
    await until(lambda: pair.link.held == 1, "the change is on its way")
    assert len(contents(pair.here)["dispatch_stops"]) == 2
    assert not write.done()
    pair.link.go_on()
    await write
    assert pair.same()


async def test_changes_of_many_arrive_in_the_order_of_their_commits(pair: Pair) -> None:
    await pair.copied()
    await asyncio.gather(*(pair.here.write([pause(n), value(f"//veh1/A/1/{n % 7:X}", b"%d" % n)]) for n in range(200)))
    assert pair.same()
    assert len(contents(pair.there)["dispatch_stops"]) == 200


async def test_little_of_everything_is_on_its_way_at_a_time(pair: Pair) -> None:
    await pair.here.write([pause(number) for number in range(3000)])
    await pair.here.write([value(f"//veh1/A/1/{number:X}", bytes(300_000)) for number in range(20)])
    await pair.copied()
    assert pair.link.most_on_the_way <= MOST_BYTES + 300_000 + 10_000  # and one part that is larger
    assert pair.same()


async def test_what_is_written_while_everything_is_told_is_part_of_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.features.pair.state._PART_STATEMENTS", 10)
    await pair.here.write([pause(number) for number in range(100)])
    pair.link.is_held = True
    pair.send_one_part_at_a_time()
    pair.connect()
    await until(lambda: pair.link.held == 2, "the first part is on its way")
    for number in range(100, 150):
        await pair.here.write([pause(number), resume(number - 100)])  # it works alone until now
    pair.link.go_on()
    await until(lambda: pair.mirror.is_whole, "a copy")
    assert pair.same()
    assert [row[0] for row in contents(pair.there)["dispatch_stops"]] == list(range(50, 150))


async def test_whatever_becomes_of_the_link_what_was_answered_is_on_both_disks_or_was_so_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.pair.state._PART_STATEMENTS", 3)
    chosen = random.Random(7)
    numbers = iter(range(1000))
    here: set[int] = set()
    writes: list[asyncio.Task[None]] = []

    async def write() -> None:
        number = next(numbers)
        gone = chosen.choice(sorted(here)) if here and chosen.random() < 0.5 else None
        here.discard(-1 if gone is None else gone)
        await pair.here.write([pause(number), *([] if gone is None else [resume(gone)])])
        here.add(number)
        if not pair.mirror.is_alone and not pair.link.is_held:
            assert number in [row[0] for row in contents(pair.there)["dispatch_stops"]]

    for _ in range(150):
        act = chosen.choice(("write", "write", "write", "write", "cut", "alone", "connect", "wait"))
        if act == "write":
            writes.append(asyncio.create_task(write()))
        elif act in ("cut", "connect"):
            pair.link.cut()
            if act == "connect":
                pair.connect()
        elif act == "alone":
            pair.mirror.work_alone()
        for _ in range(chosen.choice((0, 1, 20))):
            await asyncio.sleep(0)
    pair.link.cut()
    pair.connect()
    await asyncio.gather(*writes)
    await until(lambda: pair.mirror.is_whole, "a copy")
    assert pair.same()
    assert {row[0] for row in contents(pair.here)["dispatch_stops"]} == here


async def test_a_lost_link_holds_changes_until_it_works_alone_or_the_other_one_is_back(pair: Pair) -> None:
    await pair.copied()
    pair.link.is_held = True
    first = asyncio.create_task(pair.here.write([pause(1)]))
    await until(lambda: pair.link.held == 1, "the change is on its way")
    pair.link.cut()
    second = asyncio.create_task(pair.here.write([pause(2)]))
    await until(lambda: len(contents(pair.here)["dispatch_stops"]) == 2, "the second one is on disk here")
    assert not first.done()
    await pair.copied()
    await asyncio.gather(first, second)
    assert pair.same()
    pair.link.cut()
    third = asyncio.create_task(pair.here.write([pause(3)]))
    await until(lambda: len(contents(pair.here)["dispatch_stops"]) == 3, "the third one is on disk here")
    assert not third.done()
    pair.mirror.work_alone()
    await third
    await pair.copied()
    assert pair.same()


async def test_a_change_whose_caller_has_gone_is_told(pair: Pair) -> None:
    await pair.copied()
    write = asyncio.create_task(pair.here.write([pause(1)]))
    await asyncio.sleep(0)
    deadline_s = time.monotonic() + 30
    while not contents(pair.here)["dispatch_stops"] and time.monotonic() < deadline_s:
        time.sleep(POLL_S)  # the event loop has not heard of it yet
    write.cancel()
    await pair.here.write([pause(2)])
    assert pair.same()
    assert len(contents(pair.there)["dispatch_stops"]) == 2


async def test_a_standby_that_cannot_write_its_file_holds_nothing_up(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.there_path.mkdir()  # as good as a full disk
    pair.connect()
    await until(lambda: bool(pair.mirror.problem), "the other one says so")
    await pair.here.write([pause(1)])
    assert not pair.replica.is_whole
    assert pair.mirror.problem == pair.replica.problem == f"{pair.there_path}: expected a regular file"
    await pair.fail_again()
    told = [record.getMessage().split()[0] for record in caplog.records if record.name == "ustreamer.pair"]
    assert told == ["pair_state_not_copied"] * 2  # one for each
    pair.there_path.rmdir()
    own = pair.there.own
    await until(lambda: own is not None and own.state is JournalState.OK, "its journal is open")
    await pair.retried()
    assert pair.replica.is_whole
    assert (pair.mirror.problem, pair.replica.problem) == ("", "")
    await pair.here.write([pause(2)])
    assert pair.same()


async def test_a_standby_whose_disk_fills_up_later_answers_no_change_after_that(pair: Pair) -> None:
    """A change that it could not write, and later ones that it could, would be no copy of anything."""
    await pair.copied()
    await pair.here.write([pause(1)])
    assert pair.there.own is not None
    pair.there.own.submit(lambda connection: connection.execute("PRAGMA max_page_count = 1")).result()
    large = [value(f"//veh1/A/1/{number:X}", bytes(100_000)) for number in range(3)]
    await asyncio.gather(pair.here.write(large), pair.here.write([pause(2)]))
    assert not pair.replica.is_whole
    assert "full" in pair.mirror.problem
    await pair.here.write([pause(3)])
    pair.there.own.submit(lambda connection: connection.execute("PRAGMA max_page_count = 100000")).result()
    await pair.retried()
    assert pair.same()


async def test_a_table_of_another_version_is_refused_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(tmp_path, NEWER)
    await pair.copied()  # nothing is in it
    await pair.here.write([("INSERT INTO later VALUES (1)", ())])
    assert pair.mirror.problem == f"{pair.there_path}: no such table: later"
    assert "no such table: later" in caplog.text
    await pair.here.write([pause(1)])
    assert contents(pair.there)["dispatch_stops"] == []
    await pair.fail_again()  # everything has it, too
    assert contents(pair.there)["dispatch_stops"] == []
    await pair.here.write([("DELETE FROM later", ())])
    await pair.copied()
    assert pair.same()
    pair.close()


async def test_a_statement_of_another_kind_is_refused(pair: Pair) -> None:
    await pair.copied()
    await pair.here.write([("REPLACE INTO dispatch_stops VALUES (?, ?, ?)", (1, "", ""))])
    assert pair.mirror.problem == f"{pair.there_path}: not a statement of this version: REPLACE"
    assert contents(pair.there)["dispatch_stops"] == []


async def test_the_first_tick_on_a_machine_that_has_run_for_long_gives_the_standby_time_to_answer(pair: Pair) -> None:
    pair.link.is_held = True
    pair.connect()
    await until(lambda: pair.link.held > 0, "the beginning is on its way")
    pair.tick()
    assert pair.mirror.problem == ""
    pair.link.go_on()
    await until(lambda: pair.mirror.is_whole, "a copy of everything")


async def test_a_standby_that_does_not_answer_holds_changes_for_a_while(pair: Pair) -> None:
    await pair.copied()
    pair.link.is_held = True
    write = asyncio.create_task(pair.here.write([pause(1)]))
    await until(lambda: pair.link.held == 1, "the change is on its way")
    pair.tick(SILENT_S)
    assert not write.done()
    pair.tick(1.0)
    await write
    assert pair.mirror.problem == "no answer for 5 s"
    pair.link.go_on()  # the late answer is none, and the standby knows that it misses something from now on
    assert not pair.mirror.is_whole
    assert not pair.replica.is_whole
    await pair.here.write([pause(2)])
    await pair.retried()
    assert pair.same()


async def test_rows_that_cannot_be_read_here_are_told_later(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.here.write([pause(1)])

    def fail(*args: object) -> list[Statement]:
        raise StateError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr("streamer.features.host.state.Rows.take", fail)
        pair.connect()
        await until(lambda: bool(pair.mirror.problem), "it has failed")
    await pair.retried()
    assert pair.same()


async def test_one_that_steps_back_answers_no_change(pair: Pair) -> None:
    await pair.copied()
    pair.link.is_held = True
    write = asyncio.create_task(pair.here.write([pause(1)]))
    await until(lambda: pair.link.held == 1, "the change is on its way")
    pair.mirror.step_back()
    with pytest.raises(StateError, match="the other one of the pair works now"):
        await write
    with pytest.raises(StateError, match="the other one of the pair works now"):
        await pair.here.write([pause(2)])
    pair.mirror.other_came()
    assert not pair.mirror.is_mirrored


async def test_a_disk_that_is_faster_than_the_link_begins_again_and_loses_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.pair.state._PART_STATEMENTS", 10)
    monkeypatch.setattr("streamer.features.pair.state._MAX_LATER_BYTES", 1000)
    await pair.here.write([pause(number) for number in range(100)])
    pair.link.is_held = True
    pair.send_one_part_at_a_time()
    pair.connect()
    await until(lambda: pair.link.held == 2, "the first part is on its way")
    for number in range(5):
        await pair.here.write([value(f"//veh1/A/1/{number:X}", bytes(500))])
    pair.link.go_on()
    await until(lambda: pair.mirror.is_whole, "a copy")
    assert pair.same()
    assert len(contents(pair.there)["utwin_messages"]) == 5


def subscription(number: int, topic: str, via: str = "") -> Statement:
    insert = "INSERT INTO usubscription_subscriptions VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    return insert, (number, topic, "s", via, 1, None, None, b"")


def topics(file: StateFile) -> list[str]:
    return sorted(str(row[1]) for row in contents(file)["usubscription_subscriptions"])


class Again(Pair):
    """The active one, once it was killed and its disk has come back as it is, with a standby whose file is good."""

    def __init__(self, folder: Path, before: Pair) -> None:
        super().__init__(folder)
        self.there_path = before.there_path


async def killed(pair: Pair) -> None:
    """Both have a subscription and a pause rule."""
    await pair.copied()
    await pair.here.write([subscription(1, "old"), subscription(2, "both"), pause(1), value("//veh1/A/1/8000", b"old")])
    pair.link.cut()
    pair.close()


def _is_new(path: Path) -> None:
    for each in path.parent.glob("here.db*"):
        each.unlink()


def _is_salvaged(path: Path) -> None:
    """One row is left."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096 * 3)


@pytest.mark.parametrize("harm", [_is_new, _is_salvaged])
async def test_rows_that_a_new_or_salvaged_file_lacks_are_kept_on_standby(
    pair: Pair, tmp_path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    await killed(pair)
    assert pair.here.path is not None
    harm(pair.here.path)
    again = Again(tmp_path, pair)
    alone: list[Statement] = [("DELETE FROM usubscription_subscriptions", ()), ("DELETE FROM utwin_messages", ())]
    await again.here.write([*alone, subscription(1, "new"), subscription(2, "both", "x"), value("//veh1/A/1/8000", b"new")])
    await again.copied()
    assert again.replica.has_kept
    assert topics(again.there) == ["both", "new", "old"]
    assert [row[1] for row in contents(again.there)["utwin_messages"]] == [b"new"]  # what both have is the active one's
    assert len(contents(again.there)["dispatch_stops"]) == 1
    assert "pair_state_kept" in caplog.text
    await again.here.write([subscription(3, "later")])  # has the number of no row that was kept
    assert topics(again.there) == ["both", "later", "new", "old"]
    again.close()


async def test_after_the_handover_the_file_that_had_less_is_replaced_and_so_it_goes_on(pair: Pair, tmp_path: Path) -> None:
    await killed(pair)
    assert pair.here.path is not None
    _is_new(pair.here.path)
    again = Again(tmp_path, pair)
    await again.copied()
    assert again.replica.has_kept
    again.close()
    (tmp_path / "after").mkdir()
    (tmp_path / "there.db").rename(tmp_path / "after" / "here.db")
    (tmp_path / "here.db").rename(tmp_path / "after" / "there.db")
    for deletes in (False, True):
        after = Pair(tmp_path / "after")
        if deletes:
            await after.here.write([("DELETE FROM usubscription_subscriptions", ())])
        await after.copied()
        assert not after.replica.has_kept
        assert after.same()
        assert topics(after.there) == ([] if deletes else ["both", "old"])
        after.close()


async def test_rows_that_a_restored_file_lacks_are_kept_on_standby(pair: Pair) -> None:
    """Its name is known; its journal shows that it is older than what the standby has copied."""
    await pair.here.write([subscription(1, "old")])
    await pair.copied()
    await pair.here.write([("DELETE FROM usubscription_subscriptions", ()), subscription(2, "lost")])
    pair.link.cut()
    pair.mirror.work_alone()
    await pair.here.write([("DELETE FROM usubscription_subscriptions", ()), subscription(1, "old")])
    pair.link.is_up = True
    pair.mirror.other_came(is_behind=True)
    await until(lambda: pair.mirror.is_whole, "a copy of everything")
    assert pair.replica.has_kept
    assert topics(pair.there) == ["lost", "old"]
