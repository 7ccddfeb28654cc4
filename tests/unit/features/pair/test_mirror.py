"""Two journals with a link between them: what one writes, the other has before anybody is told that it is safe."""

import random
import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.features.pair.disk import Disk
from streamer.features.pair.mirror import MirroredJournal, Replica, Told, disk_of_facts
from streamer.features.pair.sending import Window
from streamer.journal.entries import Batch
from streamer.journal.journal import Journal
from streamer.journal.letters import LetterChange
from tests.examples import examples
from tests.unit.journal.harness import BOUNDS, PROMPT_S, ManualLoop, letter, row, segment

Contents = dict[str, list[int]]


class Link:
    """Carries what one side says, when the test says so."""

    def __init__(self) -> None:
        self.is_up = False
        self.told: deque[Told] = deque()
        self.answers: deque[int] = deque()

    def tell(self, told: Told) -> bool:
        if self.is_up:
            self.told.append(told)
        return self.is_up

    def stored(self, told: Told) -> None:
        if self.is_up:
            self.answers.append(told.number)


class Pair:
    """A journal active, and a standby, both real files."""

    def __init__(self, folder: Path) -> None:
        self.loop = ManualLoop()
        self.link = Link()
        self.working = self._open(MirroredJournal, folder / "working.db")
        self.copy = self._open(Journal, folder / "copy.db", arranged=False)
        self.replica = self._replica()
        self.done: list[str] = []

    def _replica(self) -> Replica:
        return Replica(self.copy, disk_of_facts(self.copy.facts, self.copy.top, parity=1), self.link.stored)

    def _open(self, kind: type[Journal], path: Path, arranged: bool = True) -> Journal:
        journal = kind(path, 1 << 30, BOUNDS, self.loop.post, retry_s=PROMPT_S, idle_s=PROMPT_S)
        if isinstance(journal, MirroredJournal):
            journal.arrange(is_even=True, tell=self.link.tell)
        opened: list[str] = []
        assert journal.start(lambda: opened.append("opened")).wait(10)
        self.loop.run_until(lambda: bool(opened))
        return journal

    @property
    def mirrored(self) -> MirroredJournal:
        assert isinstance(self.working, MirroredJournal)
        return self.working

    def connect(self) -> None:
        self.link.is_up = True
        self.replica.other_came()
        self.mirrored.met(self.replica.disk.name, self.replica.disk.claim)
        self.mirrored.other_came()

    def cut(self) -> None:
        """What was on its way is lost."""
        self.link.is_up = False
        self.link.told.clear()
        self.link.answers.clear()

    def write(self, name: str, batch: Batch) -> None:
        """Hand over a batch, once the one before is done."""
        self.working.write(batch, lambda: self.done.append(name))

    def on_disk(self, batch_number: int) -> None:
        """Wait until that many batches are in the file active, and no more is posted for them."""
        self.loop.run_until(lambda: self.working.commits >= batch_number)

    def carry(self) -> None:
        """Carry everything, both ways, until nothing is on its way."""
        while self.link.told or self.link.answers:
            while self.link.told:
                told = self.link.told.popleft()
                before = len(self.link.answers)
                self.replica.take(told)
                self.loop.run_until(lambda before=before: len(self.link.answers) > before)  # type: ignore[misc]
            while self.link.answers:
                self.mirrored.other_stored(self.link.answers.popleft())

    def found(self) -> Disk:
        """What is found in the file of the active one after a kill."""
        with closing(sqlite3.connect(self.working.path)) as file:
            return disk_of_facts(dict(file.execute("SELECT name, value FROM facts")), 0, parity=0)

    def until_done(self, name: str) -> None:
        self.loop.run_until(lambda: name in self.done)

    @contextmanager
    def changing(self, change: LetterChange) -> Iterator["Future[int]"]:
        """Change letters in a thread, as those who do so have one: it waits for the disk, and for the other one."""
        with ThreadPoolExecutor(1) as threads:
            yield threads.submit(self.working.change_letters, change)

    def until_changed(self, changed: "Future[int]") -> None:
        changed.add_done_callback(lambda _: self.loop.post(int))
        self.loop.run_until(changed.done)

    def change(self, change: LetterChange) -> None:
        """Change letters of one that works alone."""
        with self.changing(change) as changed:
            self.until_changed(changed)

    def bound(self, most: int) -> None:
        """Allow so many letters, and so many of messages that were never accepted."""
        bounds = BOUNDS._replace(max_letters=most, max_rejected=most)
        for journal in (self.working, self.copy):
            journal.use(bounds)
        self.replica = self._replica()

    def same(self) -> bool:
        return contents(self.working) == contents(self.copy)

    def close(self) -> None:
        for journal in (self.working, self.copy):
            assert journal.stop(10)


def contents(journal: Journal) -> Contents:
    return {table: journal.numbers(table) for table in ("rows", "segments", "letters")}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path)
    yield found
    found.close()


def test_alone_a_batch_is_done_once_it_is_on_disk_here(pair: Pair) -> None:
    pair.write("one", Batch(rows=[row(2)]))
    pair.until_done("one")
    assert contents(pair.copy)["rows"] == []


def test_with_another_one_a_batch_is_done_once_it_is_on_both_disks(pair: Pair) -> None:
    pair.connect()
    pair.carry()
    pair.write("one", Batch(rows=[row(2)], segments=[segment(4)], letters=[letter(6)]))
    pair.on_disk(1)
    assert (pair.done, pair.working.is_busy) == ([], True)
    pair.carry()
    pair.until_done("one")
    assert contents(pair.copy) == {"rows": [2], "segments": [4], "letters": [6]}
    assert list(pair.copy.rows(everything=True)) == [row(2)]
    assert list(pair.copy.segments(everything=True)) == [segment(4)]
    assert list(pair.copy.all_letters()) == [letter(6)]


def test_what_waited_before_is_told_first_and_what_has_gone_since_is_deleted(pair: Pair) -> None:
    pair.write("one", Batch(rows=[row(number) for number in range(2, 1202, 2)]))
    pair.until_done("one")
    pair.connect()
    pair.carry()
    assert pair.same()
    pair.cut()
    pair.mirrored.work_alone()
    pair.write("two", Batch(rows=[row(2000)], rows_done=list(range(2, 602, 2))))
    pair.until_done("two")
    pair.connect()
    pair.carry()
    assert pair.same()
    assert pair.replica.is_whole


def test_what_is_written_while_everything_is_told_comes_after_it(pair: Pair) -> None:
    pair.write("one", Batch(rows=[row(number) for number in range(2, 6002, 2)]))
    pair.until_done("one")
    pair.connect()
    assert pair.link.told  # not all of it, only as much as may be on its way
    assert not pair.mirrored.is_mirrored
    pair.write("two", Batch(rows=[row(7000)], rows_done=[2, 5998]))
    pair.until_done("two")  # it has worked alone until now
    pair.carry()
    assert pair.same()
    assert contents(pair.copy)["rows"][-2:] == [6000, 7000]


def test_a_lost_link_holds_a_batch_until_it_works_alone_or_the_other_one_is_back(pair: Pair) -> None:
    pair.connect()
    pair.carry()
    pair.write("one", Batch(rows=[row(2)]))
    pair.cut()
    pair.loop.run_until(lambda: pair.mirrored._done_here is not None)
    assert pair.done == []
    pair.mirrored.work_alone()
    assert pair.done == ["one"]
    pair.connect()
    pair.carry()
    pair.write("two", Batch(rows=[row(4)]))
    pair.cut()
    pair.loop.run_until(lambda: pair.mirrored._done_here is not None)
    pair.connect()
    assert pair.done == ["one"]
    pair.carry()
    assert pair.done == ["one", "two"]
    assert pair.same()


def test_entries_of_the_standby_itself_are_not_deleted(pair: Pair) -> None:
    done: list[str] = []
    pair.copy.write(Batch(rows=[row(3), row(8)]), partial(done.append, "own"))
    pair.loop.run_until(lambda: bool(done))
    pair.connect()
    pair.carry()
    assert contents(pair.copy)["rows"] == [9, 11]  # the second one was not proved to have been there
    assert all(map(pair.replica.disk.is_own, (9, 11)))


def test_a_copy_that_takes_long_need_not_be_waited_for_and_has_what_is_written_meanwhile(pair: Pair) -> None:
    """A link that was reset and is back at once, in front of more than goes over it in a while."""
    pair.connect()
    pair.carry()
    pair.write("before", Batch(rows=[row(2 * number)._replace(body=bytes(20_000)) for number in range(1, 100)]))
    pair.on_disk(1)
    pair.carry()
    pair.until_done("before")
    pair.cut()
    pair.mirrored.link_lost()
    pair.connect()
    pair.write("meanwhile", Batch(rows=[row(1000)]))
    pair.on_disk(2)
    assert not pair.mirrored.is_mirrored
    assert "meanwhile" not in pair.done
    pair.mirrored.stop_waiting()
    pair.until_done("meanwhile")
    pair.carry()
    assert (pair.mirrored.is_whole, pair.mirrored.is_alone) == (True, False)
    assert pair.copy.numbers("rows") == pair.working.numbers("rows")
    pair.write("after", Batch(rows=[row(1002)]))
    pair.on_disk(3)
    assert "after" not in pair.done  # waits for the standby again
    pair.carry()
    pair.until_done("after")


def test_what_an_earlier_link_has_brought_is_no_answer_on_a_new_one(pair: Pair) -> None:
    pair.connect()
    pair.replica.take(pair.link.told.popleft())
    pair.cut()
    pair.connect()  # before that was on disk
    pair.loop.run_until(lambda: pair.copy.commits == 1 and not pair.copy.is_busy)
    assert list(pair.link.answers) == []
    pair.carry()
    assert pair.replica.is_whole
    pair.mirrored.other_stored(1000)  # more than was sent
    pair.write("one", Batch(rows=[row(2)]))
    pair.on_disk(pair.working.commits + 1)
    assert (pair.mirrored.is_stored, pair.done) == (False, [])


def test_it_knows_what_the_other_one_has_of_its_entries(pair: Pair) -> None:
    def is_given() -> tuple[int, bool]:
        given = pair.mirrored.disk.given
        return given.position, given.below > 1000

    pair.write("one", Batch(rows=[row(2), row(4)]))
    pair.until_done("one")
    pair.connect()
    assert pair.mirrored.disk.given.disk == ""
    pair.carry()
    assert is_given() == (1, True)
    pair.write("two", Batch(rows=[row(6)], letters=[letter(8)]))
    pair.on_disk(2)
    assert (pair.mirrored.disk.given.position, pair.mirrored.disk.given.below) == (1, 6)
    pair.carry()
    assert is_given() == (2, True)
    pair.cut()
    pair.mirrored.work_alone()
    pair.write("three", Batch(rows=[row(10)]))
    pair.until_done("three")
    assert (pair.mirrored.disk.given.position, pair.mirrored.disk.given.below) == (2, 10)
    assert pair.replica.disk.claim.has == 2


def test_an_answer_from_before_it_worked_alone_proves_nothing_afterwards(pair: Pair) -> None:
    pair.connect()
    pair.carry()
    for number, name in enumerate(("one", "two"), 1):
        pair.write(name, Batch(rows=[row(2 * number)]))
        pair.on_disk(number)
        late = pair.link.told[-1].number
        if name == "one":
            pair.carry()
            pair.until_done("one")
    pair.mirrored.work_alone()  # the answer to "two" is on its way for long
    pair.until_done("two")
    pair.mirrored.other_came()  # on the same link
    pair.carry()
    pair.write("three", Batch(rows=[row(6)]))
    pair.on_disk(3)
    pair.mirrored.other_stored(late)
    assert (pair.done, pair.working.is_busy) == (["one", "two"], True)
    pair.carry()
    pair.until_done("three")
    assert pair.same()


def test_numbers_are_of_one_kind(pair: Pair) -> None:
    numbers = [pair.working.number() for _ in range(10)]
    assert all(number % 2 == 0 for number in numbers)
    assert numbers == sorted(set(numbers))


def test_a_disk_that_is_faster_than_the_link_works_alone_says_why_and_loses_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.features.pair.mirror._MOST_UNSENT_BYTES", 1000)
    pair.write("one", Batch(rows=[row(number) for number in range(2, 6002, 2)]))
    pair.until_done("one")
    pair.connect()
    for name, number in (("two", 7000), ("three", 7002)):
        pair.write(name, Batch(rows=[row(number, bytes(900))]))
        pair.until_done(name)
    assert not pair.mirrored.is_copied
    assert "the link is slower than this one writes" in pair.mirrored.problem_of_copy
    pair.cut()
    pair.connect()
    pair.carry()
    assert pair.same()
    assert contents(pair.copy)["rows"][-2:] == [7000, 7002]


def test_the_tail_of_a_copy_ends_however_often_something_is_written_per_answer(pair: Pair) -> None:
    """Each answer takes a round trip, in which more is written than one part per batch could carry."""
    pair.write("before", Batch(rows=[row(number) for number in range(2, 6002, 2)]))
    pair.until_done("before")
    pair.connect()
    for round_trip in range(40):
        if pair.mirrored.is_whole:
            break
        for each in range(20):
            number = 10_000 + 2 * (20 * round_trip + each)
            pair.write(str(number), Batch(rows=[row(number)], rows_done=[number - 2]))
            pair.loop.run_until(lambda: not pair.working.is_busy or pair.mirrored._done_here is not None)
            if pair.working.is_busy:
                break
        told, pair.link.told = pair.link.told, deque()
        for each_told in told:  # what is sent from now on is answered in the next round trip
            answers = len(pair.link.answers)
            pair.replica.take(each_told)
            pair.loop.run_until(lambda answers=answers: len(pair.link.answers) > answers)  # type: ignore[misc]
        while pair.link.answers:
            pair.mirrored.other_stored(pair.link.answers.popleft())
    assert pair.mirrored.is_whole
    assert pair.replica.is_whole
    pair.carry()
    assert pair.same()


def test_the_standby_has_no_whole_copy_before_it_has_what_was_written_during_the_copy(pair: Pair) -> None:
    """That counts as written without the standby: it would be missing after a take-over."""
    pair.write("one", Batch(rows=[row(number) for number in range(2, 6002, 2)]))
    pair.until_done("one")
    pair.connect()
    pair.write("two", Batch(rows=[row(7000)]))
    pair.until_done("two")
    while not pair.replica.is_whole:
        assert pair.link.told
        told = pair.link.told.popleft()
        pair.replica.take(told)
        pair.loop.run_until(lambda: bool(pair.link.answers))
        pair.mirrored.other_stored(pair.link.answers.popleft())
    assert 7000 in contents(pair.copy)["rows"]


def test_a_letter_that_is_purged_is_gone_there_before_anybody_is_told(pair: Pair) -> None:
    pair.connect()
    pair.carry()
    pair.write("one", Batch(letters=[letter(2, uuid=2), letter(4, uuid=4)]))
    pair.on_disk(1)
    pair.carry()
    with pair.changing(LetterChange([2, 99])) as purged:
        pair.loop.run_until(lambda: bool(pair.link.told))
        assert contents(pair.working)["letters"] == [4]
        assert not purged.done()
        pair.carry()
        assert contents(pair.copy)["letters"] == [4]
        pair.until_changed(purged)
    assert purged.result() == 1


def test_a_letter_that_is_to_be_redriven_is_so_there(pair: Pair) -> None:
    pair.write("one", Batch(letters=[letter(number, uuid=number) for number in (2, 4, 6)]))
    pair.until_done("one")
    pair.change(LetterChange([2], 1, 50))
    pair.connect()
    pair.carry()
    assert pair.copy.letter_marks() == [(2, 1, 50)]  # it was told with everything that waited
    with pair.changing(LetterChange([4, 6], 7)) as marked:
        pair.loop.run_until(lambda: bool(pair.link.told))
        pair.carry()
        pair.until_changed(marked)
    assert pair.copy.letter_marks() == pair.working.letter_marks() == [(2, 1, 50), (4, 7, None), (6, 7, None)]
    pair.write("two", Batch(letters_done=[2], letters_unmarked=[4]))
    pair.on_disk(2)
    pair.carry()
    assert pair.copy.letter_marks() == pair.working.letter_marks() == [(6, 7, None)]
    assert pair.same()


def test_letters_that_are_changed_while_everything_is_told_are_so_afterwards(pair: Pair) -> None:
    pair.write("one", Batch(letters=[letter(number, uuid=number) for number in range(2, 1602, 2)]))
    pair.until_done("one")
    pair.connect()
    assert not pair.mirrored.is_mirrored
    pair.change(LetterChange([2, 1600]))
    pair.change(LetterChange([4, 1598], 5, 0))
    pair.carry()
    assert pair.same()
    assert contents(pair.copy)["letters"] == list(range(4, 1600, 2))
    assert pair.copy.letter_marks() == pair.working.letter_marks() == [(4, 5, 0), (1598, 5, 0)]


def test_a_lost_link_holds_a_change_of_letters_until_it_works_alone(pair: Pair) -> None:
    pair.write("one", Batch(letters=[letter(2)]))
    pair.until_done("one")
    pair.connect()
    pair.carry()
    pair.cut()
    with pair.changing(LetterChange([2])) as purged:
        pair.loop.run_until(lambda: bool(pair.mirrored._waiting))
        assert not purged.done()
        pair.mirrored.work_alone()
        assert purged.result(10) == 1
    pair.connect()
    pair.carry()
    assert contents(pair.copy)["letters"] == []


def test_another_one_that_does_not_answer_holds_a_change_of_letters_for_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.features.pair.mirror._SHARE_S", PROMPT_S)
    pair.write("one", Batch(letters=[letter(2)]))
    pair.until_done("one")
    pair.connect()
    pair.carry()
    with pair.changing(LetterChange([2])) as purged:
        assert purged.result(10) == 1
    assert "letters_not_shared letters=1" in caplog.text


def test_letters_beyond_the_bounds_are_evicted_on_both_sides_alike(pair: Pair) -> None:
    pair.bound(most=3)
    pair.connect()
    pair.carry()
    for number in range(2, 22, 2):
        outcome = "rejected" if number % 3 else "expired"
        pair.write(str(number), Batch(letters=[letter(number, uuid=number, outcome=outcome)]))
        pair.on_disk(number // 2)
        pair.carry()
        assert pair.same()
    assert pair.working.letters_evicted == pair.copy.letters_evicted == 10 - 3 - 3
    assert contents(pair.copy)["letters"] == [6, 12, 14, 16, 18, 20]


def test_letters_that_are_gone_there_evict_none_that_are_told(pair: Pair) -> None:
    """Bounds of the copy that are applied before what has gone is deleted would leave it without the oldest letters."""
    pair.bound(most=4)
    pair.connect()
    pair.carry()
    for number in (2, 4, 6, 8):
        pair.write(str(number), Batch(letters=[letter(number, uuid=number)]))
        pair.on_disk(number // 2)
        pair.carry()
    pair.cut()
    pair.mirrored.work_alone()
    pair.change(LetterChange([6, 8]))
    pair.write("later", Batch(letters=[letter(number, uuid=number) for number in (10, 12)]))
    pair.until_done("later")
    assert contents(pair.working)["letters"] == [2, 4, 10, 12]
    pair.connect()
    pair.carry()
    assert pair.same()
    pair.write("last", Batch(letters=[letter(14, uuid=14)]))
    pair.on_disk(6)
    pair.carry()
    assert contents(pair.working)["letters"] == contents(pair.copy)["letters"] == [4, 10, 12, 14]


ACTS = st.lists(st.sampled_from(["write", "write", "write", "carry", "cut", "connect", "alone"]), max_size=20)


@given(ACTS, st.integers(0, 1000))
@settings(max_examples=examples(60))
def test_whatever_becomes_of_the_link_what_is_done_is_on_both_disks_or_was_done_alone(acts: list[str], seed: int) -> None:
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(Path(folder))
        there: set[int] = set()
        for number, act in enumerate(acts, 1):
            if act == "connect":
                pair.cut()
                pair.connect()
            elif act in ("cut", "carry"):
                getattr(pair, act)()
            elif act == "alone":
                pair.cut()
                pair.mirrored.work_alone()
            elif not pair.working.is_busy:
                gone = chosen.sample(sorted(there), min(len(there), chosen.randrange(3)))
                there = (there - set(gone)) | {2 * number}
                pair.write(str(number), Batch(rows=[row(2 * number)], rows_done=gone))
                pair.loop.run_until(lambda: pair.mirrored._done_here is not None or not pair.working.is_busy)
                if not pair.working.is_busy and not pair.mirrored.is_alone:
                    assert 2 * number in contents(pair.copy)["rows"]
        pair.cut()
        pair.connect()
        pair.carry()
        assert not pair.working.is_busy
        assert contents(pair.working)["rows"] == contents(pair.copy)["rows"] == sorted(there)
        pair.close()


def test_a_copy_that_has_not_had_the_beginning_takes_and_confirms_nothing(pair: Pair) -> None:
    pair.link.is_up = True
    pair.replica.take(Told(7, Batch(rows=[row(2)])))
    pair.loop.run_until(lambda: not pair.copy.is_busy)
    assert contents(pair.copy)["rows"] == []
    assert pair.link.answers == type(pair.link.answers)()


@pytest.mark.parametrize("waits", [True, False], ids=["during a copy", "either"])
def test_what_counts_as_written_before_the_other_one_has_it_is_not_shared(
    pair: Pair, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower number than those that it has: after a kill, it would be taken for what it has."""
    monkeypatch.setattr("streamer.features.pair.sending._FIRST_BYTES", 1)
    monkeypatch.setattr("streamer.features.pair.sending._LEAST_BYTES", 1)
    pair.mirrored._waits = waits
    pair.mirrored._window = Window(time.monotonic)
    pair.connect()
    pair.carry()
    pair.write("eight", Batch(rows=[row(8)]))
    pair.on_disk(1)
    pair.carry()
    if waits:
        pair.mirrored.work_alone()
        pair.mirrored.other_came()  # and nothing of that was answered
        assert pair.mirrored.is_alone
    pair.write("two", Batch(rows=[row(2)]))
    pair.on_disk(2)
    assert pair.done == ["eight", "two"]
    found = pair.found()
    assert found.shared_below(pair.replica.disk.claim, pair.replica.disk.name) == 2
    pair.carry()
    assert contents(pair.copy)["rows"] == [2, 8]
    assert pair.found().shared_below(pair.replica.disk.claim, pair.replica.disk.name) > 8
