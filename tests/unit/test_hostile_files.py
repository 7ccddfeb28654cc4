"""What is opened by name may be a pipe, endless, or of another program: it is refused with its name, at once."""

import os
import sqlite3
from pathlib import Path

import pytest

from streamer.config.load import ConfigError, load
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import JournalError
from streamer.journal.file import problem_of
from streamer.journal.schema import JOURNAL
from streamer.journal.store import Store

BOUNDS = LetterBounds(10, 1 << 20, 10, 1 << 20)


def journal(path: Path) -> Path:
    store = Store(path, BOUNDS)
    store.open()
    store.close()
    return path


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_pipe_in_the_place_of_a_journal_or_its_side_files_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "journal.db" if not suffix else journal(tmp_path / "journal.db")
    os.mkfifo(f"{path}{suffix}")
    store = Store(path, BOUNDS)
    with pytest.raises(JournalError, match="regular file"):
        store.open()
    store.close()
    assert "regular file" in problem_of(path, JOURNAL)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (
            "CREATE VIEW own AS WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
            "view 'own'",
        ),
        ("CREATE TRIGGER own AFTER INSERT ON rows BEGIN DELETE FROM rows; END", "trigger 'own'"),
        ("CREATE UNIQUE INDEX own ON rows (route)", "unique index 'own'"),
    ],
    ids=["view", "trigger", "unique index"],
)
def test_what_is_not_ours_in_a_journal_is_refused(tmp_path: Path, statement: str, named: str) -> None:
    path = journal(tmp_path / "journal.db")
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    store = Store(path, BOUNDS)
    with pytest.raises(JournalError, match=f"it has the {named}"):
        store.open()
    store.close()
    assert named in problem_of(path, JOURNAL)


def test_a_further_table_of_a_later_version_is_no_stranger(tmp_path: Path) -> None:
    path = journal(tmp_path / "journal.db")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE later (number INTEGER)")
    connection.close()
    journal(path)
    assert problem_of(path, JOURNAL) == ""


def test_of_an_endless_configuration_the_beginning_is_read() -> None:
    with pytest.raises(ConfigError, match="expected at most 1048576"):
        load(Path("/dev/zero"))
