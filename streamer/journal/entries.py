"""The journal's records: rows, segments and dead letters, and the batch that is written in one transaction.

No files and no SQL in here. Numbers come from `Journal.number`; they give all entries one order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamer.journal.sqlite import FileError

ENTRY_BYTES: Final = 200
"""The bytes that an entry counts besides its body, for its columns and SQLite's overhead. See `Journal.bytes`."""


class Row(NamedTuple):
    """One delivery without an outcome yet.

    ``source`` and ``target`` are endpoints. ``attempts`` is negative, ``-1 - attempts``, if the message may have arrived: an
    earlier version then makes some more attempts. ``outgoing`` is the change of the sink (`codec.sink_change`), ``body`` a
    serialized `uprotocol.v1.UMessage`.
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
    """Many deliveries to one endpoint that were sent and are not confirmed, in one body (`streamer.journal.codec`)."""

    number: int
    target: str
    body: bytes


class Letter(NamedTuple):
    """A message that could not be delivered.

    ``id`` is the message's (16 bytes), ``ingress`` and ``target`` are endpoints (empty: none; without an ingress it cannot
    be sent again), ``code`` is a `UCode`, ``type`` a `UMessageType`; ``source`` and ``sink`` are UUris in text form (no
    sink: empty). ``body`` is the serialized `uprotocol.v1.UMessage`. Times in Unix milliseconds.
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

    @property
    def is_rejected(self) -> bool:
        """Whether the message was never accepted (in SQL: `schema.REJECTED`): any sender can cause such a letter."""
        return self.outcome == "rejected" or (self.outcome == "expired" and not self.route)


class Mark(NamedTuple):
    """The mark of a letter that is to be redriven: when that was requested, and its new TTL (`streamer.journal.letters`)."""

    number: int
    redrive_ms: int
    ttl_ms: int | None


class Facts(NamedTuple):
    """Statements of a file's owner about the file, by name. They replace earlier ones of the same names.

    ``generation`` is that of the file (`Journal.files_set_aside`): of another one, they are void.
    """

    generation: int
    values: Mapping[str, str]


class Renumbering(NamedTuple):
    """New numbers for even entries from ``even_from`` on, and odd ones from ``odd_from`` on (None: they keep theirs).

    They get ``first``, ``first + 2``, ..., in their order. All of these are above the numbers of all entries.
    """

    even_from: int | None
    odd_from: int | None
    first: int


class Kept(NamedTuple):
    """The numbers of entries that stay when all others are deleted.

    Those stay, too, that are even (``parity`` 0) or odd (1), from ``own_from`` on.
    """

    rows: set[int]
    segments: set[int]
    letters: set[int]
    parity: int
    own_from: int


@dataclass(slots=True)
class Batch:
    """Everything that one transaction writes. The lists that end in ``_done`` have the numbers of entries to delete.

    ``facts`` hold from this transaction on, together with earlier ones; None: no facts hold any more, because their owner
    does not know what was written. ``renumbered`` comes before everything else. With ``kept``, the batch has nothing else.

    Deletions come first. A row or a segment replaces the one with its number; a letter replaces the one with its id,
    source, sink and route. ``letters_unmarked`` has the numbers of letters that stay after a redrive: their mark is removed.
    ``letters_marked`` come last, and only on standby (`streamer.features.pair.mirror`).
    """

    rows: list[Row] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    rows_done: list[int] = field(default_factory=list)
    segments_done: list[int] = field(default_factory=list)
    letters_done: list[int] = field(default_factory=list)
    letters_unmarked: list[int] = field(default_factory=list)
    letters_marked: list[Mark] = field(default_factory=list)
    facts: Facts | None = None
    renumbered: Renumbering | None = None
    kept: Kept | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.is_urgent or self.rows_done or self.segments_done)

    @property
    def is_urgent(self) -> bool:
        """Whether the batch has more than deletions of rows and segments, which can wait."""
        changed = self.letters_done or self.letters_unmarked or self.letters_marked
        return bool(self.rows or self.segments or self.letters or changed)

    @property
    def bytes(self) -> int:
        """Return the bytes of the batch's new entries. See `ENTRY_BYTES`."""
        return sum(
            len(entry.body) + ENTRY_BYTES for entries in (self.rows, self.segments, self.letters) for entry in entries
        )


class JournalError(FileError):
    """The journal file cannot be used now; the text gives the reason."""


class CorruptEntryError(Exception):
    """An entry is not in the journal, or its body was changed."""


class MissingEntryError(CorruptEntryError):
    """There is no such entry: it was deleted."""
