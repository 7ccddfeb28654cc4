"""Reading the journal from the event loop's thread, on a connection of its own: readers never wait for the writer."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from streamer.journal.entries import CorruptEntryError, Row, Segment
from streamer.journal.schema import connect

_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 20

_ROWS = """SELECT crc, number, route, source, target, entered_ms, attempts, outgoing, body FROM rows
    WHERE number > ? AND number <= ? ORDER BY number"""
_SEGMENTS = "SELECT crc, number, target, body FROM segments WHERE number > ? AND number <= ? ORDER BY number"


class Reader:
    """A read connection that is opened when it is needed first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self.entries_corrupt = 0

    def rows(self, up_to: int) -> Iterator[Row]:
        """Every row with a number up to that one, in order. Memory holds one page at a time."""
        for values in self._entries(_ROWS, up_to):
            yield Row(*values)

    def segments(self, up_to: int) -> Iterator[Segment]:
        """Every segment with a number up to that one, in order."""
        for values in self._entries(_SEGMENTS, up_to):
            yield Segment(*values)

    def row_body(self, number: int) -> bytes:
        """The body of a row. Raises `CorruptEntryError`."""
        return self._body("rows", number)

    def segment_body(self, number: int) -> bytes:
        """The body of a segment. Raises `CorruptEntryError`."""
        return self._body("segments", number)

    def close(self) -> None:
        """Let go of the file; the next read opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, read_only=True)
        return self._connection

    def _entries(self, query: str, up_to: int) -> Iterator[tuple[Any, ...]]:
        after = -(1 << 63)
        while True:
            page: list[tuple[Any, ...]] = []
            size = 0
            cursor = self._open().execute(query, (after, up_to))
            for crc, *values in cursor:
                after = values[0]
                size += len(values[-1])
                if crc32(values[-1]) != crc:
                    self.entries_corrupt += 1
                    continue
                page.append(tuple(values))
                if len(page) == _PAGE_ENTRIES or size >= _PAGE_BYTES:
                    break
            cursor.close()  # an open one would keep the writer from emptying its log
            if not page:
                return
            yield from page

    def _body(self, table: str, number: int) -> bytes:
        try:
            found = self._open().execute(f"SELECT crc, body FROM {table} WHERE number = ?", (number,)).fetchone()
        except sqlite3.Error as exc:
            raise CorruptEntryError(f"{table} {number}: {exc}") from exc
        if found is None:
            raise CorruptEntryError(f"{table} {number}: not in the journal")
        crc, body = found
        if crc32(body) != crc:
            raise CorruptEntryError(f"{table} {number}: its body is damaged")
        return bytes(body)
