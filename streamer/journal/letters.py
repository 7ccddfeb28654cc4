"""The dead letters in a journal file, for programs other than the daemon, which may be running or not."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from streamer.journal.entries import CorruptEntryError, JournalError
from streamer.journal.schema import JOURNAL, journal_faults
from streamer.journal.sqlite import connect
from streamer.journal.versions import Age, age_of
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UriError, UUri

_COLUMNS = """number, id, route, ingress, target, outcome, code, text, attempts, first_ms, last_ms, type, source, sink,
    size, redrive, redrive_ttl"""


class LetterSummary(NamedTuple):
    """A dead letter without its body: as `Letter`, with the body's size and the time at which a redrive was asked for."""

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
    """A selection of letters; None means any. ``until_ms`` and ``since_ms`` bound the time when they became dead letters."""

    id: bytes | None = None
    route: str | None = None
    code: UCode | None = None
    source: UUri | None = None
    sink: UUri | None = None
    until_ms: int | None = None
    since_ms: int | None = None

    def matches(self, letter: LetterSummary) -> bool:
        """Whether a letter is selected."""
        return (
            self.id in (None, letter.id)
            and self.route in (None, letter.route)
            and self.code in (None, letter.code)
            and (self.until_ms is None or letter.last_ms <= self.until_ms)
            and (self.since_ms is None or letter.last_ms >= self.since_ms)
            and _matches(self.source, letter.source)
            and _matches(self.sink, letter.sink)
        )


class LetterFile:
    """The letters of an open journal file. Methods raise `JournalError` and `CorruptFileError`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def find(self, selected: LetterFilter) -> list[LetterSummary]:
        """The letters that match, oldest first."""
        with journal_faults(self._path):
            found = self._connection.execute(f"SELECT {_COLUMNS} FROM letters ORDER BY number")
            return [letter for letter in map(LetterSummary._make, found) if selected.matches(letter)]

    def body(self, number: int) -> bytes:
        """The serialized UMessage. Raises `CorruptEntryError` if it was changed or deleted."""
        with journal_faults(self._path):
            found = self._connection.execute("SELECT crc, body FROM letters WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise CorruptEntryError("it is no longer in the journal")
        crc, body = found
        if crc32(body) != crc:
            raise CorruptEntryError("its body was changed")
        return bytes(body)

    def delete(self, numbers: list[int]) -> int:
        """Delete letters. Returns how many were still there."""
        return self._change("DELETE FROM letters", (), numbers)

    def mark_for_redrive(self, numbers: list[int], now_ms: int, ttl_ms: int | None) -> int:
        """Ask the daemon to send letters again; see `OnRedrive`. Returns how many were still there."""
        return self._change("UPDATE letters SET redrive = ?, redrive_ttl = ?", (now_ms, ttl_ms), numbers)

    def _change(self, statement: str, values: tuple[int | None, ...], numbers: list[int]) -> int:
        with journal_faults(self._path):
            where = "WHERE number IN (SELECT value FROM json_each(?))"
            return self._connection.execute(f"{statement} {where}", (*values, json.dumps(numbers))).rowcount


@contextmanager
def open_letters(path: Path) -> Iterator[LetterFile]:
    """The dead letters of a journal. Raises `JournalError` and `CorruptFileError`."""
    with journal_faults(path):
        if not path.exists():
            raise JournalError(f"{path}: no such file; the daemon creates it when it starts")
        if not os.access(path, os.R_OK | os.W_OK):
            raise JournalError(f"{path}: permission denied; only the user who runs the daemon may read it")
        connection = connect(path)
    try:
        with journal_faults(path):
            age = age_of(connection, path, JOURNAL)
            if age is Age.EMPTY:
                raise JournalError(f"{path}: the file is empty; the daemon creates the journal when it starts")
            if age is Age.EARLIER:
                raise JournalError(f"{path}: an earlier version wrote it; the daemon brings it up to date when it starts")
        yield LetterFile(connection, path)
    finally:
        connection.close()


def _matches(pattern: UUri | None, text: str) -> bool:
    if pattern is None:
        return True
    try:
        return pattern.matches(UUri.parse(text))
    except UriError:  # none, or not a valid address: that may be why it is a dead letter
        return False
