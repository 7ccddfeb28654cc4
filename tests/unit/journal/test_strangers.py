"""Another program writes entries into the file, with the numbers that the journal would use next: none is replaced."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.journal import batches
from streamer.journal.entries import Batch
from streamer.journal.journal import JournalState
from streamer.journal.sqlite import connect
from tests.unit.journal.harness import BOUNDS, JournalHarness, execute, letter, row, segment, wait_until

BATCHES: dict[str, Callable[[int, bytes], Batch]] = {
    "rows": lambda number, body: Batch(rows=[row(number, body)]),
    "segments": lambda number, body: Batch(segments=[segment(number, body)]),
    "letters": lambda number, body: Batch(letters=[letter(number, body[0], body)]),
}


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
