"""Writes a batch to the file in one statement with one step.

Python's sqlite3 releases the GIL and takes it again at every step of a statement. Beside a busy event loop that costs up to
a switch interval (5 ms) each time: a step for every row would cost seconds. Here all columns are passed as JSON, all bodies
as one blob, and the triggers of a temporary view do the rest without the GIL. They also count the bytes of the entries, and
evict dead letters. A letter of a message that was never accepted does not replace one of an accepted message, whose id and
route it may claim.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from zlib import crc32

from streamer.journal.entries import ENTRY_BYTES, Batch, Letter, Row, Segment
from streamer.journal.schema import LETTER_INDEXES, REJECTED
from streamer.journal.sqlite import transaction

_MAX_BLOB_BYTES = 64 << 20

_SUM = f"ifnull(sum(length(body) + {ENTRY_BYTES}), 0)"
_LETTERS_SUM = f"ifnull(sum(size + {ENTRY_BYTES}), 0)"
_IN = "number IN (SELECT value FROM json_each({}))"

_COUNT = """INSERT INTO totals
    SELECT (SELECT {sum} FROM rows) + (SELECT {sum} FROM segments), {letters}, NULL, NULL, 0 FROM letters"""
_REJECTED_NOW = REJECTED.replace("outcome", "value->>5").replace("route", "value->>2")  # by the columns of a `Letter`


def _evict_up_to(kind: str, most: str, most_bytes: str) -> str:
    """The number up to which the letters of a kind are evicted: the oldest ones, as far as they are beyond the bounds."""
    return f"""max(
        ifnull((SELECT number FROM letters WHERE {kind} ORDER BY number DESC LIMIT 1 OFFSET {most}), -1),
        ifnull((SELECT max(number) FROM (
            SELECT number, sum(size + {ENTRY_BYTES}) OVER (ORDER BY number DESC) AS held FROM letters WHERE {kind}
        ) WHERE held > {most_bytes}), -1))"""


_EVICTED = f"number <= (SELECT evict_up_to FROM totals) AND NOT {REJECTED}"
_EVICTED_REJECTED = f"number <= (SELECT evict_rejected_up_to FROM totals) AND {REJECTED}"

_SETUP = (
    """CREATE TEMP TABLE totals (
        bytes INTEGER, letter_bytes INTEGER, evict_up_to INTEGER, evict_rejected_up_to INTEGER, evicted INTEGER
    )""",
    _COUNT.format(sum=_SUM, letters=_LETTERS_SUM),
    """CREATE TEMP VIEW batch AS SELECT 0 AS bodies, 0 AS rows, 0 AS segments, 0 AS letters,
        0 AS rows_done, 0 AS segments_done, 0 AS letters_done, 0 AS letters_kept, 0 AS added, 0 AS max_letters,
        0 AS max_bytes, 0 AS max_rejected, 0 AS max_rejected_bytes""",
    # Other programs delete letters too, which goes unnoticed here: letters are counted anew whenever some are written.
    f"""CREATE TEMP TRIGGER apply_batch INSTEAD OF INSERT ON batch BEGIN
        UPDATE totals SET bytes = bytes + NEW.added
            - (SELECT {_SUM} FROM rows WHERE {_IN.format("NEW.rows_done")})
            - (SELECT {_SUM} FROM segments WHERE {_IN.format("NEW.segments_done")});
        DELETE FROM rows WHERE {_IN.format("NEW.rows_done")};
        DELETE FROM segments WHERE {_IN.format("NEW.segments_done")};
        DELETE FROM letters WHERE {_IN.format("NEW.letters_done")};
        UPDATE letters SET redrive = NULL, redrive_ttl = NULL WHERE {_IN.format("NEW.letters_kept")};
        INSERT INTO rows SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7,
            substr(NEW.bodies, value->>8, value->>9) FROM json_each(NEW.rows);
        INSERT INTO segments SELECT value->>0, value->>1, value->>2,
            substr(NEW.bodies, value->>3, value->>4) FROM json_each(NEW.segments);
        INSERT OR REPLACE INTO letters SELECT value->>0, substr(NEW.bodies, value->>1, 16), value->>2, value->>3,
            value->>4, value->>5, value->>6, value->>7, value->>8, value->>9, value->>10, value->>11, value->>12,
            value->>13, value->>14, value->>16, substr(NEW.bodies, value->>15, value->>16), NULL, NULL
            FROM json_each(NEW.letters) WHERE NOT ({_REJECTED_NOW} AND EXISTS (
                SELECT 1 FROM letters WHERE id = substr(NEW.bodies, value->>1, 16) AND route = value->>2 AND NOT {REJECTED}
            ));
        UPDATE totals SET
            evict_up_to = {_evict_up_to(f"NOT {REJECTED}", "NEW.max_letters", "NEW.max_bytes")},
            evict_rejected_up_to = {_evict_up_to(REJECTED, "NEW.max_rejected", "NEW.max_rejected_bytes")}
            WHERE NEW.letters <> '[]';
        UPDATE totals SET evicted = evicted + (SELECT count(*) FROM letters WHERE {_EVICTED}) + (
            SELECT count(*) FROM letters WHERE {_EVICTED_REJECTED}
        ) WHERE NEW.letters <> '[]';
        DELETE FROM letters WHERE NEW.letters <> '[]' AND {_EVICTED};
        DELETE FROM letters WHERE NEW.letters <> '[]' AND {_EVICTED_REJECTED};
        UPDATE totals SET letter_bytes = (SELECT {_LETTERS_SUM} FROM letters)
            WHERE NEW.letters <> '[]' OR NEW.letters_done <> '[]';
    END""",
)
_APPLY = "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TOTALS = "SELECT bytes + letter_bytes, evicted FROM totals"
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class LetterBounds(NamedTuple):
    """How many dead letters the file keeps; beyond that the oldest are evicted.

    Letters of messages that were never accepted have bounds of their own, so that nobody can push out the others.
    """

    max_letters: int
    max_bytes: int
    max_rejected: int
    max_rejected_bytes: int


class Totals(NamedTuple):
    """The bytes of all entries (see `ENTRY_BYTES`), and how many letters were evicted since the connection was set up."""

    bytes: int
    evicted: int


def set_up(connection: sqlite3.Connection) -> None:
    """Prepare a connection for `apply`, and count the entries in the file. Raises sqlite3.Error."""
    for statement in _SETUP:
        connection.execute(statement)
    with suppress(sqlite3.OperationalError):  # the disk may be full; an older file works without them
        for index in LETTER_INDEXES:
            connection.execute(index)


def recount(connection: sqlite3.Connection) -> None:
    """Count again, after another program has changed the file. Raises sqlite3.Error."""
    connection.execute(f"UPDATE totals SET letter_bytes = (SELECT {_LETTERS_SUM} FROM letters)")


def totals(connection: sqlite3.Connection) -> Totals:
    """The totals after the last commit. Raises sqlite3.Error."""
    return Totals(*connection.execute(_TOTALS).fetchone())


def apply(connection: sqlite3.Connection, batch: Batch, top: int, bounds: LetterBounds) -> None:
    """Write a batch in one transaction; ``top`` is the highest number in the file. Raises sqlite3.Error."""
    parts = [_parameters(part, top, bounds) for part in _parts(batch)]
    if len(parts) == 1:
        connection.execute(_APPLY, parts[0])
        return
    with transaction(connection):
        for part in parts:
            connection.execute(_APPLY, part)


def _parts(batch: Batch) -> Iterator[Batch]:
    """The batch in parts whose bodies fit into one blob. Deletions come first."""
    if batch.bytes <= _MAX_BLOB_BYTES:
        yield batch
        return
    yield replace(batch, rows=[], segments=[], letters=[])
    for entries in (batch.rows, batch.segments, batch.letters):
        for entry in entries:
            yield _alone(entry)


def _alone(entry: Row | Segment | Letter) -> Batch:
    if isinstance(entry, Row):
        return Batch(rows=[entry])
    return Batch(segments=[entry]) if isinstance(entry, Segment) else Batch(letters=[entry])


def _parameters(batch: Batch, top: int, bounds: LetterBounds) -> tuple[object, ...]:
    bodies: list[bytes] = []
    at, added = 1, 0  # substr counts from 1
    rows: list[tuple[object, ...]] = []
    segments: list[tuple[object, ...]] = []
    letters: list[tuple[object, ...]] = []
    rows_done, segments_done = batch.rows_done, batch.segments_done
    for row in batch.rows:
        body = row.body
        size = len(body)
        rows.append((*row[:-1], crc32(body), at, size))
        bodies.append(body)
        at += size
    added += at - 1 + ENTRY_BYTES * len(rows)
    if batch.rows and min(batch.rows)[0] <= top:
        rows_done = rows_done + [row.number for row in batch.rows if row.number <= top]
    if batch.segments:
        start = at
        for segment in batch.segments:
            body = segment.body
            size = len(body)
            segments.append((segment.number, segment.target, crc32(body), at, size))
            bodies.append(body)
            at += size
        added += at - start + ENTRY_BYTES * len(segments)
        segments_done = segments_done + [segment.number for segment in batch.segments if segment.number <= top]
    for letter in sorted(batch.letters, key=lambda letter: not letter.is_rejected):  # the others replace them
        number, uuid, *columns, body = letter
        size = len(body)
        letters.append((number, at, *columns, crc32(body), at + 16, size))
        bodies += (uuid, body)
        at += 16 + size
    return (
        b"".join(bodies) + b"\0",  # substr of nothing would be NULL
        _to_json(rows),
        _to_json(segments),
        _to_json(letters),
        _to_json(rows_done),
        _to_json(segments_done),
        _to_json(batch.letters_done),
        _to_json(batch.letters_kept),
        added,
        *bounds,
    )
