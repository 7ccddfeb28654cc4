"""Reads the journal on the event loop's thread, with a connection of its own: readers never wait for the writer.

Every read raises `CorruptEntryError` for an entry that is damaged or missing, and `JournalError` if the file cannot be read.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from streamer.journal.entries import CorruptEntryError, JournalError, Letter, Mark, MissingEntryError, Row, Segment
from streamer.journal.schema import journal_faults
from streamer.journal.sqlite import CorruptFileError, connect

logger = logging.getLogger("ustreamer.journal")

_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 20

_ROWS = """SELECT crc, number, route, source, target, entered_ms, attempts, outgoing, body FROM rows
    WHERE number > ? AND number <= ? ORDER BY number"""
_SEGMENTS = "SELECT crc, number, target, body FROM segments WHERE number > ? AND number <= ? ORDER BY number"
_LETTERS = """SELECT crc, number, id, route, ingress, target, outcome, code, text, attempts, first_ms, last_ms, type, source,
    sink, body FROM letters WHERE number > ? AND number <= ? ORDER BY number"""
_MARKS = "SELECT number, redrive, redrive_ttl FROM letters WHERE redrive IS NOT NULL ORDER BY number"
LOWEST, _HIGHEST = 1 - (1 << 63), (1 << 63) - 1
"""The bounds of numbers."""


class Reader:
    """A read connection, opened at the first read, and again when ``generation`` shows that the file was replaced."""

    def __init__(self, path: Path, generation: Callable[[], int]) -> None:
        self._path = path
        self._generation = generation
        self._opened_generation = 0
        self._connection: sqlite3.Connection | None = None
        self.entries_corrupt = 0

    def rows(self, up_to: int, first: int = LOWEST) -> Iterator[Row]:
        """Yield every row with a number from ``first`` up to this one, in order."""
        for values in self._entries(_ROWS, up_to, first):
            yield Row(*values)

    def segments(self, up_to: int, first: int = LOWEST) -> Iterator[Segment]:
        """Yield every segment with a number from ``first`` up to this one, in order."""
        for values in self._entries(_SEGMENTS, up_to, first):
            yield Segment(*values)

    def letters(self) -> Iterator[Letter]:
        """Yield every dead letter, in order."""
        for values in self._entries(_LETTERS, _HIGHEST):
            yield Letter(*values)

    def marks(self) -> list[Mark]:
        """Return the marks of all letters that are to be redriven, in the order of their numbers."""
        with self._faults():
            return list(map(Mark._make, self._open().execute(_MARKS)))

    def numbers(self, table: str) -> list[int]:
        """Return the numbers of all entries in a table, in order."""
        with self._faults():
            return [number for (number,) in self._open().execute(f"SELECT number FROM {table} ORDER BY number")]

    def row_body(self, number: int) -> bytes:
        """Return the body of a row."""
        return self._body("rows", number)

    def segment_body(self, number: int) -> bytes:
        """Return the body of a segment."""
        return self._body("segments", number)

    def letter_body(self, number: int) -> bytes:
        """Return the body of a dead letter."""
        return self._body("letters", number)

    def close(self) -> None:
        """Close the connection; the next read opens one again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        generation = self._generation()
        if generation != self._opened_generation:
            self.close()
            self._opened_generation = generation
        if self._connection is None:
            self._connection = connect(self._path, read_only=True)
        return self._connection

    def _entries(self, query: str, up_to: int, first: int = LOWEST) -> Iterator[tuple[Any, ...]]:
        after = first - 1
        while page := self._page(query, after, up_to):
            after = page[-1][1]
            for crc, *values in page:
                if crc32(values[-1]) != crc:
                    self.entries_corrupt += 1
                    logger.error("journal_entry_damaged file=%s number=%d", self._path, values[0])
                else:
                    yield tuple(values)

    def _page(self, query: str, after: int, up_to: int) -> list[tuple[Any, ...]]:
        page: list[tuple[Any, ...]] = []
        held = 0
        with self._faults():
            cursor = self._open().execute(query, (after, up_to))
            for values in cursor:
                page.append(values)
                held += len(values[-1])
                if len(page) == _PAGE_ENTRIES or held >= _PAGE_BYTES:
                    break
            cursor.close()  # an open one would keep the writer from emptying its log
        return page

    def _body(self, table: str, number: int) -> bytes:
        with self._faults():
            found = self._open().execute(f"SELECT crc, body FROM {table} WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise MissingEntryError(f"{table} {number}: not in the journal")
        crc, body = found
        if crc32(body) != crc:
            self.entries_corrupt += 1
            raise CorruptEntryError(f"{table} {number}: its body was changed")
        return bytes(body)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            with journal_faults(self._path):
                yield
        except CorruptFileError as exc:
            self.entries_corrupt += 1
            raise CorruptEntryError(str(exc)) from exc
        except JournalError:
            self.close()
            raise
