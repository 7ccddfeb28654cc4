"""Versions of our files: which one a file has, and how it gets to today's or is refused."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from streamer import __version__
from streamer.journal import versions
from streamer.journal.sqlite import CorruptFileError, FileError, FileForm, connect, create
from streamer.journal.versions import Age, age_of, prepare

THINGS = "CREATE TABLE things (number INTEGER PRIMARY KEY, name TEXT) STRICT"
STEPS: list[int] = []


class FormError(FileError):
    """The error of the forms below."""


FIRST = FileForm(application_id=0x1234, version=1, tables={"things": THINGS}, error=FormError, is_whole=lambda row: True)


def to_second(connection: sqlite3.Connection) -> None:
    STEPS.append(1)
    connection.execute("ALTER TABLE things ADD COLUMN colour TEXT")
    connection.execute("UPDATE things SET colour = 'grey'")


def to_third(connection: sqlite3.Connection) -> None:
    STEPS.append(2)
    connection.execute("UPDATE things SET name = upper(name)")
    if os.environ.get("KILLED"):
        os._exit(9)


THIRD = replace(
    FIRST,
    version=3,
    tables={"things": THINGS.replace("name TEXT", "name TEXT, colour TEXT")},
    migrations={1: to_second, 2: to_third},
)


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """To an empty file."""
    STEPS.clear()
    create(path)
    with closing(connect(path)) as connection:
        yield connection


def things(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM things ORDER BY number").fetchall()


def with_things(connection: sqlite3.Connection, path: Path) -> None:
    prepare(connection, path, FIRST)
    connection.execute("INSERT INTO things VALUES (1, 'one'), (2, 'two')")


def test_an_empty_file_gets_the_form_once(connection: sqlite3.Connection, path: Path) -> None:
    assert age_of(connection, path, FIRST) is Age.EMPTY
    with_things(connection, path)
    assert age_of(connection, path, FIRST) is Age.CURRENT
    prepare(connection, path, FIRST)
    assert things(connection) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    ("statements", "error", "text"),
    [
        (["CREATE TABLE songs (name TEXT)"], FormError, "another program"),
        (["PRAGMA application_id = 7"], FormError, "another program"),
        (["CREATE TABLE things (n)", "CREATE TABLE songs (n)"], FormError, "another program"),
        (["PRAGMA application_id = 4660", "PRAGMA user_version = 0"], CorruptFileError, "schema 0"),
        (["PRAGMA application_id = 4660", "PRAGMA user_version = 1"], CorruptFileError, "with tables"),
        (["CREATE TABLE things (n)"], CorruptFileError, "schema 0"),
        (["CREATE TABLE things (n)", "PRAGMA application_id = 7"], CorruptFileError, "of program 0x7"),
    ],
)
def test_a_file_of_another_form_is_refused_or_damaged(
    connection: sqlite3.Connection, path: Path, statements: list[str], error: type[Exception], text: str
) -> None:
    for statement in statements:
        connection.execute(statement)
    with pytest.raises(error, match=text):
        age_of(connection, path, FIRST)


def test_a_newer_file_is_refused_with_both_versions_and_what_to_do(connection: sqlite3.Connection, path: Path) -> None:
    prepare(connection, path, THIRD)
    connection.execute("UPDATE ustreamer_format SET written_by = '7.1.0'")
    for attempt in (age_of, prepare):
        with pytest.raises(FormError) as caught:
            attempt(connection, path, FIRST)
        assert caught.value.is_newer
        assert str(caught.value) == (
            f"{path}: format 3 was written by ustreamer 7.1.0; this is ustreamer {__version__}, which knows formats "
            "up to 1: install 7.1.0 or newer, or move the file away"
        )


def test_a_newer_file_that_does_not_tell_its_writer_is_refused_as_well(connection: sqlite3.Connection, path: Path) -> None:
    prepare(connection, path, THIRD)
    connection.execute("DROP TABLE ustreamer_format")
    connection.execute("DROP TABLE things")  # it may have other tables
    with pytest.raises(FormError, match=r"format 3 was written by a newer ustreamer; .* install that version or newer"):
        age_of(connection, path, FIRST)


def test_an_earlier_file_gets_there_step_by_step_and_only_once(
    connection: sqlite3.Connection, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_things(connection, path)
    assert age_of(connection, path, THIRD) is Age.EARLIER
    prepare(connection, path, THIRD)
    prepare(connection, path, THIRD)
    assert STEPS == [1, 2]
    assert things(connection) == [(1, "ONE", "grey"), (2, "TWO", "grey")]
    assert [record.getMessage() for record in caplog.records] == [f"file_migrated file={path} from_format=1 to_format=3"]


def failing(error: Exception) -> Callable[[sqlite3.Connection], None]:
    def step(connection: sqlite3.Connection) -> None:
        to_third(connection)
        raise error

    return step


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (sqlite3.OperationalError("disk full"), sqlite3.OperationalError),
        (sqlite3.IntegrityError("cannot store TEXT value"), CorruptFileError),
    ],
)
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    connection: sqlite3.Connection, path: Path, raised: Exception, error: type[Exception]
) -> None:
    with_things(connection, path)
    before = path.read_bytes()
    with pytest.raises(error):
        prepare(connection, path, replace(THIRD, migrations={1: to_second, 2: failing(raised)}))
    assert path.read_bytes() == before
    assert things(connection) == [(1, "one"), (2, "two")]
    prepare(connection, path, THIRD)
    assert things(connection) == [(1, "ONE", "grey"), (2, "TWO", "grey")]


_MIGRATES = """
import sys
from pathlib import Path
from streamer.journal import versions
from streamer.journal.sqlite import connect, create
from tests.unit.journal.test_versions import THIRD
path = Path(sys.argv[1])
versions.prepare(connect(path), path, THIRD)
"""


def test_a_kill_in_the_middle_leaves_a_file_that_either_version_can_use(connection: sqlite3.Connection, path: Path) -> None:
    with_things(connection, path)
    connection.close()
    killed = subprocess.run([sys.executable, "-c", _MIGRATES, str(path)], env=os.environ | {"KILLED": "1"}, check=False)
    assert killed.returncode == 9
    with closing(connect(path)) as connection:
        assert age_of(connection, path, FIRST) is Age.CURRENT
        assert things(connection) == [(1, "one"), (2, "two")]
        prepare(connection, path, THIRD)
        assert things(connection) == [(1, "ONE", "grey"), (2, "TWO", "grey")]


def test_a_damaged_earlier_file_is_not_migrated(connection: sqlite3.Connection, path: Path) -> None:
    with_things(connection, path)
    connection.executemany("INSERT INTO things VALUES (?, ?)", [(number, "x" * 300) for number in range(10, 100)])
    connection.close()
    content = bytearray(path.read_bytes())
    content[8192:8292] = bytes(100)
    path.write_bytes(content)
    with closing(connect(path)) as again, pytest.raises((CorruptFileError, sqlite3.DatabaseError)):
        versions.prepare(again, path, THIRD)
    assert STEPS == []


def test_a_file_without_a_table_that_came_later_gets_it_and_keeps_its_version(
    connection: sqlite3.Connection, path: Path
) -> None:
    with_things(connection, path)
    notes = "CREATE TABLE notes (text TEXT) STRICT"
    later = replace(FIRST, tables={**FIRST.tables, "notes": notes}, added=frozenset({"notes"}))
    assert age_of(connection, path, later) is Age.EARLIER
    prepare(connection, path, later)
    assert age_of(connection, path, later) is Age.CURRENT
    assert things(connection) == [(1, "one"), (2, "two")]
    assert connection.execute("SELECT * FROM notes").fetchall() == []
    assert age_of(connection, path, FIRST) is Age.CURRENT
    connection.execute("DROP TABLE things")
    with pytest.raises(CorruptFileError):
        age_of(connection, path, later)
