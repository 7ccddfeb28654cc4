"""The journal file as its one writer sees it: batches, numbers, letters, unused space, and entries of other programs."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamer.journal import batches
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import ENTRY_BYTES, Batch, JournalError
from streamer.journal.journal import JournalState
from streamer.journal.letters import LetterChange
from streamer.journal.sqlite import connect
from streamer.journal.store import Store
from tests.unit.journal.harness import BOUNDS, JournalHarness, execute, letter, letters_in, row, segment, wait_until

BATCHES: dict[str, Callable[[int, bytes], Batch]] = {
    "rows": lambda number, body: Batch(rows=[row(number, body)]),
    "segments": lambda number, body: Batch(segments=[segment(number, body)]),
    "letters": lambda number, body: Batch(letters=[letter(number, body[0], body)]),
}


def opened(path: Path) -> Store:
    store = Store(path, LetterBounds(3, 10_000, 3, 10_000))
    store.open()
    return store


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = opened(path)
    yield store
    store.close()


def test_the_highest_number_and_the_bytes_are_known_while_it_is_open_and_when_it_is_opened(store: Store, path: Path) -> None:
    store.apply(Batch(rows=[row(5, b"12345")], segments=[segment(9, b"")], letters=[letter(7, 1, b"1")]))
    store.apply(Batch(rows=[row(2, b"")], segments_done=[9]))
    assert (store.top, store.totals.bytes) == (9, 3 * ENTRY_BYTES + 6)
    store.close()
    again = opened(path)
    assert (again.top, again.totals.bytes, again.generation) == (7, 3 * ENTRY_BYTES + 6, 0)
    again.close()


def test_letters_beyond_their_bound_are_counted(store: Store) -> None:
    store.apply(Batch(letters=[letter(number, number) for number in range(1, 6)]))
    store.apply(Batch(letters=[letter(6, 6)]))
    assert store.letters_evicted == 3


@pytest.mark.parametrize("below", [100, 7, 6, 5])
def test_everything_in_the_file_is_renumbered_below_a_number_in_its_order(store: Store, path: Path, below: int) -> None:
    store.apply(Batch(rows=[row(5), row(6)], letters=[letter(4, 4)]))
    store.shift_below(below)
    assert store.top == (6 if below > 6 else store.top) < below
    (number, _), *_ = letters_in(path)
    assert number == store.top - 2
    assert number % 2 == 0  # as before


def test_marks_that_a_command_is_writing_are_waited_for(store: Store, path: Path) -> None:
    store.apply(Batch(letters=[letter(1, 1), letter(2, 2)]))
    with closing(sqlite3.connect(path, isolation_level=None)) as command:
        command.execute("BEGIN IMMEDIATE")
        command.execute("UPDATE letters SET redrive = 7 WHERE number = 2")
        store._file.use(lambda connection: connection.execute("PRAGMA busy_timeout = 0"))
        with pytest.raises(JournalError, match="locked"):
            store.marked()
        command.execute("COMMIT")
    assert store.marked() == [2]


def test_deleted_letters_are_no_longer_counted_and_their_space_is_released(store: Store, path: Path) -> None:
    store.apply(Batch(letters=[letter(1, 1, b""), letter(2, 2, b"")]))
    assert not store.tidy()
    assert store.change_letters(LetterChange([1, 99])) == 1
    assert store.totals.bytes == ENTRY_BYTES
    assert os.stat(f"{path}-wal").st_size > 0
    assert not store.tidy()
    assert os.stat(f"{path}-wal").st_size == 0


def test_letters_are_read_with_the_time_to_live_that_was_asked_for(store: Store, path: Path) -> None:
    store.apply(Batch(letters=[letter(1, 1), letter(2, 2), letter(3, 3)]))
    execute(path, "UPDATE letters SET redrive = 7, redrive_ttl = 50 WHERE number = 2")
    assert store.letters([2, 1, 99]) == ([letter(1, 1), letter(2, 2)], [None, 50])


def test_unused_space_is_released_a_slice_at_a_time(store: Store, path: Path) -> None:
    store.apply(Batch(rows=[row(number, b"x" * 4000) for number in range(1, 500)]))
    while store.tidy():
        pass
    before = path.stat().st_size
    store.apply(Batch(rows_done=list(range(1, 500))))
    slices = 1
    while store.tidy():
        slices += 1
    assert slices > 5
    assert path.stat().st_size < before // 2
    assert not store.tidy()


class Stranger:
    """A second streamer on the file. The lock prevents it, so this one does not ask for the lock."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        batches.set_up(self._connection)

    def write(self, batch: Batch) -> None:
        batches.apply(self._connection, batch, 0, BOUNDS)

    def bodies(self, table: str) -> list[bytes]:
        return [body for (body,) in self._connection.execute(f"SELECT body FROM {table} ORDER BY number")]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def harness(tmp_path: Path) -> JournalHarness:
    return JournalHarness(tmp_path / "journal.db").open()


@pytest.mark.parametrize("table", BATCHES)
def test_an_entry_of_another_program_is_not_replaced_and_ours_is_not_reported_as_written(
    harness: JournalHarness, table: str
) -> None:
    number = harness.number()
    stranger = Stranger(harness.journal.path)
    stranger.write(BATCHES[table](number, b"theirs"))
    done = harness.hand_over(BATCHES[table](number, b"ours"))
    wait_until(lambda: harness.journal.failures >= 3)  # also not in the next attempts, with a new connection
    assert (harness.journal.state, done) == (JournalState.FAILING, [])
    assert f"another program has written {table} {number} " in harness.journal.problem
    assert stranger.bodies(table) == [b"theirs"]
    execute(harness.journal.path, f"DELETE FROM {table}")
    harness.loop.run_until(lambda: bool(done))
    assert stranger.bodies(table) == [b"ours"]
    stranger.close()
    harness.close()


def test_a_transaction_that_was_written_although_it_failed_is_written_again(
    harness: JournalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = harness.journal._store._file
    original = file.use

    def use(work: Callable[[sqlite3.Connection], object]) -> object:
        def fail_after_commit(connection: sqlite3.Connection) -> object:
            work(connection)
            raise sqlite3.OperationalError("disk I/O error")

        is_first = harness.journal.failures == 0 and harness.journal.is_busy
        return original(fail_after_commit if is_first else work)

    monkeypatch.setattr(file, "use", use)
    number = harness.number()
    harness.write(Batch(rows=[row(number)], segments=[segment(harness.number())], letters=[letter(harness.number())]))
    assert (harness.journal.failures, harness.journal.commits) == (1, 1)
    assert [each.number for each in harness.journal.rows(everything=True)] == [number]
    harness.close()
