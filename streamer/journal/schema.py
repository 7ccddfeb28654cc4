"""The form of the journal file: its tables, and when a row is whole."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from zlib import crc32

from streamer.journal.entries import JournalError
from streamer.journal.sqlite import FileForm, faults_of


def is_whole(row: Mapping[str, object]) -> bool:
    """Whether the body of a row, segment or letter is what was written."""
    body = row["body"]
    return isinstance(body, bytes) and crc32(body) == row["crc"]


REJECTED = "(outcome = 'rejected' OR (outcome = 'expired' AND route = ''))"
"""Selects the letters of messages that were never accepted, in files of any age: anybody can cause such letters."""

LETTER_INDEXES = (
    f"CREATE INDEX IF NOT EXISTS letters_rejected ON letters (number, size, outcome, route) WHERE {REJECTED}",
    f"CREATE INDEX IF NOT EXISTS letters_accepted ON letters (number, size, outcome, route) WHERE NOT {REJECTED}",
)
"""Files that were written before these bounds get them when they are opened."""

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
            crc INTEGER, size INTEGER, body BLOB, redrive INTEGER, redrive_ttl INTEGER, UNIQUE (id, route)
        ) STRICT""",
    },
    indexes=(
        "CREATE INDEX letters_by_size ON letters (number, size)",
        *LETTER_INDEXES,
        "CREATE INDEX letters_to_redrive ON letters (number) WHERE redrive IS NOT NULL",
    ),
    error=JournalError,
    is_whole=is_whole,
)
TABLES = tuple(JOURNAL.tables)


def journal_faults(path: Path) -> AbstractContextManager[None]:
    """`faults_of` a journal file."""
    return faults_of(path, JournalError)
