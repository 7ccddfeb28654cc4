"""Our SQLite files: what makes a file one of ours, how a connection to it is opened, and what an error of SQLite means.

They hold access tokens and addresses: only their owner may read them. Whatever goes wrong is raised as the `FileError` of
the file's form, or as `CorruptFileError` if the content is to blame.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BUSY_S = 5.0
MAX_WAL_BYTES = 16 << 20
_MIN_SQLITE = (3, 38, 0)  # ->> and STRICT

_SQLITES_OWN = {"sqlite_sequence"}

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TRANSIENT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class FileError(Exception):
    """The file cannot be used now; the text says why, for people.

    ``is_link_good`` tells whether the connection to the file can be used further, as it can be on a full disk.
    """

    def __init__(self, text: str, is_link_good: bool = False) -> None:
        super().__init__(text)
        self.is_link_good = is_link_good


class CorruptFileError(Exception):
    """The file is not a database, or what is in it is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """What makes a file one of a kind. All its tables have a rowid."""

    application_id: int
    """Told by file(1) and by ourselves."""
    version: int
    tables: Mapping[str, str]
    """The statement that creates it, by name. STRICT, so that a salvaged row has values of the right types."""
    indexes: tuple[str, ...] = ()
    error: type[FileError]
    is_whole: Callable[[Mapping[str, object]], bool]
    """Whether a row, by column, is what was written."""


@contextmanager
def faults_of(path: Path, error: type[FileError]) -> Iterator[None]:
    """Translate what SQLite and the operating system raise. Raises `CorruptFileError` and ``error``."""
    try:
        yield
    except sqlite3.Error as exc:
        if _primary_code(exc) in _DAMAGE:
            raise CorruptFileError(str(exc)) from exc
        raise error(f"{path}: {exc}", is_link_good=_primary_code(exc) in _TRANSIENT) from exc
    except UnicodeDecodeError as exc:  # from a damaged file, in the text of SQLite's error
        raise CorruptFileError(str(exc)) from exc
    except OSError as exc:
        raise error(f"{exc.filename or path}: {exc.strerror or exc}") from exc


def connect(path: Path, read_only: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """Open an existing file, for use by any thread. ``immutable``: nobody changes it meanwhile. Raises sqlite3.Error."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}{'&immutable=1' if immutable else ''}",
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

    An existing one is not touched: closing it would drop the locks that SQLite holds on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def is_new(connection: sqlite3.Connection, path: Path, form: FileForm) -> bool:
    """Whether the file is empty. Raises `FileError` and `CorruptFileError` if it does not have this form."""
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        expected = ".".join(map(str, _MIN_SQLITE))
        raise form.error(f"SQLite {sqlite3.sqlite_version} is too old; expected at least {expected}")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    application_id, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if not found and not application_id and not version:
        return True
    ours = found.intersection(form.tables)
    if application_id != form.application_id and (not ours or found - ours - _SQLITES_OWN):
        raise form.error(f"{path}: a database of another program; it is left alone, name another file")
    if version > form.version:
        text = f"written by a newer version (schema {version}, expected {form.version}); it is left alone"
        raise form.error(f"{path}: {text}")
    if version != form.version or application_id != form.application_id or not found.issuperset(form.tables):
        raise CorruptFileError(f"schema {version} of program {application_id:#x} with tables {', '.join(sorted(found))}")
    return False


def prepare(connection: sqlite3.Connection, path: Path, form: FileForm) -> None:
    """Make sure that the file has this form; an empty one gets it. Raises as `is_new`."""
    if is_new(connection, path, form):
        build(connection, form)


def build(connection: sqlite3.Connection, form: FileForm) -> None:
    """Create the tables in an empty file."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    with transaction(connection):
        for statement in (*form.tables.values(), *form.indexes):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {form.application_id}")
        connection.execute(f"PRAGMA user_version = {form.version}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def make_durable(connection: sqlite3.Connection, path: Path, form: FileForm) -> None:
    """A commit is on the disk when it returns, and the log does not grow without end. Raises `FileError`."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise form.error(f"{path}: its file system cannot hold a write-ahead log; name a file on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")


def check_structure(connection: sqlite3.Connection, *pragmas: str) -> None:
    """SQLite's own check. Raises `CorruptFileError` for the first thing that is wrong, and sqlite3.Error."""
    for pragma in ("quick_check(1)", *pragmas):
        for (finding,) in connection.execute(f"PRAGMA {pragma}"):
            if finding != "ok":
                raise CorruptFileError(finding)


def _primary_code(exc: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 if it was Python's module that complained."""
    code: int = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
