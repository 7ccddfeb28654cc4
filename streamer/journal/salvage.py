"""What can still be read of a damaged journal, and the steps by which a good file takes its place.

Safe against a crash at any point: what was salvaged is complete in ``<name>.salvaged`` before the damaged file is moved
away, and whoever opens the journal next finishes what was begun (`put_in_place`).
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from streamer.journal.schema import TABLES, build, connect, create

MAX_SET_ASIDE = 3
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)  # the latter from the text of SQLite's error
_SIDES = ("-wal", "-shm", "")  # the log first: beside another file it would be taken for that file's
_COLUMNS = {
    "rows": "number, route, source, target, entered_ms, attempts, outgoing, crc, body",
    "segments": "number, target, crc, body",
    "letters": "number, id, route, ingress, target, outcome, code, text, attempts, first_ms, last_ms, type, source, sink,"
    " size, redrive, redrive_ttl, crc, body",
}


class Salvaged(NamedTuple):
    """How many entries were saved, and how many are known to be lost; there may have been more."""

    kept: int
    lost: int


def salvage(source: sqlite3.Connection | None, path: Path) -> Salvaged:
    """Write what ``source`` still gives to a new file, ready for `put_in_place`. Raises sqlite3.Error and OSError."""
    fresh = path.with_name(path.name + ".salvage")
    for suffix in ("", "-journal"):
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    create(fresh)
    target = connect(fresh)
    try:
        build(target)
        target.execute("BEGIN IMMEDIATE")
        saved = Salvaged(0, 0) if source is None else _copy_all(source, target)
        target.execute("COMMIT")
    finally:
        target.close()
    fresh.rename(_ready(path))
    _sync(path.parent)
    return saved


def is_ready(path: Path) -> bool:
    """Whether a salvaged file waits to be put in place."""
    return _ready(path).exists()


def put_in_place(path: Path) -> Path:
    """Move the damaged file away, and what was salvaged to its place; where the former went is returned."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for side in _SIDES:
        with suppress(FileNotFoundError):
            Path(f"{path}{side}").rename(f"{aside}{side}")
    _ready(path).rename(path)
    _sync(path.parent)
    for old in set_aside(path)[:-MAX_SET_ASIDE]:
        for side in _SIDES:
            Path(f"{old}{side}").unlink(missing_ok=True)
    return aside


def set_aside(path: Path) -> list[Path]:
    """The damaged files that are still there, oldest first."""
    found = path.parent.glob(f"{path.name}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(_SIDES[:2]))


def _copy_all(source: sqlite3.Connection, target: sqlite3.Connection) -> Salvaged:
    with suppress(*_UNREADABLE):  # else SQLite reads nothing of a file that was cut short
        source.execute("PRAGMA writable_schema = ON")
    kept, lost = zip(*(_copy(source, target, table) for table in TABLES), strict=True)
    return Salvaged(sum(kept), sum(lost))


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> tuple[int, int]:
    columns = _COLUMNS[table]
    marks = ", ".join("?" * (columns.count(",") + 1))
    kept = lost = 0
    numbers, is_complete = _numbers(source, table)
    for number in numbers:
        values = _values(source, f"SELECT {columns} FROM {table} NOT INDEXED WHERE number = ?", number)
        if values is None:
            lost += 1
            continue
        try:
            target.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
        except sqlite3.IntegrityError:  # a column of another type, an id twice
            lost += 1
        else:
            kept += 1
    hidden = bool(numbers) and not is_complete
    return kept, max(lost, hidden)


def _numbers(source: sqlite3.Connection, table: str) -> tuple[list[int], bool]:
    """The numbers that can be found from either end, in order, and whether these are all."""
    found: list[int] = []
    try:
        found += (number for (number,) in source.execute(f"SELECT number FROM {table} NOT INDEXED ORDER BY number"))
    except _UNREADABLE:
        behind: list[int] = []
        with suppress(*_UNREADABLE):
            for (number,) in source.execute(f"SELECT number FROM {table} NOT INDEXED ORDER BY number DESC"):
                behind.append(number)
        return sorted({*found, *behind}), False
    return found, True


def _values(source: sqlite3.Connection, query: str, number: int) -> Sequence[object] | None:
    try:
        values: Sequence[object] | None = source.execute(query, (number,)).fetchone()
    except _UNREADABLE:
        return None
    if values is None:
        return None
    crc, body = values[-2:]
    return values if isinstance(body, bytes) and crc32(body) == crc else None


def _ready(path: Path) -> Path:
    return path.with_name(path.name + ".salvaged")


def _sync(directory: Path) -> None:
    """Make renames durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
