"""Opens connections to our SQLite files, and translates SQLite's errors.

The files hold access tokens and addresses: only their owner may read them. Every error is raised as the `FileError` of the
file's form, or as `CorruptFileError` if the content is to blame.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

BUSY_S = 5.0
MAX_WAL_BYTES = 16 << 20

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_OF_THE_SYSTEM = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_ROOM_BYTES = 1 << 16  # the index has half of that at first
_TRANSIENT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class FileError(Exception):
    """The file cannot be used now; the text gives the reason.

    ``is_link_good`` tells whether the connection to the file can be used further, as it can be on a full disk;
    ``is_newer`` that waiting does not help, because a newer version of this program has written the file; ``is_in_use`` that
    another streamer has locked it.
    """

    def __init__(self, text: str, is_link_good: bool = False, *, is_newer: bool = False, is_in_use: bool = False) -> None:
        super().__init__(text)
        self.is_link_good = is_link_good
        self.is_newer = is_newer
        self.is_in_use = is_in_use


class CorruptFileError(Exception):
    """The file is not a database, or what is in it is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """The form of one kind of file: identification, tables, and migrations from earlier versions."""

    application_id: int
    """Identifies the kind of file, for this program and file(1)."""
    version: int
    """Increased if an earlier program would misread the file, not for additions that it ignores (`journal.versions`)."""
    tables: Mapping[str, str]
    """Name → the statement that creates the table. STRICT, so that a salvaged row has values of the right types."""
    added: frozenset[str] = frozenset()
    """Tables that earlier programs did not create in this version: a file without them is undamaged, and gets them."""
    indexes: tuple[str, ...] = ()
    error: type[FileError]
    is_whole: Callable[[Mapping[str, object]], bool] | None
    """Returns whether a row, by column, matches its checksum; None: rows have no checksum."""
    migrations: Mapping[int, Callable[[sqlite3.Connection], None]] = field(default_factory=dict)
    """Version → the function that converts a file to the next version, in the transaction of `versions.prepare`."""


@contextmanager
def faults_of(path: Path, error: type[FileError]) -> Iterator[None]:
    """Convert errors of SQLite and the operating system. Raises `CorruptFileError` and ``error``."""
    try:
        yield
    except sqlite3.Error as exc:
        if _primary_code(exc) in _DAMAGE:
            raise CorruptFileError(str(exc)) from exc
        raise error(f"{path}: {_reason(path, exc)}", is_link_good=_primary_code(exc) in _TRANSIENT) from exc
    except UnicodeDecodeError as exc:  # from a damaged file, in the text of SQLite's error
        raise CorruptFileError(str(exc)) from exc
    except OSError as exc:
        raise error(f"{exc.filename or path}: {exc.strerror or exc}") from exc


def connect(path: Path, read_only: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """Open an existing file, for use by any thread. ``immutable``: nobody changes it meanwhile.

    Raises sqlite3.Error, and OSError if the file or a side file is a pipe or a device, over which SQLite could wait.
    """
    for side in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm", "-journal"))):
        if side.exists() and not side.is_file():
            raise OSError(errno.EINVAL, "expected a regular file", str(side))
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


def connect_to_look(path: Path) -> sqlite3.Connection:
    """Open an existing file without changing it, also while a daemon uses it. Raises sqlite3.Error."""
    # Without a write-ahead log no program has the file open, and reading needs no lock.
    is_still = not path.with_name(f"{path.name}-wal").exists()
    return connect(path, read_only=True, immutable=is_still)


def create(path: Path) -> None:
    """Create an empty file that only its owner may read, unless it exists.

    An existing file is not opened: closing it would release the locks that SQLite holds on it in this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction: commit all of its changes, or none if it raises."""
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
    """Configure a connection so that a commit is on disk when it returns, and the log is bounded. Raises `FileError`."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise form.error(f"{path}: its file system cannot hold a write-ahead log; name a file on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")


def check_structure(connection: sqlite3.Connection, *pragmas: str) -> None:
    """Run SQLite's own check. Raises `CorruptFileError` for the first fault, and sqlite3.Error."""
    for pragma in ("quick_check(1)", *pragmas):
        for (finding,) in connection.execute(f"PRAGMA {pragma}"):
            if finding != "ok":
                raise CorruptFileError(finding)


def _reason(path: Path, exc: sqlite3.Error) -> str:
    """Return why SQLite could not use a file, with the operating system's error for its folder, which SQLite leaves out."""
    if _primary_code(exc) not in _OF_THE_SYSTEM:
        return str(exc)
    detail = f"{exc}, {getattr(exc, 'sqlite_errorname', 'no code')}"
    for side in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if side.exists() and not os.access(side, os.R_OK | os.W_OK):
            return f"{side.name}: permission denied; expected a file that this user may read and write ({detail})"
    try:
        with TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(_ROOM_BYTES))
            probe.flush()
    except OSError as failure:
        expected = "a folder that can be written, with room for the file, its log (-wal) and its index (-shm)"
        return f"{failure.strerror or failure}; expected {expected} ({detail})"
    return detail


def _primary_code(exc: sqlite3.Error) -> int:
    """Return SQLite's result code without its extension; 0: the error is of Python's module."""
    code: int = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
