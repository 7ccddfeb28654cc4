"""The journal file as its one writer sees it: open, apply a batch, keep it tidy, close. No threads in here.

A file that is damaged is set aside, with everything that can be read of it copied to a new one: `streamer.journal.salvage`.
"""

import json
import logging
import sqlite3
from pathlib import Path
from zlib import crc32

from streamer.journal import batches, salvage
from streamer.journal.batches import LetterBounds, Totals
from streamer.journal.check import check
from streamer.journal.entries import Batch, CorruptFileError, JournalError, Letter
from streamer.journal.lock import JournalLock, identity
from streamer.journal.schema import BUSY_S, TABLES, connect, create, faults_of, make_durable, prepare

_TOP = "SELECT max(" + ", ".join(f"ifnull((SELECT max(number) FROM {table}), 0)" for table in TABLES) + ")"
_LETTERS = """SELECT crc, redrive_ttl, number, id, route, ingress, target, outcome, code, text, attempts, first_ms, last_ms,
    type, source, sink, body FROM letters WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"""
_SLICE_PAGES = 16
_SPARE_PAGES = 256
_BRIEFLY_MS = 50

logger = logging.getLogger("ustreamer.journal")


class Store:
    """One journal file. Methods raise `JournalError` if the file cannot be used now: call again later.

    ``top`` is the highest number in the file, ``generation`` counts the files that took the place of another.
    """

    def __init__(self, path: Path, bounds: LetterBounds) -> None:
        self.path = path
        self.top = 0
        self.totals = Totals(0, 0)
        self.letters_evicted = 0
        self.entries_lost = 0
        self.generation = 0
        self._bounds = bounds
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._version = -1
        self._is_tidy = False
        self._lock = JournalLock(path)

    def open(self) -> None:
        """Open the file, or make it, and check every part of it."""
        with faults_of(self.path):
            if self.path.parent.parent.is_dir():
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lock.take()
            try:
                if _is_emptied(self.path):
                    raise CorruptFileError("the file is empty, but its log is not")
                self._connect(is_checked=True)
            except CorruptFileError as exc:
                self._set_aside(str(exc))

    def shift_below(self, number: int) -> None:
        """Renumber everything in the file to below ``number``, in the same order, if it is not there already."""
        connection = self._link()
        if self.top < number:
            return
        with faults_of(self.path):
            (low,) = connection.execute(_TOP.replace("max(", "min(")).fetchone()  # 0 if a table is empty
            by = max(self.top - number, self.top - low) + 1  # so far that nothing meets its neighbour's old number
            connection.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET number = number - ?", (by,))
            connection.execute("COMMIT")
        self.top -= by

    def apply(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns. Raises `CorruptFileError` too, as all methods below do."""
        connection = self._link()
        try:
            with faults_of(self.path):
                batches.apply(connection, batch, self.top, self._bounds)
                self._count()
        except JournalError as exc:
            if not exc.is_link_good:
                self._disconnect()
            raise
        self._is_tidy = False
        for entries in (batch.rows, batch.segments, batch.letters):
            self.top = max(self.top, max((entry[0] for entry in entries), default=0))

    def close(self) -> None:
        """Close the file; what was applied is in it."""
        with faults_of(self.path):
            self._disconnect()
        self._lock.release()

    def tidy(self) -> bool:
        """Give back disk space that nothing needs, a slice at a time; whether there is more to do."""
        connection = self._link()
        if self._is_tidy:
            return False
        with faults_of(self.path):
            connection.executescript(f"PRAGMA incremental_vacuum({_SLICE_PAGES})")  # a step a page; `execute` takes one
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            if free > _SPARE_PAGES:
                return True
            connection.execute(f"PRAGMA busy_timeout = {_BRIEFLY_MS}")  # whoever reads now may go on reading
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        self._is_tidy = True
        return False

    def marked(self) -> list[int] | None:
        """The letters that somebody wants sent again; None if nobody has written to the file since this was asked last."""
        connection = self._link()
        with faults_of(self.path):
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return None
            found = [number for (number,) in connection.execute("SELECT number FROM letters WHERE redrive IS NOT NULL")]
            batches.recount(connection)
            self._count()
            self._version = version
        return found

    def letters(self, numbers: list[int]) -> tuple[list[Letter], list[int | None]]:
        """Those of the letters that are still there, with the TTLs that were asked for."""
        connection = self._link()
        letters: list[Letter] = []
        ttls: list[int | None] = []
        with faults_of(self.path):
            for crc, ttl_ms, *columns in connection.execute(_LETTERS, (json.dumps(numbers),)):
                if crc32(columns[-1]) != crc:
                    raise CorruptFileError(f"letter {columns[0]}: its body is not what was written")
                letters.append(Letter(*columns))
                ttls.append(ttl_ms)
        return letters, ttls

    def rescue(self, why: str) -> None:
        """Replace the file by one with all that can still be read of it."""
        with faults_of(self.path):
            self._set_aside(why)

    def _count(self) -> None:
        assert self._connection is not None
        before, self.totals = self.totals, batches.totals(self._connection)
        self.letters_evicted += self.totals.evicted - before.evicted

    def _link(self) -> sqlite3.Connection:
        """The connection to the file, which has to be where it was."""
        with faults_of(self.path):
            if self._connection is None:
                self._connect(is_checked=False)
            elif identity(self.path) != self._identity:
                self._lock.take()
                self._set_aside("the file was removed or replaced while it was in use")
        assert self._connection is not None
        return self._connection

    def _connect(self, is_checked: bool) -> None:
        if salvage.is_ready(self.path):  # the last replacement was interrupted
            self._put_in_place()
        create(self.path)
        self.path.chmod(0o600)
        connection = connect(self.path)
        try:
            with faults_of(self.path):
                prepare(connection, self.path)
                make_durable(connection, self.path)
                if is_checked:
                    check(connection)
                (self.top,) = connection.execute(_TOP).fetchone()
                batches.set_up(connection)
                self.totals = batches.totals(connection)
            self._identity = identity(self.path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._version = -1
        self._is_tidy = False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _set_aside(self, why: str) -> None:
        source = self._connection
        if source is None and not _is_emptied(self.path):
            source = connect(self.path)
        try:
            saved = salvage.salvage(source, self.path)
        finally:
            if source is not None and source is not self._connection:
                source.close()
        self._disconnect()
        self.entries_lost += saved.lost
        aside = self._put_in_place()
        logger.error("journal_set_aside file=%s kept=%d lost_at_least=%d reason=%s", aside, saved.kept, saved.lost, why)
        try:
            self._connect(is_checked=False)
        except CorruptFileError as exc:
            raise JournalError(f"{self.path}: damaged again at once: {exc}") from exc

    def _put_in_place(self) -> Path:
        aside = salvage.put_in_place(self.path)
        self.generation += 1
        return aside


def _is_emptied(path: Path) -> bool:
    try:
        return path.stat().st_size == 0 and Path(f"{path}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
