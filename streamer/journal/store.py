"""The journal file for its one writer: opens, writes, compacts and closes it. No threads in here."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from streamer.journal import batches
from streamer.journal.batches import LetterBounds, Totals
from streamer.journal.check import check
from streamer.journal.entries import Batch, JournalError, Letter
from streamer.journal.file import DatabaseFile
from streamer.journal.letters import LetterChange
from streamer.journal.schema import TABLES, Tables
from streamer.journal.sqlite import BUSY_S, CorruptFileError, transaction

_TOP = f"SELECT {batches.TOP}"
_ENTRIES = "SELECT (SELECT count(*) FROM rows) + (SELECT count(*) FROM segments)"
_LETTERS = """SELECT crc, redrive_ttl, number, id, route, ingress, target, outcome, code, text, attempts, first_ms, last_ms,
    type, source, sink, body FROM letters WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"""
_WAL_FULL = "{}: its log (-wal) has {} bytes, because another program reads the file (sqlite3, a backup): end that program"
_STRANGERS = (
    "{}: another program has written {} into this file, with a number of ours: end that program, and restart the streamer; "
    "nothing of it is replaced"
)
_SLICE_PAGES = 16
_SPARE_PAGES = 256
_BRIEFLY_MS = 50

Result = TypeVar("Result")


class Store:
    """One journal file. Methods raise `JournalError` if the file cannot be used now: call again later.

    ``top`` is the highest number in the file, ``entries`` how many rows and segments it had when it was opened,
    ``generation`` counts the files that took the place of another. ``facts`` are those that held when it was opened.
    ``bounds`` apply from the next batch on; any thread may set others. Writing stops while the write-ahead log has more than
    ``max_wal_bytes`` and another program reads it. ``tables`` are those of features.
    """

    def __init__(self, path: Path, bounds: LetterBounds, max_wal_bytes: int = 1 << 30, tables: Tables | None = None) -> None:
        self.top = self.entries = 0
        self._known_up_to = 0  # the highest number that this process has written or found; beyond that it is another's
        self._known_generation: int | None = None
        self.totals = Totals(0, 0)
        self.facts: Mapping[str, str] = {}
        self.letters_evicted = 0
        self.bounds = bounds
        self._max_wal_bytes = max_wal_bytes
        self._is_tidy = False
        self._tables = tables or Tables()
        self._file = DatabaseFile(path, self._tables.form, check, self._set_up)

    @property
    def generation(self) -> int:
        return self._file.generation

    @property
    def entries_lost(self) -> int:
        """Return the number of entries that could not be saved from damaged files."""
        return self._file.rows_lost

    @property
    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        return self._file.wal_bytes

    @property
    def hangs(self) -> str:
        """Return that the disk hangs, as a text; empty if it does not. For any thread."""
        return self._file.hangs

    def lock(self) -> None:
        """Lock the file against other streamers until it is closed."""
        self._file.lock()

    def open(self) -> None:
        """Open or create the file, and check every part of it."""
        self._file.open()
        self._file.use(lambda connection: self._tables.on_opened(self._file.path, connection))

    def shift_below(self, number: int) -> None:
        """Renumber all entries in the file to below ``number``, in the same order, unless they are below already.

        Facts speak of the numbers before, so none hold any more.
        """

        def shift(connection: sqlite3.Connection) -> None:
            if self.top < number:
                return
            (low,) = connection.execute(_TOP.replace("max(", "min(")).fetchone()  # 0 if a table is empty
            by = max(self.top - number, self.top - low) + 1  # so far that no entry gets the old number of another
            by += by % 2  # even numbers stay even: see `streamer.features.pair.mirror`
            with transaction(connection):
                for table in TABLES:
                    connection.execute(f"UPDATE {table} SET number = number - ?", (by,))
                connection.execute("DELETE FROM facts")
            self.top -= by
            self._known_up_to = self.top
            self.facts = {}

        self._file.use(shift)

    def apply(self, batch: Batch) -> None:
        """Write a batch; it is on disk when this returns."""

        def write(connection: sqlite3.Connection) -> None:
            # The statements replace rows and segments up to `top`, which a new connection reads anew, and any letter.
            if (batch.letters or self.top > self._known_up_to) and (
                whose := batches.stranger(connection, batch, self._known_up_to)
            ):
                raise JournalError(_STRANGERS.format(self._file.path, whose), is_link_good=True)
            facts = batch.facts
            changed = None if facts is None or facts.generation != self.generation else facts.values
            written = batch if batch.kept is None else batches.unnamed(connection, batch.kept)
            batches.apply(connection, written, self.top, self.bounds, changed)
            self._count(connection)
            if batch.renumbered is not None:
                (self.top,) = connection.execute(_TOP).fetchone()
                self._known_up_to = self.top

        self.use(write)
        for entries in (batch.rows, batch.segments, batch.letters):
            highest = max((entry[0] for entry in entries), default=0)
            self.top, self._known_up_to = max(self.top, highest), max(self._known_up_to, highest)

    def use(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call ``work``, which changes the file in a transaction; that is on disk when this returns."""

        def change(connection: sqlite3.Connection) -> Result:
            if self._file.wal_bytes > self._max_wal_bytes and not _shrink_wal(connection):
                raise JournalError(_WAL_FULL.format(self._file.path, self._file.wal_bytes), is_link_good=True)
            return work(connection)

        self._is_tidy = False
        return self._file.use(change)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def tidy(self) -> bool:
        """Release a slice of the unused disk space, if any. Return whether there is more to release now."""

        def free(connection: sqlite3.Connection) -> bool:
            if self._is_tidy:
                return False
            connection.executescript(
                f"PRAGMA incremental_vacuum({_SLICE_PAGES})"
            )  # a step for each page; `execute` does one
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free > _SPARE_PAGES:
                return True
            self._is_tidy = _shrink_wal(connection)
            return False

        return self._file.use(free)

    def change_letters(self, change: LetterChange) -> int:
        """Delete or mark letters; that is on disk when this returns. Return how many of them still existed."""

        def write(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                changed = change.apply(connection)
                batches.recount(connection)
            self._count(connection)
            return changed

        self._is_tidy = False
        return self._file.use(write)

    def marked(self) -> list[int]:
        """Return the letters that are marked for a redrive, also by a command that writes to the file at this moment."""

        def read(connection: sqlite3.Connection) -> list[int]:
            with transaction(connection):
                batches.recount(connection)
                query = "SELECT number FROM letters WHERE redrive IS NOT NULL ORDER BY number"
                return [number for (number,) in connection.execute(query)]

        return self._file.use(read)

    def letters(self, numbers: list[int]) -> tuple[list[Letter], list[int | None]]:
        """Return those of the letters that still exist, with the new TTLs of their redrives."""

        def read(connection: sqlite3.Connection) -> tuple[list[Letter], list[int | None]]:
            letters: list[Letter] = []
            ttls: list[int | None] = []
            for crc, ttl_ms, *columns in connection.execute(_LETTERS, (json.dumps(numbers),)):
                if crc32(columns[-1]) != crc:
                    raise CorruptFileError(f"letter {columns[0]}: its body was changed")
                letters.append(Letter(*columns))
                ttls.append(ttl_ms)
            return letters, ttls

        return self._file.use(read)

    def _set_up(self, connection: sqlite3.Connection) -> None:
        """Prepare a new connection."""
        (self.top,) = connection.execute(_TOP).fetchone()
        (self.entries,) = connection.execute(_ENTRIES).fetchone()
        batches.set_up(connection)
        self.totals = batches.totals(connection)
        self.facts = batches.facts(connection)
        if self._known_generation != self.generation:  # not when the connection to the same file was lost
            self._known_generation, self._known_up_to = self.generation, self.top
        self._is_tidy = False

    def _count(self, connection: sqlite3.Connection) -> None:
        before, self.totals = self.totals, batches.totals(connection)
        self.letters_evicted += self.totals.evicted - before.evicted


def _shrink_wal(connection: sqlite3.Connection) -> bool:
    """Move the log into the file and empty it; False: another program still reads it. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA busy_timeout = {_BRIEFLY_MS}")
    try:
        (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
    return not is_busy
