"""Replaces a damaged SQLite file by one with the rows that can still be read.

The law of this file:

- A file is damaged if SQLite says so, if its owner finds content that was changed, if its log is damaged or all that is left
  of it (`streamer.journal.wal`), if it or its log was removed or replaced while in use, or if it was emptied then. A file of
  zero length without a log is a new file.
- It is set aside as ``NAME.corrupt-TIME``, with its log. The last three are kept.
- Every row that can still be read and was not changed is copied to a new file, which takes its place. The rows in the log
  are read from a copy of it with corrected checksums: each row's own checksum shows whether it was changed. Rows of tables
  without checksums are read from a copy without the changed frames.
- The replacement survives a crash at any point: the new file is complete as ``NAME.salvaged`` before the damaged one is
  moved away, and the next process that opens the file finishes the replacement (`put_in_place`).
- One log line reports it, ``file_set_aside``: how many rows were kept, and how many are known to be lost.
"""

import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from streamer.journal import wal
from streamer.journal.sqlite import CorruptFileError, FileForm, connect, create, transaction
from streamer.journal.versions import build
from streamer.journal.wal import WriteAheadLog

MAX_SET_ASIDE = 3
SIDES = ("-wal", "-shm", "")
"""Suffixes of SQLite's side files and the file. The log is first: SQLite would apply it to another file beside it."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ATTEMPTS = 20_000
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter from the text of SQLite's error


class Salvaged(NamedTuple):
    """The numbers of rows that were saved, and that are known to be lost; more may be lost."""

    kept: int
    lost: int


@contextmanager
def all_that_is_left(path: Path, found: WriteAheadLog, with_changed: bool) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection to the rest of an unused file and of its log, which are not changed.

    ``with_changed``: also frames of the log that were changed. None if there is nothing. Raises sqlite3.Error and OSError.
    """
    seen = path.with_name(path.name + ".seen")
    _remove(seen)
    is_there = path.exists() and path.stat().st_size > 0
    if not is_there and not found.frames:
        yield None
        return
    try:
        if is_there:
            _link(path, seen)
        else:
            seen.write_bytes(bytes(found.page_bytes))  # its pages are in the log, the others are lost
        wal.copy(found, seen, with_changed=with_changed)
        with closing(connect(seen, read_only=True)) as connection:
            yield connection
    finally:
        _remove(seen)


def _link(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # the file system has no hard links
        shutil.copyfile(path, to)


def _remove(path: Path) -> None:
    for side in SIDES:
        Path(f"{path}{side}").unlink(missing_ok=True)


def text_of(path: Path, exc: CorruptFileError) -> str:
    """Return the error text for a program that only reads the file."""
    return f"{path}: damaged ({exc}); the daemon saves what it can when it opens the file"


def salvage(path: Path, form: FileForm, connection: sqlite3.Connection | None, log: WriteAheadLog) -> Salvaged:
    """Copy the readable rows to a new file, ready for `put_in_place`. Raises sqlite3.Error and OSError.

    ``connection``: to the file, if it is in use; ``log``: that of a file that is not.
    """
    fresh = path.with_name(path.name + ".salvage")
    for suffix in ("", "-journal"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    create(fresh)
    target = connect(fresh)
    kept = lost = 0
    try:
        build(target, form)
        with transaction(target):
            for is_checked in (True, False):
                with nullcontext(connection) if connection else all_that_is_left(path, log, is_checked) as source:
                    for table, statement in form.tables.items():
                        if source is not None and (" crc " in statement) is is_checked:
                            copied = _copy(source, target, table, form.is_whole if is_checked else None)
                            kept, lost = kept + copied.kept, lost + copied.lost
    finally:
        target.close()
    fresh.rename(_ready(path))
    sync(path.parent)
    return Salvaged(kept, lost)


def is_ready(path: Path) -> bool:
    """Whether a salvaged file waits to be put in place."""
    return _ready(path).exists()


def put_in_place(path: Path) -> Path:
    """Move the damaged file away, and the salvaged one to its place. Return the damaged file's new path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for side in SIDES:
        with suppress(FileNotFoundError):
            Path(f"{path}{side}").rename(f"{aside}{side}")
    _ready(path).rename(path)
    sync(path.parent)
    for old in set_aside(path)[:-MAX_SET_ASIDE]:
        _remove(old)
    return aside


def set_aside(path: Path) -> list[Path]:
    """Return the damaged files that were set aside and still exist, oldest first."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(SIDES[:2]) and file.is_file())


def _copy(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    table: str,
    is_whole: Callable[[Mapping[str, object]], bool] | None,
) -> Salvaged:
    with suppress(*_UNREADABLE):  # otherwise SQLite reads nothing from a truncated file
        source.execute("PRAGMA writable_schema = ON")
    names = [column[1] for column in target.execute(f"PRAGMA table_info({table})")]
    columns, marks = ", ".join(names), ", ".join("?" * len(names))
    kept = lost = 0
    query = f"SELECT {columns} FROM {table} NOT INDEXED"
    rows: Iterable[Sequence[object] | None]
    rows, is_complete = _rows_by_key(source, query) if _is_without_rowid(source, table) else _rows(source, table, query)
    for values in rows:
        if values is None or not (is_whole is None or is_whole(dict(zip(names, values, strict=True)))):
            lost += 1
            continue
        try:
            target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
        except sqlite3.IntegrityError:  # a column of another type, a key twice
            lost += 1
        else:
            kept += 1
    hidden = kept + lost > 0 and not is_complete
    return Salvaged(kept, max(lost, hidden))


def _is_without_rowid(source: sqlite3.Connection, table: str) -> bool:
    """Whether a table is WITHOUT ROWID, as one of 0.1."""
    with suppress(*_UNREADABLE):
        return source.execute("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)).fetchone() is not None
    return False


def _rows_by_key(source: sqlite3.Connection, query: str) -> tuple[list[Sequence[object]], bool]:
    """Return the rows before the first unreadable one, and whether these are all."""
    found: list[Sequence[object]] = []
    try:
        found.extend(source.execute(query))
    except _UNREADABLE:
        return found, False
    return found, True


def _rows(source: sqlite3.Connection, table: str, query: str) -> tuple[Iterator[Sequence[object] | None], bool]:
    """Return the rows that can be found, None for each unreadable one, and whether these are all."""
    rowids, is_complete = _rowids(source, table)
    return (_values(source, f"{query} WHERE rowid = ?", rowid) for rowid in rowids), is_complete


def _rowids(source: sqlite3.Connection, table: str) -> tuple[list[int], bool]:
    """Return the readable row ids in order, and whether these are all."""
    found: list[int] = []
    if _read_rowids(source, table, _LEAST, _MOST, found):
        return found, True
    behind: list[int] = []
    _read_rowids(source, table, _MOST, _LEAST, behind)
    if found and behind and found[-1] < behind[-1]:
        found += _rowids_between(source, table, found[-1], behind[-1])
    return sorted({*found, *behind}), False


def _rowids_between(source: sqlite3.Connection, table: str, low: int, high: int) -> list[int]:
    """Return readable row ids between two: searched from the middle of ever smaller gaps, with bounded attempts."""
    found: list[int] = []
    gaps = deque([(low, high)])
    for _ in range(_ATTEMPTS):
        if not gaps:
            break
        low, high = gaps.popleft()
        middle = (low + high) // 2
        above: list[int] = []
        below: list[int] = []
        if not _read_rowids(source, table, middle, high - 1, above):
            gaps.append((above[-1] if above else middle, high))
        if not _read_rowids(source, table, middle - 1, low + 1, below):
            gaps.append((low, below[-1] if below else middle))
        found += above + below
        while gaps and gaps[0][1] - gaps[0][0] < 2:
            gaps.popleft()
    return found


def _read_rowids(source: sqlite3.Connection, table: str, first: int, last: int, found: list[int]) -> bool:
    """Add the row ids from ``first`` to ``last``, upwards or downwards, to ``found``; False if damage ended that."""
    order = "ASC" if first <= last else "DESC"
    query = f"SELECT rowid FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ? ORDER BY rowid {order}"
    try:
        for (rowid,) in source.execute(query, (min(first, last), max(first, last))):
            found.append(rowid)
    except _UNREADABLE:
        return False
    return True


def _values(source: sqlite3.Connection, query: str, rowid: int) -> Sequence[object] | None:
    try:
        values: Sequence[object] | None = source.execute(query, (rowid,)).fetchone()
    except _UNREADABLE:
        return None
    return values


def _ready(path: Path) -> Path:
    return path.with_name(path.name + ".salvaged")


def sync(directory: Path) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
