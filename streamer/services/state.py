"""The state file: what the services keep across restarts, in a small SQLite file beside the journal.

A change is on disk when `StateFile.write` returns, so an answer that is sent afterwards stays true. What happens to a
damaged file is in `streamer.journal.damage`.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from streamer.journal import damage
from streamer.journal.file import DatabaseFile
from streamer.journal.sqlite import (
    CorruptFileError,
    FileError,
    FileForm,
    check_structure,
    connect_to_look,
    faults_of,
    transaction,
)
from streamer.journal.versions import Age, age_of, build, migrated_copy, rebuild

Statement = tuple[str, Sequence[Any]]
"""SQL with its parameters."""

Row = tuple[Any, ...]
Entry = TypeVar("Entry")
Result = TypeVar("Result")

_ADDED = frozenset({"usubscription_versions", "dispatch_stop_ends", "utwin_messages"})

logger = logging.getLogger("ustreamer.state")


class StateError(FileError):
    """The state file cannot be used now; the text names the file and the reason."""

    key = "state.path"


def form_of(tables: Mapping[str, str]) -> FileForm:
    """Return the form of a state file with these tables: name → the statement that creates it."""
    return FileForm(
        application_id=0x75537373,  # "uSss"
        version=1,
        tables=tables,
        added=_ADDED & tables.keys(),
        error=StateError,
        is_whole=None,  # a row that does not make sense is left out when it is read
        # 0.1 made each table when a service first needed it, not STRICT, and one without rowids
        migrations={0: lambda connection: rebuild(connection, tables)},
    )


class StateFile:
    """The tables of all services in ``path``; None keeps them in memory."""

    def __init__(self, path: Path | None, tables: Mapping[str, str]) -> None:
        self.path = path
        self._form = form_of(tables)
        self._file = None if path is None else DatabaseFile(path, self._form, check_structure)
        self._connection: sqlite3.Connection | None = None  # in memory, or only to read
        self._is_open = False
        self._thread = ThreadPoolExecutor(1, "state")

    def open(self) -> None:
        """Open or create the file, unless it is open. Raises `StateError`.

        Opening does not write to an undamaged file, so it works on a full disk.
        """
        if self._is_open:
            return
        if self._file is not None:
            self._file.open()
        else:
            self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            build(self._connection, self._form)
        self._is_open = True

    def open_to_read(self) -> bool:
        """Open the file without changing it, also while a daemon uses it; False if there is none. Raises `StateError`."""
        if self.path is None or not self.path.exists():
            return False
        try:
            with self._faults():
                self._connection = connect_to_look(self.path)
                age = age_of(self._connection, self.path, self._form)
                if age is Age.EARLIER:
                    with contextlib.closing(self._connection) as earlier:
                        self._connection = migrated_copy(earlier, self._form)
        except StateError:
            self._disconnect()
            raise
        if age is Age.EMPTY:
            self._disconnect()
        return age is not Age.EMPTY

    def read(self, sql: str, entry_of: Callable[[Row], Entry]) -> list[Entry]:
        """Return the rows of a query, each as ``entry_of`` converts it. Blocks: for the start only. Raises `StateError`.

        A row for which ``entry_of`` raises an error (written by another version, by hand or by a fault of the disk) is
        logged and left out.
        """
        found = []
        for row in self._use(lambda connection: connection.execute(sql).fetchall()):
            try:
                found.append(entry_of(row))
            except (ValueError, TypeError, RecursionError, DecodeError) as exc:  # the third: of JSON
                shown = tuple(f"{len(each)} bytes" if isinstance(each, bytes) else each for each in row[:3])  # no payloads
                logger.error("state_row_unreadable file=%s row=%r error=%s", self.path, shown, exc)
        return found

    async def write(self, statements: Sequence[Statement]) -> None:
        """Execute all statements in one transaction, which is on disk when this returns. Raises `StateError`."""
        if statements:
            work = partial(_write, statements)
            await asyncio.get_running_loop().run_in_executor(self._thread, self._use, work)

    def close(self) -> None:
        """Close the file after the transaction that is being written."""
        self._thread.shutdown(wait=True)
        self._disconnect()
        if self._file is not None:
            try:
                self._file.close()
            except StateError as exc:
                logger.error("state_not_closed error=%s", exc)

    def _use(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        if self._connection is None:
            assert self._file is not None
            return self._file.use(work)
        with self._faults():
            return work(self._connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Convert errors of a file that is only read into `StateError`."""
        path = self.path or Path(":memory:")
        try:
            with faults_of(path, StateError):
                yield
        except CorruptFileError as exc:
            raise StateError(damage.text_of(path, exc)) from exc


def _write(statements: Sequence[Statement], connection: sqlite3.Connection) -> None:
    with transaction(connection):
        for sql, parameters in statements:
            connection.execute(sql, parameters)
