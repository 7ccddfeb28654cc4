"""Our SQLite files: which file is one of ours, what an error means, and that only the owner may read it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamer.journal import sqlite, versions
from streamer.journal.sqlite import CorruptFileError, FileError, FileForm


class FormError(FileError):
    """The error of the form below."""


FORM = FileForm(
    application_id=0x1234,
    version=2,
    tables={"things": "CREATE TABLE things (number INTEGER PRIMARY KEY, name TEXT) STRICT"},
    indexes=("CREATE INDEX things_by_name ON things (name)",),
    error=FormError,
    is_whole=lambda row: True,
)


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """To an empty file."""
    sqlite.create(path)
    with closing(sqlite.connect(path)) as connection:
        yield connection


def test_a_file_is_created_for_its_owner_alone_and_an_existing_one_is_left_as_it_is(path: Path) -> None:
    sqlite.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"content")
    sqlite.create(path)
    assert path.read_bytes() == b"content"


def test_a_transaction_is_all_or_nothing(connection: sqlite3.Connection, path: Path) -> None:
    versions.prepare(connection, path, FORM)

    def half() -> None:
        with sqlite.transaction(connection):
            connection.execute("INSERT INTO things VALUES (1, 'one')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    with sqlite.transaction(connection):
        connection.execute("INSERT INTO things VALUES (2, 'two')")
    assert connection.execute("SELECT number FROM things").fetchall() == [(2,)]


def test_a_durable_file_has_a_bounded_log_and_waits_for_the_disk(connection: sqlite3.Connection, path: Path) -> None:
    sqlite.make_durable(connection, path, FORM)
    asked = ("journal_mode", "synchronous", "journal_size_limit")
    assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked] == ["wal", 2, sqlite.MAX_WAL_BYTES]


def test_a_file_that_cannot_have_a_log_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(FormError, match="local disk"):
        sqlite.make_durable(connection, path, FORM)


def test_a_file_is_not_created_by_opening_it(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        sqlite.connect(path)
    assert not path.exists()


def test_a_file_that_was_opened_to_read_cannot_be_changed(connection: sqlite3.Connection, path: Path) -> None:
    versions.prepare(connection, path, FORM)
    with closing(sqlite.connect(path, read_only=True)) as reader, pytest.raises(sqlite3.OperationalError):
        reader.execute("DELETE FROM things")


def test_text_that_is_not_utf_8_is_read_with_replacements(connection: sqlite3.Connection) -> None:
    assert connection.execute("SELECT CAST(x'41FF' AS TEXT)").fetchone() == ("A\N{REPLACEMENT CHARACTER}",)


# what errors mean


def raised(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT_INDEX])
def test_damage_is_told_from_other_errors(path: Path, code: int) -> None:
    with pytest.raises(CorruptFileError), sqlite.faults_of(path, FormError):
        raise raised(code)


@pytest.mark.parametrize(
    ("code", "is_link_good"),
    [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_BUSY_SNAPSHOT, True), (sqlite3.SQLITE_IOERR, False), (0, False)],
)
def test_an_error_says_whether_the_connection_can_be_used_further(path: Path, code: int, is_link_good: bool) -> None:
    with pytest.raises(FormError, match="it failed") as caught, sqlite.faults_of(path, FormError):
        raise raised(code)
    assert caught.value.is_link_good is is_link_good


def test_errors_of_the_operating_system_name_their_file(path: Path) -> None:
    with pytest.raises(FormError, match="missing: No such file"), sqlite.faults_of(path, FormError):
        (path.parent / "missing").read_bytes()


def test_other_errors_pass(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), sqlite.faults_of(path, FormError):
        raise ZeroDivisionError


def test_the_structure_of_a_whole_file_is_sound_and_of_a_damaged_one_is_not(path: Path) -> None:
    sqlite.create(path)
    with closing(sqlite.connect(path)) as connection:
        versions.prepare(connection, path, FORM)
        connection.executemany("INSERT INTO things VALUES (?, ?)", [(number, "x" * 300) for number in range(100)])
        sqlite.check_structure(connection)
    content = bytearray(path.read_bytes())
    content[8192:8292] = bytes(100)
    path.write_bytes(content)
    with closing(sqlite.connect(path)) as connection, pytest.raises((CorruptFileError, sqlite3.DatabaseError)):
        sqlite.check_structure(connection)
