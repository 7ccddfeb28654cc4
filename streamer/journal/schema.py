"""The journal file's schema: its tables, and the check that a row is intact."""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from streamer.journal.entries import JournalError
from streamer.journal.sqlite import FileForm, faults_of, transaction
from streamer.journal.versions import rebuild


def is_whole(row: Mapping[str, object]) -> bool:
    """Whether the body of a row, segment or letter is unchanged, by its checksum."""
    body = row["body"]
    return isinstance(body, bytes) and crc32(body) == row["crc"]


REJECTED = "(outcome = 'rejected' OR (outcome = 'expired' AND route = ''))"
"""Selects the letters of messages that were never accepted, in files of any version: any sender can cause such letters."""

JOURNAL = FileForm(
    application_id=0x75537472,  # "uStr"
    version=1,
    tables={
        "rows": """CREATE TABLE rows (
            number INTEGER PRIMARY KEY, route TEXT, source TEXT, target TEXT, entered_ms INTEGER, attempts INTEGER,
            outgoing TEXT, crc INTEGER, body BLOB
        ) STRICT""",
        "segments": "CREATE TABLE segments (number INTEGER PRIMARY KEY, target TEXT, crc INTEGER, body BLOB) STRICT",
        "letters": """CREATE TABLE letters (
            number INTEGER PRIMARY KEY, id BLOB, route TEXT, ingress TEXT, target TEXT, outcome TEXT, code INTEGER,
            text TEXT, attempts INTEGER, first_ms INTEGER, last_ms INTEGER, type INTEGER, source TEXT, sink TEXT,
            crc INTEGER, size INTEGER, body BLOB, redrive INTEGER, redrive_ttl INTEGER, UNIQUE (id, route, source, sink)
        ) STRICT""",
    },
    indexes=(
        "CREATE INDEX IF NOT EXISTS letters_by_size ON letters (number, size)",
        f"CREATE INDEX IF NOT EXISTS letters_rejected ON letters (number, size, outcome, route) WHERE {REJECTED}",
        f"CREATE INDEX IF NOT EXISTS letters_accepted ON letters (number, size, outcome, route) WHERE NOT {REJECTED}",
        "CREATE INDEX IF NOT EXISTS letters_to_redrive ON letters (number) WHERE redrive IS NOT NULL",
    ),
    error=JournalError,
    is_whole=is_whole,
)
TABLES = tuple(JOURNAL.tables)
"""The tables of entries."""


class Tables(NamedTuple):
    """Tables of features in the journal's file: name → the statement that creates the table.

    ``on_opened`` is called with a file that was opened, before anything is written to it.
    """

    create: Mapping[str, str] = {}
    on_opened: Callable[[Path, sqlite3.Connection], None] = lambda path, connection: None

    @property
    def form(self) -> FileForm:
        """Return the form of a journal file with these tables."""
        return replace(JOURNAL, tables={**JOURNAL.tables, **self.create}, added=frozenset(self.create))


FACTS = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"
"""The statements of the file's owner (`entries.Facts`). They are no entries: a salvaged file has none."""
_LETTER_KEY = """SELECT key.name FROM pragma_index_list('letters') AS list, pragma_index_info(list.name) AS key
    WHERE list.origin = 'u'"""


def complete(connection: sqlite3.Connection) -> None:
    """Add to a file what earlier programs did not write and ignore, unless the disk is full. Raises sqlite3.Error.

    In their files a dead letter replaced another one with its id and route, even of another sender.
    """
    with suppress(sqlite3.OperationalError), transaction(connection):
        if ("sink",) not in connection.execute(_LETTER_KEY).fetchall():
            rebuild(connection, {"letters": JOURNAL.tables["letters"]})
        for addition in (*JOURNAL.indexes, FACTS):
            connection.execute(addition)


def journal_faults(path: Path) -> AbstractContextManager[None]:
    """Return `faults_of` for a journal file."""
    return faults_of(path, JournalError)
