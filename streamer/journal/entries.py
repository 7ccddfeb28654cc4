"""What the journal holds: rows, segments and dead letters, and the batch that is written in one transaction.

No files and no SQL in here. Numbers come from `Journal.number` and give the order of everything.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from streamer.journal.sqlite import FileError

ENTRY_BYTES = 200
"""What an entry counts beside its body: its columns and SQLite's share. See `Journal.bytes`."""


class Row(NamedTuple):
    """One delivery that waits for its confirmation.

    ``source`` and ``target`` are endpoints. ``outgoing`` is the router's own text, ``body`` a serialized
    `uprotocol.v1.UMessage`.
    """

    number: int
    route: str
    source: str
    target: str
    entered_ms: int
    attempts: int
    outgoing: str
    body: bytes


class Segment(NamedTuple):
    """Many deliveries to one endpoint that were sent and are not confirmed, in one body of the router's own form."""

    number: int
    target: str
    body: bytes


class Letter(NamedTuple):
    """A message that could not be delivered.

    ``id`` is the message's (16 bytes), ``ingress`` and ``target`` are endpoints (empty: none), ``code`` is a `UCode`,
    ``type`` a `UMessageType`; ``source`` and ``sink`` are UUris in text form (no sink: empty). ``body`` is the
    serialized `uprotocol.v1.UMessage`. Times in Unix milliseconds.
    """

    number: int
    id: bytes
    route: str
    ingress: str
    target: str
    outcome: str
    code: int
    text: str
    attempts: int
    first_ms: int
    last_ms: int
    type: int
    source: str
    sink: str
    body: bytes


@dataclass(slots=True)
class Batch:
    """Everything that one transaction writes; the lists that end in ``_done`` have the numbers of what is deleted.

    Deleted first, then written. A row or a segment replaces the one with its number; a letter replaces the one with its
    id and route. ``letters_kept`` has the numbers of letters that were asked for and stay: nobody asks for them any more.
    """

    rows: list[Row] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    rows_done: list[int] = field(default_factory=list)
    segments_done: list[int] = field(default_factory=list)
    letters_done: list[int] = field(default_factory=list)
    letters_kept: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        written = self.rows or self.segments or self.letters or self.letters_kept
        return not (written or self.rows_done or self.segments_done or self.letters_done)

    @property
    def bytes(self) -> int:
        """What its new entries count."""
        return sum(
            len(entry.body) + ENTRY_BYTES for entries in (self.rows, self.segments, self.letters) for entry in entries
        )


class JournalError(FileError):
    """The journal file cannot be used now; the text says why, for people."""


class CorruptEntryError(Exception):
    """An entry is not in the journal, or its body is not what was written."""
