"""Reads the dead letters in a journal file outside the daemon's event loop.

The law of this file: it changes nothing. A journal has one writer, the thread of the daemon's `Journal`, which makes a
`LetterChange`.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from streamer.journal import wal
from streamer.journal.entries import CorruptEntryError, JournalError
from streamer.journal.schema import JOURNAL, journal_faults
from streamer.journal.sqlite import CorruptFileError, connect
from streamer.journal.versions import Age, age_of
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri

_COLUMNS = """number, ifnull(id, zeroblob(16)), ifnull(route, ''), ifnull(ingress, ''), ifnull(target, ''),
    ifnull(outcome, ''), ifnull(code, 0), ifnull(text, ''), ifnull(attempts, 0), ifnull(first_ms, 0), ifnull(last_ms, 0),
    ifnull(type, 0), ifnull(source, ''), ifnull(sink, ''), ifnull(size, 0), redrive, redrive_ttl"""
"""A fault of the disk can have made any of them NULL: the letter has to be listed all the same."""

_NEVER_MS = 1 << 62


class LetterSummary(NamedTuple):
    """A dead letter without its body: as `Letter`, with the body's size and the time at which a redrive was requested."""

    number: int
    id: bytes
    route: str
    ingress: str
    target: str
    outcome: str
    code: int
    text: str
    attempts: int
    first_ms: int
    last_ms: int
    type: int
    source: str
    sink: str
    size: int
    redrive_ms: int | None
    redrive_ttl_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """A selection of letters; None means any.

    ``until_ms`` and ``since_ms`` bound the time when they became dead letters. A time after ``ahead_ms`` comes from a clock
    that was wrong then, or is now. Nobody knows how old such a letter is: it counts as older than all others, so that it can
    be found and deleted.
    """

    id: bytes | None = None
    route: str | None = None
    code: UCode | None = None
    source: UUri | None = None
    sink: UUri | None = None
    until_ms: int | None = None
    since_ms: int | None = None
    ahead_ms: int = _NEVER_MS
    numbers: tuple[int, ...] | None = None

    def conditions(self) -> Iterator[tuple[str, object]]:
        """Yield the conditions in SQL, each with its parameter (None: no condition)."""
        for condition, value in (
            ("id = ?", self.id),
            ("route = ?", self.route),
            ("code = ?", self.code),
            (f"(last_ms <= ? OR last_ms > {self.ahead_ms:d})", self.until_ms),
            (f"last_ms BETWEEN ? AND {self.ahead_ms:d}", self.since_ms),
            ("is_match(?, source)", None if self.source is None else str(self.source)),
            ("is_match(?, sink)", None if self.sink is None else str(self.sink)),
            ("number IN (SELECT value FROM json_each(?))", None if self.numbers is None else json.dumps(self.numbers)),
        ):
            if value is not None:
                yield condition, value


class LetterChange(NamedTuple):
    """The letters with these numbers, to be deleted, or marked for a redrive with a new TTL; see `OnRedrive`.

    ``redrive_ms`` is the time at which the redrive was requested; None: delete the letters.
    """

    numbers: list[int]
    redrive_ms: int | None = None
    ttl_ms: int | None = None

    def apply(self, connection: sqlite3.Connection) -> int:
        """Change the letters. Return how many of them still existed. Raises sqlite3.Error."""
        where, numbers = "WHERE number IN (SELECT value FROM json_each(?))", json.dumps(self.numbers)
        if self.redrive_ms is None:
            return connection.execute(f"DELETE FROM letters {where}", (numbers,)).rowcount
        marks = f"UPDATE letters SET redrive = ?, redrive_ttl = ? {where}"
        return connection.execute(marks, (self.redrive_ms, self.ttl_ms, numbers)).rowcount


class LetterFile:
    """The letters of an open journal file. Methods raise `JournalError` and `CorruptFileError`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        connection.create_function("is_match", 2, _matches, deterministic=True)
        self._connection = connection
        self._path = path

    def find(
        self, selected: LetterFilter, after: int | None = None, limit: int = -1, *, newest_first: bool = False
    ) -> list[LetterSummary]:
        """Return at most ``limit`` matching letters, oldest or newest first, after the letter with this number."""
        where, values = _where(selected, after, "<" if newest_first else ">")
        with journal_faults(self._path):
            query = f"SELECT {_COLUMNS} FROM letters {where} ORDER BY number {'DESC' if newest_first else ''} LIMIT ?"
            return list(map(LetterSummary._make, self._connection.execute(query, (*values, limit))))

    def count(self, selected: LetterFilter) -> tuple[int, int]:
        """Return how many letters match, and their size in bytes."""
        where, values = _where(selected)
        with journal_faults(self._path):
            query = f"SELECT count(*), ifnull(sum(size), 0) FROM letters {where}"
            number, size = self._connection.execute(query, values).fetchone()
            return number, size

    def reasons(self, selected: LetterFilter) -> list[tuple[int, int, int, int]]:
        """Return for each code: the code, how many letters match, and when the first and the last of them failed.

        The most frequent code is first.
        """
        where, values = _where(selected)
        with journal_faults(self._path):
            query = f"""SELECT ifnull(code, 0), count(*), ifnull(min(last_ms), 0), ifnull(max(last_ms), 0)
                FROM letters {where} GROUP BY 1 ORDER BY 2 DESC, 1"""
            return self._connection.execute(query, values).fetchall()

    def body(self, number: int) -> bytes:
        """Return the serialized UMessage of a letter. Raises `CorruptEntryError` if it was changed or deleted."""
        with journal_faults(self._path):
            found = self._connection.execute("SELECT crc, body FROM letters WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise CorruptEntryError("it is no longer in the journal")
        crc, body = found
        if crc32(body) != crc:
            raise CorruptEntryError("its body was changed")
        return bytes(body)


@contextmanager
def open_letters(path: Path) -> Iterator[LetterFile]:
    """Yield the dead letters of a journal file, also of one in use. Raises `JournalError` and `CorruptFileError`."""
    with journal_faults(path):
        if not path.exists():
            raise JournalError(f"{path}: no such file; the daemon creates it when it starts")
        if not os.access(path, os.R_OK | os.W_OK):
            raise JournalError(f"{path}: permission denied; only the user who runs the daemon may read it")
        if problem := wal.damage_of_unused(path):  # opening it here would lose the rest of the log
            raise CorruptFileError(problem)
        connection = connect(path)  # SQLite removes the side files of a writable connection when it is the last one
    try:
        with journal_faults(path):
            connection.execute("PRAGMA query_only = ON")
            age = age_of(connection, path, JOURNAL)
            if age is Age.EMPTY:
                raise JournalError(f"{path}: the file is empty; the daemon creates the journal when it starts")
            if age is Age.EARLIER:
                raise JournalError(f"{path}: an earlier version wrote it; the daemon brings it up to date when it starts")
        yield LetterFile(connection, path)
    finally:
        connection.close()


def _where(selected: LetterFilter, after: int | None = None, beyond: str = ">") -> tuple[str, list[object]]:
    found = list(selected.conditions())
    if after is not None:
        found.append((f"number {beyond} ?", after))
    where = " AND ".join(condition for condition, _ in found)
    return f"WHERE {where}" if where else "", [value for _, value in found]


def _matches(pattern: str, text: str) -> bool:
    try:
        return UUri.parse(pattern).matches(UUri.parse(text))
    except UriError:  # absent or invalid, which may be the reason for the dead letter
        return False
