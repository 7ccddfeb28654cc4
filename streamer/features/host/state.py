"""The state file: what the services keep across restarts, in a small SQLite file beside the journal.

A change is on disk when `StateFile.write` returns, so an answer that is sent afterwards stays true; in a pair, it is on the
other one's disk, too (`streamer.features.pair.state`). What happens to a damaged file is in `streamer.journal.damage`.
"""

import asyncio
import contextlib
import logging
import secrets
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError

from streamer.journal import damage
from streamer.journal.file import DatabaseFile
from streamer.journal.sqlite import (
    CorruptFileError,
    FileError,
    FileForm,
    check_structure,
    connect,
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
_ADDED = frozenset({"usubscription_versions", "dispatch_stop_ends", "utwin_messages"})

logger = logging.getLogger("ustreamer.state")


class StateError(FileError):
    """The state file cannot be used now; the text names the file and the reason."""

    key = "state.path"
    consequence = "nothing has changed"


class UnansweredError(StateError):
    """The disk has not answered in time; ``consequence`` is what becomes of the change."""

    def __init__(self, text: str, consequence: str) -> None:
        super().__init__(f"{text}: {consequence}")
        self.consequence = consequence


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


class Mirror(Protocol):
    """Receives every committed transaction, to keep a copy elsewhere."""

    def written(self, statements: Sequence[Statement], done: Callable[[str], None]) -> None:
        """Take what is on disk here, in the order of the commits, and call ``done``; with the reason if it is void."""


class Rows:
    """All rows of a file as they are when this is made, however long they are read. Its owner closes it.

    ``lineage``: the names of the files whose rows are in there.
    """

    def __init__(self, path: Path, tables: Mapping[str, str], lineage: Sequence[str] = ()) -> None:
        """``tables``: name → the statement that creates the table. Raises sqlite3.Error."""
        self.lineage = lineage
        self._path = path
        self._inserts = deque(_inserts(tables))
        self._connection = connect(path, read_only=True)
        self._connection.execute("BEGIN")
        self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # begins to read
        self._sql = ""
        self._rows: Iterator[Row] = iter(())

    def take(self, most: int, most_bytes: int) -> list[Statement]:
        """Return the statements that insert the next rows, which fill at most this and one more; none at the end.

        Raises `StateError`.
        """
        found: list[Statement] = []
        size = 0
        with _faults(self._path):
            while len(found) < most and size < most_bytes:
                row = next(self._rows, None)
                if row is not None:
                    found.append((self._sql, row))
                    size += sum(len(value) for value in row if isinstance(value, str | bytes))
                elif self._inserts:
                    select, self._sql = self._inserts.popleft()
                    self._rows = self._connection.execute(select)
                else:
                    break
        return found

    def close(self) -> None:
        """Read no further."""
        self._connection.close()


class StateFile:
    """The tables of all services in ``path``; None keeps them in memory. ``mirror`` has a copy elsewhere."""

    def __init__(self, path: Path | None, tables: Mapping[str, str], mirror: Mirror | None = None) -> None:
        self.path = path
        self._mirror = mirror
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

    @property
    def hangs(self) -> str:
        """Return that the disk hangs, as a text; empty if it does not."""
        return "" if self._file is None else self._file.hangs

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

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        """Execute all statements in one transaction, which is on disk when this returns, and in the copy.

        Raises `StateError`, also if the disk has not answered after ``most_s``: then the change may come to be there later.
        """
        if not statements:
            return
        loop = asyncio.get_running_loop()
        work = partial(_write, statements)
        if self._mirror is None:
            await self._done(self._thread.submit(self._use, work), most_s)
            return
        copied: asyncio.Future[str] = loop.create_future()
        tell = partial(loop.call_soon_threadsafe, self._mirror.written, statements, partial(_set, copied))
        await self._done(self._thread.submit(self._use_and_tell, work, tell), most_s)
        if problem := await copied:
            raise StateError(f"{self.path}: {problem}")

    async def _done(self, written: Future[None], most_s: float | None) -> None:
        """Wait until a transaction is on disk. Raises `StateError`."""
        try:
            async with asyncio.timeout(most_s):
                await asyncio.wrap_future(written)
        except TimeoutError:
            what = StateError.consequence if written.cancelled() else "the change may be in effect after the next start"
            raise UnansweredError(f"{self.path}: the disk has not answered within {most_s:g} s", what) from None

    def snapshot(self, begin: Callable[[Rows | FileError], None]) -> None:
        """Post all rows as they are between two transactions, in the order in which the mirror is told; or the failure."""
        loop = asyncio.get_running_loop()

        def post(found: Rows | FileError) -> None:
            loop.call_soon_threadsafe(begin, found)

        with contextlib.suppress(RuntimeError):  # it is closed: nobody will need them
            self._thread.submit(self._snapshot, post)

    def store(
        self, statements: Sequence[Statement], lineage: Sequence[str] | None, done: Callable[[str, bool], None]
    ) -> None:
        """Write a transaction of the active one of a pair or, with its ``lineage``, a snapshot of its file.

        The snapshot replaces everything that is here, if its lineage has that of this file. Else rows of this file that are
        not in there are kept.

        Opens the file first, unless it is open. ``done`` is posted the problem, empty once that is on disk, and whether rows
        were kept.
        """
        loop = asyncio.get_running_loop()

        def post(problem: str, has_kept: bool) -> None:
            loop.call_soon_threadsafe(done, problem, has_kept)

        with contextlib.suppress(RuntimeError):  # it is closed
            self._thread.submit(self._store, statements, lineage, post)

    def close(self) -> None:
        """Close the file after the transaction that is being written; not if the disk hangs."""
        if self.hangs:
            logger.error("state_not_closed error=%s", self.hangs)
            self._thread.shutdown(wait=False, cancel_futures=True)
            return
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

    def _use_and_tell(self, work: Callable[[sqlite3.Connection], None], tell: Callable[[], object]) -> None:
        self._use(work)
        tell()

    def _snapshot(self, post: Callable[[Rows | FileError], object]) -> None:
        path, tables = self.path, self._form.tables
        assert path is not None, "a pair has a journal, and so a state file"
        try:
            post(self._use(lambda connection: Rows(path, tables, _lineage(connection))))
        except StateError as exc:
            post(exc)

    def _store(
        self, statements: Sequence[Statement], lineage: Sequence[str] | None, post: Callable[[str, bool], object]
    ) -> None:
        problem, has_kept = "", False
        try:
            for sql, _ in statements:
                if not sql.startswith(_CHANGES):
                    raise StateError(f"{self.path}: not a statement of this version: {sql.partition(' ')[0]}")
            self.open()
            if lineage is None:
                self._use(partial(_write, statements))
            else:
                has_kept = self._use(partial(_replace, statements, tuple(self._form.tables), lineage))
        except StateError as exc:
            problem = str(exc)
        except Exception as exc:  # of a statement of another version; whatever it is, the other one waits
            logger.exception("state_not_stored file=%s", self.path)
            problem = f"{self.path}: {type(exc).__name__}"
        post(problem, has_kept)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _faults(self) -> contextlib.AbstractContextManager[None]:
        """Convert errors of a file that is only read into `StateError`."""
        return _faults(self.path or Path(":memory:"))


@contextlib.contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        with faults_of(path, StateError):
            yield
    except CorruptFileError as exc:
        raise StateError(damage.text_of(path, exc)) from exc


def _inserts(tables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield for each table the query of its rows, and the statement that inserts one of them."""
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        for table, statement in tables.items():
            empty.execute(statement)
            columns = [column[1] for column in empty.execute(f"PRAGMA table_info({table})")]
            listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
            yield f"SELECT {listed} FROM {table} ORDER BY rowid", f"INSERT INTO {table} ({listed}) VALUES ({marks})"


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
    statements: Sequence[Statement], tables: Sequence[str], lineage: Sequence[str], connection: sqlite3.Connection
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
