"""The state file of earlier versions, ``journal-state.db`` beside ``journal.db``, which had the tables of features.

The law of this file:

- The journal takes its rows over in one transaction, in place of those that it has. Then the format of the state file goes
  up: an earlier version refuses it from then on, and never works with old rows. A kill between both repeats the first.
- `write_back` writes it anew for an earlier version, with the rows in the journal. The next start takes these over again.
- A damaged one is salvaged first (`streamer.journal.damage`).
"""

import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from streamer.journal.entries import JournalError
from streamer.journal.file import DatabaseFile
from streamer.journal.lock import is_in_use
from streamer.journal.schema import Tables
from streamer.journal.sqlite import (
    CorruptFileError,
    FileForm,
    check_structure,
    connect,
    connect_to_look,
    create,
    faults_of,
    transaction,
)
from streamer.journal.versions import Age, age_of, build, rebuild, sign


def path_of(journal: Path) -> Path:
    """Return the path of the state file that belongs to a journal."""
    return journal.with_name(f"{journal.stem}-state.db")


def form_of(tables: Mapping[str, str]) -> FileForm:
    """Return the form of a state file with these tables: name → the statement that creates it."""
    return FileForm(
        application_id=0x75537373,  # "uSss"
        version=1,
        tables=tables,
        added=frozenset({"usubscription_versions", "dispatch_stop_ends", "utwin_messages"} & tables.keys()),
        error=JournalError,
        is_whole=None,  # a row that does not make sense is left out when it is read
        # 0.1 made each table when a service first needed it, not STRICT, and one without rowids
        migrations={0: lambda connection: rebuild(connection, tables)},
    )


def is_there(journal: Path, form: FileForm) -> bool:
    """Whether there is a state file with rows that the journal has not taken over. Raises as `versions.age_of`."""
    path = path_of(journal)
    if not path.exists():
        return False
    try:
        with faults_of(path, JournalError), closing(connect_to_look(path)) as connection:
            return age_of(connection, path, form) is not Age.EMPTY
    except JournalError as exc:
        if exc.is_newer:  # taken over
            return False
        raise


def read(journal: Path, target: sqlite3.Connection, tables: Mapping[str, str]) -> None:
    """Copy the rows of these tables in a journal or, if that was not taken over, in its state file; change neither.

    Raises `JournalError`, `CorruptFileError` and sqlite3.Error.
    """
    path, form = journal, Tables(tables).form
    if is_there(journal, earlier := form_of(tables)):
        path, form = path_of(journal), earlier
    if path.exists():
        with closing(connect_to_look(path)) as source:
            if age_of(source, path, form) is not Age.EMPTY:
                _copy(source, target, tables)


def take_over(tables: Mapping[str, str], journal: Path, connection: sqlite3.Connection) -> None:
    """Replace the rows of these tables in a journal by those in its state file, unless that was taken over before.

    Raises `JournalError` and sqlite3.Error.
    """
    form, path = form_of(tables), path_of(journal)
    with suppress(CorruptFileError):  # then it is salvaged
        if not is_there(journal, form):
            return
    file = DatabaseFile(path, form, check_structure)
    file.open()
    try:
        file.use(lambda source: _copy(source, connection, tables))
        file.use(lambda source: _end(source, form))
    finally:
        file.close()


def write_back(journal: Path, tables: Mapping[str, str]) -> None:
    """Write the state file for an earlier version, with the rows of these tables in the journal.

    No streamer may use the journal meanwhile. Raises `JournalError` and `CorruptFileError`.
    """
    path = path_of(journal)
    fresh = path.with_name(path.name + ".back")
    with faults_of(journal, JournalError):
        for leftover in (fresh, *(Path(f"{path}{side}") for side in ("-wal", "-shm"))):
            leftover.unlink(missing_ok=True)
        create(fresh)
        with closing(connect(fresh)) as target, closing(connect_to_look(journal)) as source:
            build(target, form_of(tables))
            _copy(source, target, tables)
        fresh.rename(path)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, tables: Mapping[str, str]) -> None:
    with transaction(target):
        for table in tables:
            target.execute(f"DELETE FROM {table}")
            if source.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                columns = [column[1] for column in target.execute(f"PRAGMA table_info({table})")]
                listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
                rows = source.execute(f"SELECT {listed} FROM {table}")  # by rowid, if there are any
                target.executemany(f"INSERT INTO {table} ({listed}) VALUES ({marks})", rows)


def _end(connection: sqlite3.Connection, form: FileForm) -> None:
    with transaction(connection):
        sign(connection, replace(form, version=form.version + 1))


if __name__ == "__main__":
    if is_in_use(Path(sys.argv[1])):
        sys.exit(f"{sys.argv[1]}: a streamer uses it: stop that first")
    kinds = import_module("streamer.features.every").FEATURES  # these import this module
    write_back(Path(sys.argv[1]), import_module("streamer.features.host.host").journal_tables(kinds).create)
