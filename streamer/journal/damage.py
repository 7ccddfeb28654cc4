"""Replaces a damaged SQLite file by one with the rows that can still be read. For the journal and the services' state file.

The law of this file:

- A file is damaged if SQLite says so, if its owner finds content that was changed, if it is empty beside a log that is not,
  if it or its log was removed or replaced while in use, or if it was emptied then. A file of zero length without a log is a
  new file.
- It is set aside as ``NAME.corrupt-TIME``, with its log. The last three are kept.
- Every row that can still be read and was not changed is copied to a new file, which takes its place.
- That is safe against a crash at any point: the new file is complete as ``NAME.salvaged`` before the damaged one is moved
  away, and the next process that opens the file finishes the replacement (`put_in_place`).
- One log line reports it, ``file_set_aside``: how many rows were kept, and how many are known to be lost.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from streamer.journal.sqlite import CorruptFileError, FileForm, connect, create, transaction
from streamer.journal.versions import build

MAX_SET_ASIDE = 3
SIDES = ("-wal", "-shm", "")
"""What SQLite keeps beside a file, and the file. The log first: beside another file it would be taken for that file's."""
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter from the text of SQLite's error


class Salvaged(NamedTuple):
    """How many rows were saved, and how many are known to be lost. There may have been more."""

    kept: int
    lost: int


def is_emptied(path: Path) -> bool:
    """Whether the file is empty although its log is not."""
    try:
        return path.stat().st_size == 0 and Path(f"{path}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def text_of(path: Path, exc: CorruptFileError) -> str:
    """The error text for a program that only reads the file."""
    return f"{path}: damaged ({exc}); the daemon saves what it can when it opens the file"


def salvage(source: sqlite3.Connection | None, path: Path, form: FileForm) -> Salvaged:
    """Copy what can be read from ``source`` to a new file, ready for `put_in_place`. Raises sqlite3.Error and OSError."""
    fresh = path.with_name(path.name + ".salvage")
    for suffix in ("", "-journal"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    create(fresh)
    target = connect(fresh)
    try:
        build(target, form)
        with transaction(target):
            saved = Salvaged(0, 0) if source is None else _copy_all(source, target, form)
    finally:
        target.close()
    fresh.rename(_ready(path))
    _sync(path.parent)
    return saved


def is_ready(path: Path) -> bool:
    """Whether a salvaged file waits to be put in place."""
    return _ready(path).exists()


def put_in_place(path: Path) -> Path:
    """Move the damaged file away, and the salvaged one to its place. Returns the damaged file's new path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for side in SIDES:
        with suppress(FileNotFoundError):
            Path(f"{path}{side}").rename(f"{aside}{side}")
    _ready(path).rename(path)
    _sync(path.parent)
    for old in set_aside(path)[:-MAX_SET_ASIDE]:
        for side in SIDES:
            Path(f"{old}{side}").unlink(missing_ok=True)
    return aside


def set_aside(path: Path) -> list[Path]:
    """The damaged files that are still there, oldest first."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(SIDES[:2]) and file.is_file())


def _copy_all(source: sqlite3.Connection, target: sqlite3.Connection, form: FileForm) -> Salvaged:
    with suppress(*_UNREADABLE):  # else SQLite reads nothing of a file that was cut short
        source.execute("PRAGMA writable_schema = ON")
    kept, lost = zip(*(_copy(source, target, table, form.is_whole) for table in form.tables), strict=True)
    return Salvaged(sum(kept), sum(lost))


def _copy(
    source: sqlite3.Connection, target: sqlite3.Connection, table: str, is_whole: Callable[[Mapping[str, object]], bool]
) -> tuple[int, int]:
    names = [column[1] for column in target.execute(f"PRAGMA table_info({table})")]
    columns, marks = ", ".join(names), ", ".join("?" * len(names))
    kept = lost = 0
    query = f"SELECT {columns} FROM {table} NOT INDEXED"
    rows: Iterable[Sequence[object] | None]
    rows, is_complete = _rows_by_key(source, query) if _is_without_rowid(source, table) else _rows(source, table, query)
    for values in rows:
        if values is None or not is_whole(dict(zip(names, values, strict=True))):
            lost += 1
            continue
        try:
            target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
        except sqlite3.IntegrityError:  # a column of another type, a key twice
            lost += 1
        else:
            kept += 1
    hidden = kept + lost > 0 and not is_complete
    return kept, max(lost, hidden)


def _is_without_rowid(source: sqlite3.Connection, table: str) -> bool:
    """Whether rows have a key only, as in a table of 0.1."""
    with suppress(*_UNREADABLE):
        return source.execute("SELECT 1 FROM pragma_table_list WHERE name = ? AND wr", (table,)).fetchone() is not None
    return False


def _rows_by_key(source: sqlite3.Connection, query: str) -> tuple[list[Sequence[object]], bool]:
    """The rows up to the first that cannot be read, and whether that is all of them."""
    found: list[Sequence[object]] = []
    try:
        found.extend(source.execute(query))
    except _UNREADABLE:
        return found, False
    return found, True


def _rows(source: sqlite3.Connection, table: str, query: str) -> tuple[Iterator[Sequence[object] | None], bool]:
    """The rows that can be found, None for each that cannot be read, and whether that is all of them."""
    rowids, is_complete = _rowids(source, table)
    return (_values(source, f"{query} WHERE rowid = ?", rowid) for rowid in rowids), is_complete


def _rowids(source: sqlite3.Connection, table: str) -> tuple[list[int], bool]:
    """The row ids that can be read from either end, in order, and whether that is all of them."""
    found: list[int] = []
    try:
        found += (rowid for (rowid,) in source.execute(f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid"))
    except _UNREADABLE:
        behind: list[int] = []
        with suppress(*_UNREADABLE):
            for (rowid,) in source.execute(f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid DESC"):
                behind.append(rowid)
        return sorted({*found, *behind}), False
    return found, True


def _values(source: sqlite3.Connection, query: str, rowid: int) -> Sequence[object] | None:
    try:
        values: Sequence[object] | None = source.execute(query, (rowid,)).fetchone()
    except _UNREADABLE:
        return None
    return values


def _ready(path: Path) -> Path:
    return path.with_name(path.name + ".salvaged")


def _sync(directory: Path) -> None:
    """Make renames durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
