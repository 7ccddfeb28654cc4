"""The journal file: its tables, and how a connection to it is opened.

The file holds access tokens: nobody but its owner may read it. Everything that can go wrong is told as `JournalError`,
or as `CorruptFileError` if the content is to blame.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamer.journal.entries import CorruptFileError, JournalError

VERSION = 1
APPLICATION_ID = 0x75537472  # "uStr", told by file(1) and by ourselves
TABLES = ("rows", "segments", "letters")
MAX_WAL_BYTES = 16 << 20
BUSY_S = 5.0
_MIN_SQLITE = (3, 38, 0)  # ->> and STRICT

_DDL = (
    """CREATE TABLE rows (
        number INTEGER PRIMARY KEY, route TEXT, source TEXT, target TEXT, entered_ms INTEGER, attempts INTEGER,
        outgoing TEXT, crc INTEGER, body BLOB
    ) STRICT""",
    "CREATE TABLE segments (number INTEGER PRIMARY KEY, target TEXT, crc INTEGER, body BLOB) STRICT",
    """CREATE TABLE letters (
        number INTEGER PRIMARY KEY, id BLOB, route TEXT, ingress TEXT, target TEXT, outcome TEXT, code INTEGER,
        text TEXT, attempts INTEGER, first_ms INTEGER, last_ms INTEGER, type INTEGER, source TEXT, sink TEXT,
        crc INTEGER, size INTEGER, body BLOB, redrive INTEGER, redrive_ttl INTEGER, UNIQUE (id, route)
    ) STRICT""",
    "CREATE INDEX letters_by_size ON letters (number, size)",
    "CREATE INDEX letters_to_redrive ON letters (number) WHERE redrive IS NOT NULL",
)

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(exc: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 if it was Python's module that complained."""
    code: int = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF


@contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Translate what SQLite and the operating system raise. Raises `CorruptFileError` and `JournalError`."""
    try:
        yield
    except sqlite3.Error as exc:
        if _primary_code(exc) in _DAMAGE:
            raise CorruptFileError(str(exc)) from exc
        raise JournalError(f"{path}: {exc}", is_link_good=_primary_code(exc) in _PASSING) from exc
    except UnicodeDecodeError as exc:  # from a damaged file, in the text of SQLite's error
        raise CorruptFileError(str(exc)) from exc
    except OSError as exc:
        raise JournalError(f"{exc.filename or path}: {exc.strerror or exc}") from exc


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Open an existing file, for whichever thread uses it. Raises sqlite3.Error."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
    )
    connection.text_factory = _text
    return connection


def create(path: Path) -> None:
    """Make an empty file that only its owner may read, if there is none.

    One that is there is not touched: closing it would drop the locks that SQLite holds on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make sure that the file is a journal of our version; an empty one becomes it. Raises as `is_new`."""
    if is_new(connection, path):
        build(connection)


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty. Raises `JournalError` and `CorruptFileError` if it is no journal of our version."""
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        wanted = ".".join(map(str, _MIN_SQLITE))
        raise JournalError(f"SQLite {sqlite3.sqlite_version} is too old; expected at least {wanted}")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    application_id, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if not found and not application_id and not version:
        return True
    if application_id != APPLICATION_ID and not found.issuperset(TABLES):
        raise JournalError(f"{path}: a database of another program; it is left alone, name another file")
    if version > VERSION:
        raise JournalError(f"{path}: written by a newer version (schema {version}, expected {VERSION}); it is left alone")
    if version != VERSION or application_id != APPLICATION_ID or not found.issuperset(TABLES):
        raise CorruptFileError(f"schema {version} of program {application_id:#x} with tables {', '.join(sorted(found))}")
    return False


def build(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _DDL:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def make_durable(connection: sqlite3.Connection, path: Path) -> None:
    """A commit is on the disk when it returns, and the log does not grow without end. Raises `JournalError`."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise JournalError(f"{path}: its file system cannot hold a write-ahead log; name a file on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
