"""A SQLite file with one writer: opens and checks it, opens it again after a fault, replaces it when it is damaged.

What happens to a damaged file is in `streamer.journal.damage`. No threads in here.
"""

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TypeVar

from streamer.journal import damage, wal
from streamer.journal.lock import NOWHERE, FileLock, identity, look
from streamer.journal.sqlite import (
    MAX_WAL_BYTES,
    CorruptFileError,
    FileError,
    FileForm,
    connect,
    connect_to_look,
    create,
    faults_of,
    make_durable,
)
from streamer.journal.versions import age_of, prepare
from streamer.journal.wal import WriteAheadLog

logger = logging.getLogger("ustreamer.files")

HANGS_AFTER_S = 5.0
"""A transaction that has not ended after this time counts as one that cannot be written."""

_LARGE_WAL_BYTES = 2 * MAX_WAL_BYTES

Check = Callable[[sqlite3.Connection], None]

Result = TypeVar("Result")


def problem_of(path: Path, form: FileForm) -> str:
    """Return why a daemon could not use an existing file, or would set it aside; empty if it could. Only reads the file."""
    try:
        with faults_of(path, form.error):
            if problem := wal.damage_of_unused(path):
                raise CorruptFileError(problem)
            with closing(connect_to_look(path)) as connection:
                age_of(connection, path, form)
    except CorruptFileError as exc:
        return damage.text_of(path, exc)
    except form.error as exc:
        return str(exc)
    return ""


class DatabaseFile:
    """One file. Methods raise the `FileError` of its form if it cannot be used now: call again later.

    ``check`` looks at every part of the file when it is opened first; it raises `CorruptFileError` and sqlite3.Error.
    ``on_connected`` prepares a new connection. ``generation`` counts the files that took the place of another, ``wal_bytes``
    is the size of the write-ahead log when the file was last used. Its growth, while another program reads, is logged.
    """

    def __init__(self, path: Path, form: FileForm, check: Check, on_connected: Check = lambda connection: None) -> None:
        self.path = path
        self.generation = 0
        self.rows_lost = 0
        self.wal_bytes = 0
        self._wal_grows = False
        self._form = form
        self._check = check
        self._on_connected = on_connected
        self._connection: sqlite3.Connection | None = None
        self._sides = [f"{path}{side}" for side in damage.SIDES]  # the file itself is the last one
        self._identities = [NOWHERE] * len(self._sides)
        self._lock = FileLock(path, form.error)
        self._began_s: float | None = None  # the call that is at work

    @property
    def hangs(self) -> str:
        """Return that the disk hangs, as a text; empty if it does not. For any thread."""
        began_s = self._began_s
        if began_s is None or time.monotonic() - began_s < HANGS_AFTER_S:
            return ""
        return f"{self.path}: the disk has not ended a transaction within {HANGS_AFTER_S:g} s"

    def lock(self) -> None:
        """Lock the file against other streamers until it is closed, as `open` does, too."""
        with self._faults():
            self._take_lock()

    def open(self) -> None:
        """Open or create the file, and check every part of it."""
        with self._faults():
            self._take_lock()
            # The salvaged file of an interrupted replacement is about to replace this one.
            found = WriteAheadLog(self.path) if damage.is_ready(self.path) else wal.look(self.path)
            try:
                if found.problem:
                    raise CorruptFileError(found.problem)
                self._connect(is_checked=True)
            except CorruptFileError as exc:
                self._replace(str(exc), found)

    def use(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call ``work`` with a connection to the file. If that finds damage, replace the file and call ``work`` again.

        ``work`` may raise `CorruptFileError` for content that was changed.
        """
        self._began_s = time.monotonic()
        try:
            try:
                return self._attempt(work)
            except CorruptFileError as exc:
                with self._faults():
                    self._replace(str(exc))
            try:
                return self._attempt(work)
            except CorruptFileError as exc:
                raise self._form.error(f"{self.path}: damaged again at once: {exc}") from exc
        finally:
            self._began_s = None

    def close(self) -> None:
        """Close the file, and release its lock."""
        try:
            with self._faults():
                self._disconnect()
        except CorruptFileError as exc:
            raise self._form.error(f"{self.path}: damaged: {exc}") from exc
        finally:
            self._lock.release()

    def _faults(self) -> AbstractContextManager[None]:
        return faults_of(self.path, self._form.error)

    def _take_lock(self) -> None:
        if self.path.parent.parent.is_dir() and not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._lock.take()

    def _attempt(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with self._faults():
            connection = self._link()
        try:
            with self._faults():
                result = work(connection)
        except FileError as exc:
            # The content of a removed file may be reachable through this connection only.
            if not exc.is_link_good and self._is_in_place():
                self._disconnect()
            raise
        with self._faults():
            self._watch_wal(self._link())  # replaces the file if it was removed meanwhile
        return result

    def _link(self) -> sqlite3.Connection:
        """Return the connection to the file; replace the file if it was removed, replaced or emptied."""
        if self._connection is None:
            if self._identities[-1] in (NOWHERE, identity(self.path)) or damage.is_ready(self.path):
                self._connect(is_checked=False)
            else:
                self._take_lock()
                self._replace("the file was removed, replaced or emptied while it could not be used")
        elif not self._is_in_place():
            self._take_lock()
            self._replace("the file or its log was removed, replaced or emptied while it was in use")
        assert self._connection is not None
        return self._connection

    def _is_in_place(self) -> bool:
        """Whether the file and SQLite's side files are the same as before, and the file is not empty."""
        try:
            looks = [look(side) for side in self._sides]
        except OSError:
            return False
        now = [identity for identity, _ in looks]
        (_, self.wal_bytes), (_, size) = looks[0], looks[-1]
        if not size or any(before not in (NOWHERE, here) for before, here in zip(self._identities, now, strict=True)):
            return False
        self._identities = now  # SQLite creates the side files when it needs them
        return True

    def _watch_wal(self, connection: sqlite3.Connection) -> None:
        """Log that the write-ahead log grows because of a reader, and that it has shrunk. Raises sqlite3.Error."""
        side, what = self._sides[0], f"log of {self.path}"
        if self.wal_bytes > _LARGE_WAL_BYTES and not self._wal_grows:
            _, frames, taken = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if taken < frames:  # not because of one large transaction
                self._wal_grows = True
                reason = "another program reads the file, such as sqlite3 or a backup, and does not end"
                state = {"state": (what, "grows")}
                logger.warning("wal_grows file=%s bytes=%d reason=%s", side, self.wal_bytes, reason, extra=state)
        elif self.wal_bytes <= MAX_WAL_BYTES and self._wal_grows:
            self._wal_grows = False
            logger.warning("wal_shrunk file=%s bytes=%d", side, self.wal_bytes, extra={"state": (what, "ok")})

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self, is_checked: bool) -> None:
        if damage.is_ready(self.path):  # the last replacement was interrupted
            self._put_in_place()
        create(self.path)
        if not self.path.is_file():  # the mode of a folder or device is not changed
            raise self._form.error(f"{self.path}: expected a regular file")
        self._lock.take()
        self.path.chmod(0o600)
        connection = connect(self.path)
        try:
            with self._faults():
                prepare(connection, self.path, self._form)
                make_durable(connection, self.path, self._form)
                if is_checked:
                    self._check(connection)
                self._on_connected(connection)
            self._identities = [identity(side) for side in self._sides]
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _replace(self, why: str, found: WriteAheadLog | None = None) -> None:
        """Replace a damaged file. ``found``: the log as it was before SQLite opened the file."""
        log = found or (WriteAheadLog(self.path) if self._connection is not None else wal.scan(self.path))
        saved = damage.salvage(self.path, self._form, self._connection, log)
        self._disconnect()
        self.rows_lost += saved.lost
        aside = self._put_in_place()
        logger.error("file_set_aside file=%s kept=%d lost_at_least=%d reason=%s", aside, saved.kept, saved.lost, why)
        try:
            self._connect(is_checked=False)
        except CorruptFileError as exc:
            raise self._form.error(f"{self.path}: damaged again at once: {exc}") from exc

    def _put_in_place(self) -> Path:
        aside = damage.put_in_place(self.path)
        self.generation += 1
        return aside
