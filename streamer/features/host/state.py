"""The services' tables in the journal's file, which the journal's thread writes.

A change is on disk when `StateFile.write` returns, so an answer that is sent afterwards stays true; in a pair, it is on the
other one's disk, too (`streamer.features.pair.state`). Without a journal, the tables are in memory.
"""

import asyncio
import contextlib
import logging
import math
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError

from streamer.features.host import earlier_state
from streamer.journal import damage
from streamer.journal.entries import JournalError
from streamer.journal.journal import Journal
from streamer.journal.sqlite import CorruptFileError, FileError, connect, faults_of, transaction

Statement = tuple[str, Sequence[Any]]
"""SQL with its parameters."""

Row = tuple[Any, ...]
Entry = TypeVar("Entry")

_CHANGES = ("INSERT ", "DELETE ", "UPDATE ")
_LINEAGE = "CREATE TABLE IF NOT EXISTS lineage (name TEXT PRIMARY KEY) STRICT"
"""Random names of the files whose rows this one has, or had and then deleted. A salvaged file has none."""
_KEYS = {
    "usubscription_subscriptions": ("topic", "subscriber"),
    "usubscription_observers": ("topic", "uri"),
    "usubscription_outbox": ("message",),
    "dispatch_stops": ("source", "sink"),
}
"""The columns that identify a row of a table whose numbers differ from file to file."""
_KEPT_FROM = 1 << 40
"""The number of the first row that is kept beside those of another file, which go on counting below."""
_LOOK_S = 0.5

logger = logging.getLogger("ustreamer.state")


class StateError(FileError):
    """The tables cannot be used now; the text names the file and the reason, ``consequence`` what becomes of the change."""

    def __init__(self, text: str, consequence: str = "nothing has changed", **marks: bool) -> None:
        super().__init__(text, **marks)
        self.consequence = consequence


class Mirror(Protocol):
    """Receives every committed transaction, to keep a copy elsewhere."""

    def written(self, statements: Sequence[Statement], done: Callable[[str], None]) -> None:
        """Take what is on disk here, in the order of the commits, and call ``done``; with the reason if it is void."""


class Rows:
    """All rows of the tables as they are when this is made, however long they are read. Its owner closes it.

    They are in memory: a transaction that reads the file for so long would keep the writer from emptying its log.
    ``lineage``: the names of the files whose rows are in there.
    """

    def __init__(self, source: sqlite3.Connection, tables: Mapping[str, str], lineage: Sequence[str]) -> None:
        """``tables``: name → the statement that creates the table. Raises sqlite3.Error."""
        self.lineage = lineage
        name = f"file:rows-{secrets.token_hex(8)}?mode=memory&cache=shared"
        self._connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
        source.execute("ATTACH ? AS copied", (name,))
        try:
            for table in tables:
                source.execute(f"CREATE TABLE copied.{table} AS SELECT * FROM main.{table} ORDER BY rowid")
        finally:
            source.execute("DETACH copied")
        self._statements = self._inserts(tables)

    def _inserts(self, tables: Iterable[str]) -> Iterator[Statement]:
        for table in tables:
            rows = self._connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
            listed, marks = ", ".join(column[0] for column in rows.description), ", ".join("?" * len(rows.description))
            for row in rows:
                yield f"INSERT INTO {table} ({listed}) VALUES ({marks})", row

    def take(self, most: int, most_bytes: int) -> list[Statement]:
        """Return the statements that insert the next rows, which fill at most this and one more; none at the end.

        Raises `StateError`.
        """
        found: list[Statement] = []
        size = 0
        with _faults(None):
            while len(found) < most and size < most_bytes and (statement := next(self._statements, None)) is not None:
                found.append(statement)
                size += sum(len(value) for value in statement[1] if isinstance(value, str | bytes))
        return found

    def close(self) -> None:
        """Read no further."""
        self._connection.close()


class StateFile:
    """The tables of all services in the file of ``journal``; None keeps them in memory. ``mirror`` has a copy elsewhere."""

    def __init__(self, journal: Journal | None, tables: Mapping[str, str], mirror: Mirror | None = None) -> None:
        self.path = None if journal is None else journal.path
        self._journal = journal
        self._mirror = mirror
        self._tables = tables
        self._connection: sqlite3.Connection | None = None  # in memory
        if journal is None:
            self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for statement in tables.values():
                self._connection.execute(statement)

    def open_to_read(self, path: Path) -> None:
        """Read the rows of a journal's file, which a daemon may use, into memory; change nothing. Raises `StateError`."""
        assert self._connection is not None, "a journal is in use"
        self.path = path
        with _faults(path):
            earlier_state.read(path, self._connection, self._tables)

    @property
    def hangs(self) -> str:
        """Return that the disk hangs, as a text; empty if it does not."""
        return "" if self._journal is None else self._journal.hangs

    def read(self, sql: str, entry_of: Callable[[Row], Entry]) -> list[Entry]:
        """Return the rows of a query, each as ``entry_of`` converts it. Blocks: for the start only. Raises `StateError`.

        A row for which ``entry_of`` raises an error (written by another version, by hand or by a fault of the disk) is
        logged and left out.
        """
        found = []
        for row in self._select(sql):
            try:
                found.append(entry_of(row))
            except (ValueError, TypeError, RecursionError, DecodeError) as exc:  # the third: of JSON
                shown = tuple(f"{len(each)} bytes" if isinstance(each, bytes) else each for each in row[:3])  # no payloads
                logger.error("state_row_unreadable file=%s row=%r error=%s", self.path, shown, exc)
        return found

    def _select(self, sql: str) -> list[Row]:
        with _faults(self.path):
            if self._connection is not None:
                return self._connection.execute(sql).fetchall()
            assert self.path is not None
            with contextlib.closing(connect(self.path, read_only=True)) as connection:
                return connection.execute(sql).fetchall()

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        """Execute all statements in one transaction, which is on disk when this returns, and in the copy.

        Raises `StateError`, also if the disk has not answered after ``most_s``: then the change may come to be there later.
        """
        if not statements:
            return
        if self._journal is None:
            assert self._connection is not None
            with _faults(None):
                _write(statements, self._connection)
            return
        loop, mirror = asyncio.get_running_loop(), self._mirror
        copied: asyncio.Future[str] = loop.create_future()

        def write(connection: sqlite3.Connection) -> None:
            _write(statements, connection)
            if mirror is not None:
                loop.call_soon_threadsafe(mirror.written, statements, partial(_set, copied))

        await self._done(self._journal, write, most_s)
        if mirror is not None and (problem := await copied):
            raise StateError(f"{self.path}: {problem}")

    async def _done(self, journal: Journal, work: Callable[[sqlite3.Connection], None], most_s: float | None) -> None:
        """Have a transaction written, and wait for that while the journal can be written. Raises `StateError`."""
        loop = asyncio.get_running_loop()
        until_s = math.inf if most_s is None else loop.time() + most_s
        waiting: asyncio.Future[None] = loop.create_future()
        try:
            written = journal.submit(work)
            waiting = asyncio.wrap_future(written)
            while not waiting.done():
                await asyncio.wait((waiting,), timeout=max(0.0, min(_LOOK_S, until_s - loop.time())))
                if waiting.done():
                    break
                is_late = loop.time() >= until_s
                problem = f"{self.path}: the disk has not answered within {most_s} s" if is_late else journal.problem
                if problem and written.cancel():
                    raise StateError(problem)
                if is_late:
                    raise StateError(problem, "the change may be in effect after the next start")
            await waiting
        except (JournalError, CorruptFileError) as exc:
            raise StateError(str(exc)) from exc
        finally:
            waiting.cancel()

    def snapshot(self, begin: Callable[[Rows | FileError], None]) -> None:
        """Post all rows as they are between two transactions, in the order in which the mirror is told; or the failure."""
        loop, journal = asyncio.get_running_loop(), self._journal
        assert journal is not None, "a pair has a journal"

        def post(found: Rows | FileError) -> None:
            loop.call_soon_threadsafe(begin, found)

        def rows(connection: sqlite3.Connection) -> None:
            try:
                post(Rows(connection, self._tables, _lineage(connection)))
            except (sqlite3.Error, OSError) as exc:
                post(StateError(f"{journal.path}: {exc}"))

        try:
            journal.submit(rows)
        except JournalError as exc:
            post(exc)

    def store(
        self, statements: Sequence[Statement], lineage: Sequence[str] | None, done: Callable[[str, bool], None]
    ) -> None:
        """Write a transaction of the active one of a pair or, with its ``lineage``, a snapshot of its file.

        The snapshot replaces everything that is here, if its lineage has that of this file. Else rows of this file that are
        not in there are kept.

        ``done`` is posted the problem, empty once that is on disk, and whether rows were kept.
        """
        loop, journal = asyncio.get_running_loop(), self._journal
        assert journal is not None, "a pair has a journal"

        def work(connection: sqlite3.Connection) -> bool:
            for sql, _ in statements:
                if not sql.startswith(_CHANGES):
                    raise StateError(f"{self.path}: not a statement of this version: {sql.partition(' ')[0]}")
            if lineage is not None:
                return _replace(statements, self._tables, lineage, connection)
            _write(statements, connection)
            return False

        def post(problem: str, has_kept: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done, problem, has_kept)

        def stored(future: "Future[bool]") -> None:
            exc = future.exception()
            if exc is None:
                post("", future.result())
            elif isinstance(exc, FileError):
                post(str(exc), False)
            else:  # of a statement of another version; whatever it is, the other one waits
                logger.error("state_not_stored file=%s error=%r", self.path, exc)
                post(f"{self.path}: {type(exc).__name__}", False)

        try:
            journal.submit(work).add_done_callback(stored)
        except JournalError as exc:
            post(str(exc), False)

    def close(self) -> None:
        """Read no further. The journal closes its file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@contextlib.contextmanager
def _faults(path: Path | None) -> Iterator[None]:
    path = path or Path(":memory:")
    try:
        with faults_of(path, StateError):
            yield
    except CorruptFileError as exc:
        raise StateError(damage.text_of(path, exc)) from exc
    except JournalError as exc:
        raise StateError(str(exc), is_newer=exc.is_newer, is_in_use=exc.is_in_use) from exc


def _set(copied: "asyncio.Future[str]", problem: str) -> None:
    if not copied.done():  # whoever waited may have been cancelled
        copied.set_result(problem)


def _write(statements: Sequence[Statement], connection: sqlite3.Connection) -> None:
    with transaction(connection):
        _execute(statements, connection)


def _execute(statements: Sequence[Statement], connection: sqlite3.Connection) -> None:
    for sql, parameters in statements:
        connection.execute(sql, parameters)


def _lineage(connection: sqlite3.Connection) -> list[str]:
    """Return the names in a file, which gets one if it has none. Raises sqlite3.Error."""
    with transaction(connection):
        connection.execute(_LINEAGE)
        if not (found := _names(connection)):
            found = [secrets.token_hex(8)]
            connection.execute("INSERT INTO lineage VALUES (?)", found)
    return found


def _names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM lineage ORDER BY name")]


def _replace(
    statements: Sequence[Statement], tables: Iterable[str], lineage: Sequence[str], connection: sqlite3.Connection
) -> bool:
    """Replace all rows; return whether rows were kept that the file with this lineage may never have had."""
    with transaction(connection):
        connection.execute(_LINEAGE)
        here = set(_names(connection))
        is_known = here <= set(lineage)
        for table in tables:
            if not is_known:
                connection.execute(f"CREATE TEMP TABLE kept_{table} AS SELECT * FROM {table}")
            connection.execute(f"DELETE FROM {table}")
        _execute(statements, connection)
        kept = 0
        for table in () if is_known else tables:
            kept += _keep(connection, table)
            connection.execute(f"DROP TABLE kept_{table}")
        connection.executemany("INSERT OR IGNORE INTO lineage VALUES (?)", [(name,) for name in lineage])
    return kept > 0


def _keep(connection: sqlite3.Connection, table: str) -> int:
    """Insert the rows that are missing in a table; return how many. Raises sqlite3.Error."""
    if table not in _KEYS:
        return connection.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM kept_{table}").rowcount
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})") if column[1] != "number"]
    same = " AND ".join(f"there.{key} IS kept.{key}" for key in _KEYS[table])
    return connection.execute(
        f"""INSERT INTO {table} (number, {", ".join(columns)})
        SELECT max({_KEPT_FROM}, (SELECT ifnull(max(number), 0) FROM {table})) + row_number() OVER (ORDER BY number),
            {", ".join(columns)} FROM kept_{table} AS kept
        WHERE NOT EXISTS (SELECT 1 FROM {table} AS there WHERE {same})"""
    ).rowcount
