"""The journal file as its one writer sees it: open, apply a batch, tidy up, close. No threads in here.

A file in use is locked (``<name>.lock``): two daemons that wrote one file would deliver each other's messages.
"""

import fcntl
import os
import sqlite3
from pathlib import Path

from streamer.journal import batches
from streamer.journal.batches import LetterBounds, Totals
from streamer.journal.entries import Batch, JournalError
from streamer.journal.schema import TABLES, connect, create, faults_of, make_durable, prepare

_TOP = "SELECT max(" + ", ".join(f"ifnull((SELECT max(number) FROM {table}), 0)" for table in TABLES) + ")"


class Store:
    """One journal file. Every method raises `JournalError` if the file cannot be used now; call again later."""

    def __init__(self, path: Path, bounds: LetterBounds) -> None:
        self.path = path
        self.top = 0
        self.totals = Totals(0, 0)
        self._bounds = bounds
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None

    def open(self) -> None:
        """Open the file, or make it."""
        with faults_of(self.path):
            self._take_lock()
            create(self.path)
            connection = connect(self.path)
            prepare(connection, self.path)
            make_durable(connection, self.path)
            (self.top,) = connection.execute(_TOP).fetchone()
            batches.set_up(connection)
            self.totals = batches.totals(connection)
            self._connection = connection

    def apply(self, batch: Batch) -> None:
        """Write a batch; it is on the disk when this returns."""
        connection = self._connection
        assert connection is not None
        with faults_of(self.path):
            batches.apply(connection, batch, self.top, self._bounds)
            self.totals = batches.totals(connection)
        for entries in (batch.rows, batch.segments, batch.letters):
            for entry in entries:
                self.top = max(self.top, entry[0])

    def close(self) -> None:
        """Close the file; what was applied is in it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(lock_path(self.path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise JournalError(f"{self.path}: another streamer uses it; each needs a file of its own") from None
        self._lock = lock


def lock_path(path: Path) -> Path:
    """The file that the daemon holds locked while it uses the journal ``path``."""
    return path.with_name(path.name + ".lock")
