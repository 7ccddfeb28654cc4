"""The write-ahead log while another program reads the file: it is bounded. A backup need not be such a program."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streamer.journal import file
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, JournalError
from streamer.journal.journal import JournalState
from streamer.journal.sqlite import MAX_WAL_BYTES
from streamer.journal.store import Store
from tests.process import ROOT
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import row
from tests.waiting import until

MIB = 1 << 20
BOUNDS = LetterBounds(100, MIB, 100, MIB)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Another program in the middle of a SELECT, as of ``sqlite3 -readonly``."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        assert connection.execute("SELECT number FROM rows").fetchone() is not None
        yield


def size_of(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def write(store: Store, number: int) -> None:
    """A message of 100 kB comes and one goes, so that the file itself stays small."""
    store.apply(Batch(rows=[row(number, bytes(100_000))], rows_done=[number - 5]))


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    made = Store(path, BOUNDS, max_wal_bytes=2 * MIB)
    made.open()
    for number in range(1, 4):
        write(made, number)
    yield made
    made.close()


def test_the_log_is_bounded_while_somebody_reads_and_shrinks_afterwards(store: Store, path: Path) -> None:
    with reading(path):
        for number in range(10, 100):
            if store.wal_bytes > 2 * MIB:
                break
            write(store, number)
        for _ in range(3):
            with pytest.raises(JournalError, match=r"its log .* because another program reads the file") as caught:
                write(store, number)
            assert caught.value.is_link_good
        assert 2 * MIB < size_of(path) < 3 * MIB
    write(store, number)
    assert size_of(path) < MIB
    assert store.generation == 0


def test_a_log_that_grows_is_logged_once_and_that_it_shrank_too(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_LARGE_WAL_BYTES", MIB // 2)
    monkeypatch.setattr(file, "MAX_WAL_BYTES", MIB // 2)
    with reading(path):
        for number in range(10, 20):
            write(store, number)
        while store.tidy():
            pass
    said = [record.getMessage().split()[0] for record in caplog.records if record.name == "ustreamer.files"]
    assert said == ["wal_grows"]
    while store.tidy():
        pass
    write(store, 30)
    said = [record.getMessage().split()[0] for record in caplog.records if record.name == "ustreamer.files"]
    assert said == ["wal_grows", "wal_shrunk"]


def test_a_large_transaction_is_not_taken_for_a_reader(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_LARGE_WAL_BYTES", MIB)
    store = Store(path, BOUNDS, max_wal_bytes=MIB)
    store.open()
    for number in range(1, 4):
        store.apply(Batch(rows=[row(number, bytes(5 * MIB))]))
    store.close()
    assert "wal_grows" not in caplog.text


def test_a_log_that_a_reader_held_is_emptied_when_nothing_more_is_written(store: Store, path: Path) -> None:
    with reading(path):
        for number in range(10, 15):
            write(store, number)
        while store.tidy():
            pass
        assert size_of(path) > 0
    while store.tidy():
        pass
    assert size_of(path) == 0


async def test_a_journal_says_why_it_is_not_written_and_goes_on_when_the_reader_has_ended(
    harness: MakeHarness, path: Path
) -> None:
    at = harness(idle_s=100).open()  # or its log would be emptied when it is idle
    at.journal._store._max_wal_bytes = 1
    at.write(Batch(rows=[row(1)]))
    with reading(path):
        done = at.hand_over(Batch(rows=[row(2)]))
        await until(lambda: at.journal.state is JournalState.FAILING, "the refusal")
        assert "another program reads the file" in at.journal.problem
    at.loop.run_until(lambda: bool(done))
    assert (at.journal.state, at.journal.problem) == (JournalState.OK, "")
    assert at.journal.row_body(2) == b"body"


def test_the_bound_of_the_log_keeps_the_promise_about_the_disk(harness: MakeHarness) -> None:
    journal = harness().journal
    assert journal._store._max_wal_bytes == journal.max_bytes + MAX_WAL_BYTES


def test_the_backup_that_the_documents_name_is_a_whole_journal(store: Store, path: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "journal.md").read_text()
    (statement,) = re.findall(r"sqlite3 -readonly /var/lib/streamer/journal.db \"(VACUUM INTO '.*')\"", text)
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute(re.sub("'.*'", f"'{backup}'", statement))
        write(store, 10)
        while store.tidy():
            pass
        assert size_of(path) == 0  # it does not hold the log, also if the program goes on
    again = Store(backup, BOUNDS)
    again.open()
    assert (again.generation, again.entries) == (0, 3)
    write(again, 50)
    again.close()
