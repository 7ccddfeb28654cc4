"""What the services remember across restarts: one small SQLite file, the journal's neighbour.

What is written is on the disk when `State.write` returns: an answer that is given afterwards holds. A file that is damaged
is moved aside and said so; the services begin with nothing then.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Statement = tuple[str, Sequence[Any]]
"""SQL with its parameters."""

VERSION = 1
_BUSY_S = 5.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

logger = logging.getLogger("ustreamer.state")


class StateError(OSError):
    """The file cannot be used now; the text says which and why."""


class State:
    """The tables of all services in ``path``; None keeps them in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "state")

    def open(self, schema: Iterable[str]) -> None:
        """Open the file, or make it, with these tables (``CREATE TABLE IF NOT EXISTS``). Raises `StateError`.

        A file that has them is not written to: it can be opened on a full disk. If it is open already nothing happens.
        """
        if self._connection is not None:
            return
        schema = tuple(schema)
        try:
            self._connection = self._connect(schema)
        except sqlite3.Error as exc:
            if self.path is None or getattr(exc, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
                raise StateError(f"{self.path}: {exc}") from exc
            aside = self._move_aside()
            logger.error(
                "state_damaged file=%s moved_to=%s consequence=%s", self.path, aside, "the services begin with nothing"
            )
            try:
                self._connection = self._connect(schema)
            except sqlite3.Error as again:
                raise StateError(f"{self.path}: {again}") from again
        except OSError as exc:
            raise StateError(f"{exc.filename or self.path}: {exc.strerror or exc}") from exc

    def look(self) -> bool:
        """Open the file only to read it, also while a daemon uses it; False if there is none. Raises `StateError`."""
        if self.path is None or not self.path.exists():
            return False
        # Without a write-ahead log nobody has it open, and it needs no lock.
        is_still = not self.path.with_name(f"{self.path.name}-wal").exists()
        mode = "ro&immutable=1" if is_still else "ro"
        try:
            self._connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode={mode}", uri=True)
        except sqlite3.Error as exc:
            raise StateError(f"{self.path}: {exc}") from exc
        return True

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a query finds; nothing in a table that a file which is only looked at does not have yet. Raises `StateError`.

        It blocks: at the start only.
        """
        assert self._connection is not None
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as exc:
            if "no such table" in str(exc):
                return []
            raise StateError(f"{self.path}: {exc}") from exc

    async def write(self, statements: Sequence[Statement]) -> None:
        """Do all of it in one transaction, or nothing; it is on the disk afterwards. Raises `StateError`."""
        if statements:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, statements)

    def close(self) -> None:
        """Close the file, after what is being written."""
        self._thread.shutdown(wait=True)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, statements: Sequence[Statement]) -> None:
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            for sql, parameters in statements:
                connection.execute(sql, parameters)
            connection.execute("COMMIT")
        except sqlite3.Error as exc:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise StateError(f"{self.path}: {exc}") from exc

    def _connect(self, schema: Sequence[str]) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _damaged(found)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise StateError(f"{self.path}: is of version {version}; expected {VERSION}")
            if version != VERSION:
                connection.execute(f"PRAGMA user_version={VERSION}")
            for sql in schema:
                connection.execute(sql)
        except BaseException:
            connection.close()
            raise
        return connection

    def _move_aside(self) -> Path:
        assert self.path is not None
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.bad-{number}")).exists():
            number += 1
        self.path.rename(aside)
        for ending in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).rename(aside.with_name(aside.name + ending))
        return aside


def _damaged(text: str) -> sqlite3.DatabaseError:
    damage = sqlite3.DatabaseError(text)
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return damage
