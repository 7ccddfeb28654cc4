"""Checks the version of a file's format: accepts the present one, migrates earlier ones, refuses newer ones.

The law of this file:

- A version is SQLite's ``user_version``, beside our ``application_id``. A file of ours without the latter has version 0,
  such as the state file of 0.1.
- A file of an earlier version is migrated step by step in one transaction: a kill leaves it as it was.
- A file of a newer version is never changed, set aside or taken for damaged. The refusal names the program that wrote it,
  which is in the table ``ustreamer_format``, and this one.
- The version goes up only if an earlier program would misread the file. Tables, indexes and fields that an earlier program
  ignores do not count, so that it can still use the file.
"""

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path

from streamer import __version__, newer_format
from streamer.journal.sqlite import CorruptFileError, FileForm, check_structure, transaction

logger = logging.getLogger("ustreamer.files")

_MIN_SQLITE = (3, 38, 0)  # ->> and STRICT
_FORMAT = "ustreamer_format"
_NOT_OURS_ALONE = {"sqlite_sequence", _FORMAT}


class Age(Enum):
    """The age of a file's format, which decides what has to be done with it."""

    EMPTY = "empty"
    EARLIER = "earlier"
    CURRENT = "current"


def age_of(connection: sqlite3.Connection, path: Path, form: FileForm) -> Age:
    """Return the age of a file. Raises the form's `FileError` if it is not ours or newer, `CorruptFileError` if damaged."""
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        expected = ".".join(map(str, _MIN_SQLITE))
        raise form.error(f"SQLite {sqlite3.sqlite_version} is too old; expected at least {expected}")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if stranger := _stranger(connection, form):
        raise form.error(f"{path}: it has {stranger}, which is not of this program; it is left alone, name another file")
    application_id, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if not found and not application_id and version <= form.version:
        return Age.EMPTY
    ours = found.intersection(form.tables)
    if application_id != form.application_id and (not ours or found - ours - _NOT_OURS_ALONE):
        raise form.error(f"{path}: a database of another program; it is left alone, name another file")
    if application_id == form.application_id and version > form.version:
        raise form.error(f"{path}: {newer_format(version, form.version, written_by(connection))}", is_newer=True)
    if _version(application_id, version, form) in form.migrations:
        return Age.EARLIER
    is_ours = version == form.version and application_id == form.application_id
    missing_tables = form.tables.keys() - found
    if is_ours and missing_tables and missing_tables <= form.added:
        return Age.EARLIER
    if not is_ours or missing_tables:
        raise CorruptFileError(f"schema {version} of program {application_id:#x} with tables {', '.join(sorted(found))}")
    if missing := _missing_columns(connection, form):
        raise CorruptFileError(f"without the columns {', '.join(missing)}")
    return Age.CURRENT


def _stranger(connection: sqlite3.Connection, form: FileForm) -> str:
    """Name what would act in our statements, and no version of this program makes; empty if there is none.

    These are views, triggers, unique indexes, and virtual tables with the name of one of ours. Further tables and indexes
    may be of a later version, and do nothing.
    """
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        words = str(sql or "").upper().split()[:2]
        if kind in ("view", "trigger") or words == ["CREATE", "UNIQUE"]:
            return f"the {'unique index' if kind == 'index' else kind} {name!r}"
        if words == ["CREATE", "VIRTUAL"] and name in form.tables:
            return f"the virtual table {name!r}"
    return ""


def _missing_columns(connection: sqlite3.Connection, form: FileForm) -> list[str]:
    """Return the columns that are missing, since a damaged schema may still be valid. Additional columns are ignored."""
    with closing(sqlite3.connect(":memory:")) as whole:
        for statement in form.tables.values():
            whole.execute(statement)
        return sorted(column for table in form.tables for column in _columns(whole, table) - _columns(connection, table))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {f"{table}.{column[1]}" for column in connection.execute(f"PRAGMA table_info({table})")}


def prepare(connection: sqlite3.Connection, path: Path, form: FileForm) -> None:
    """Make sure that the file has this form: an empty one gets it, an earlier one is migrated. Raises as `age_of`."""
    age = age_of(connection, path, form)
    if age is Age.EMPTY:
        build(connection, form)
    elif age is Age.EARLIER:
        before = _migrate(connection, form)
        logger.warning("file_migrated file=%s from_format=%d to_format=%d", path, before, form.version)


def build(connection: sqlite3.Connection, form: FileForm) -> None:
    """Create the tables in an empty file."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    with transaction(connection):
        for statement in (*form.tables.values(), *form.indexes):
            connection.execute(statement)
        sign(connection, form)


def rebuild(connection: sqlite3.Connection, tables: Mapping[str, str]) -> None:
    """A step of a migration: recreate tables with their rows and the same columns; create missing ones empty."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for name, statement in tables.items():
        if name not in found:
            connection.execute(statement)
            continue
        columns = ", ".join(column[1] for column in connection.execute(f"PRAGMA table_info({name})"))
        connection.execute(f"ALTER TABLE {name} RENAME TO earlier_{name}")
        connection.execute(statement)
        connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM earlier_{name}")
        connection.execute(f"DROP TABLE earlier_{name}")


def _migrate(connection: sqlite3.Connection, form: FileForm) -> int:
    """Migrate a file. Return its earlier version. Raises `CorruptFileError` and sqlite3.Error, without a change."""
    check_structure(connection)
    first = _version(_pragma(connection, "application_id"), _pragma(connection, "user_version"), form)
    try:
        with transaction(connection):
            for version in range(first, form.version):
                form.migrations[version](connection)
            for name in form.added:
                connection.execute(form.tables[name].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            sign(connection, form)
    except sqlite3.IntegrityError as exc:  # rows that an earlier program cannot have written
        raise CorruptFileError(str(exc)) from exc
    return first


def sign(connection: sqlite3.Connection, form: FileForm) -> None:
    """Write the format's version, and the program's. The caller has begun a transaction."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_FORMAT} (written_by TEXT NOT NULL) STRICT")
    connection.execute(f"DELETE FROM {_FORMAT}")
    connection.execute(f"INSERT INTO {_FORMAT} VALUES (?)", (__version__,))
    connection.execute(f"PRAGMA application_id = {form.application_id}")
    connection.execute(f"PRAGMA user_version = {form.version}")


def _version(application_id: int, version: int, form: FileForm) -> int:
    """Return the version of a file; -1 if its header is damaged."""
    if application_id == form.application_id:
        return version
    return -1 if application_id else 0


def written_by(connection: sqlite3.Connection) -> str | None:
    with suppress(sqlite3.Error):
        found = connection.execute(f"SELECT written_by FROM {_FORMAT}").fetchone()
        return None if found is None else str(found[0])
    return None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
