"""Writes a transaction's changes to the journal file in few SQL statements, because every step of a statement is costly.

Python's sqlite3 releases the GIL and takes it again at every step of a statement. Beside a busy event loop that costs up to
a switch interval (0.5 ms) each time: with a step for every row, seconds. Here a statement inserts hundreds of rows. For
everything else, columns are passed as JSON, bodies and text from strangers as one blob, and deletions as ranges of numbers;
the triggers of a temporary view do the rest without the GIL. They also count the bytes of the entries, and evict dead
letters. A letter of a message that was never accepted does not replace one of an accepted message, whose id, addresses and
route it may claim.
"""

import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES, Batch, Kept, Letter, Renumbering, Row
from streamer.journal.schema import REJECTED, TABLES, complete
from streamer.journal.sqlite import transaction

logger = logging.getLogger("ustreamer.journal")

_MAX_BLOB_BYTES = 64 << 20
_ROWS_PER_STATEMENT = 256
_PAGE_NUMBERS = 5000

_SUM = f"ifnull(sum(length(body) + {ENTRY_BYTES}), 0)"
_LETTERS_SUM = f"ifnull(sum(size + {ENTRY_BYTES}), 0)"
_IN = "number IN (SELECT value FROM json_each({}))"
_SPANNED = "json_each({}) AS span CROSS JOIN {} AS entry WHERE entry.number BETWEEN span.value->>0 AND span.value->>1"
_ROWS_DONE = _SPANNED.format("NEW.rows_done", "rows")
_SEGMENTS_DONE = _SPANNED.format("NEW.segments_done", "segments")

_COUNT = """INSERT INTO totals
    SELECT (SELECT {sum} FROM rows) + (SELECT {sum} FROM segments), {letters}, NULL, NULL, 0 FROM letters"""
_SEAL = ""
"""The name of the fact by which a file is recognized: the bytes of its rows and segments, and its highest number."""

TOP = f"max({', '.join(f'ifnull((SELECT max(number) FROM {table}), 0)' for table in TABLES)})"
"""In SQL, the highest number in a file."""

_REJECTED_NOW = REJECTED.replace("outcome", "value->>5").replace("route", "value->>2")  # by the columns of a `Letter`


def _evict_up_to(kind: str, most: str, most_bytes: str) -> str:
    """Return the SQL for the number up to which letters of a kind are evicted, so that the rest is within bounds."""
    return f"""max(
        ifnull((SELECT number FROM letters WHERE {kind} ORDER BY number DESC LIMIT 1 OFFSET {most}), -1),
        CASE WHEN (SELECT {_LETTERS_SUM} FROM letters WHERE {kind}) > {most_bytes} THEN (SELECT max(number) FROM (
            SELECT number, sum(size + {ENTRY_BYTES}) OVER (ORDER BY number DESC) AS held FROM letters WHERE {kind}
        ) WHERE held > {most_bytes}) ELSE -1 END)"""


def _text(start: str, size: str) -> str:
    """Return the SQL for a text of another program, passed among the bodies: SQLite ends a text from JSON at a NUL."""
    return f"CAST(substr(NEW.bodies, {start}, {size}) AS TEXT)"


_SOURCE, _SINK = _text("value->>16", "value->>12"), _text("value->>17", "value->>13")
_EVICTED = f"number <= (SELECT evict_up_to FROM totals) AND NOT {REJECTED}"
_EVICTED_REJECTED = f"number <= (SELECT evict_rejected_up_to FROM totals) AND {REJECTED}"

_SETUP = (
    """CREATE TEMP TABLE totals (
        bytes INTEGER, letter_bytes INTEGER, evict_up_to INTEGER, evict_rejected_up_to INTEGER, evicted INTEGER
    )""",
    _COUNT.format(sum=_SUM, letters=_LETTERS_SUM),
    """CREATE TEMP VIEW batch AS SELECT 0 AS bodies, 0 AS segments, 0 AS letters,
        0 AS rows_done, 0 AS segments_done, 0 AS letters_done, 0 AS letters_unmarked, 0 AS added, 0 AS max_letters,
        0 AS max_bytes, 0 AS max_rejected, 0 AS max_rejected_bytes, '{}' AS facts, 0 AS top""",
    f"""CREATE TEMP TRIGGER apply_batch INSTEAD OF INSERT ON batch BEGIN
        UPDATE totals SET bytes = bytes + NEW.added
            - (SELECT {_SUM} FROM {_ROWS_DONE}) - (SELECT {_SUM} FROM {_SEGMENTS_DONE});
        DELETE FROM rows WHERE number IN (SELECT entry.number FROM {_ROWS_DONE});
        DELETE FROM segments WHERE number IN (SELECT entry.number FROM {_SEGMENTS_DONE});
        DELETE FROM letters WHERE {_IN.format("NEW.letters_done")};
        UPDATE letters SET redrive = NULL, redrive_ttl = NULL WHERE {_IN.format("NEW.letters_unmarked")};
        INSERT INTO segments SELECT value->>0, value->>1, value->>2,
            substr(NEW.bodies, value->>3, value->>4) FROM json_each(NEW.segments);
        INSERT OR REPLACE INTO letters SELECT value->>0, substr(NEW.bodies, value->>1, 16), value->>2, value->>3,
            value->>4, value->>5, value->>6, {_text("value->>15", "value->>7")}, value->>8, value->>9, value->>10,
            value->>11, {_SOURCE}, {_SINK}, value->>14, value->>19, substr(NEW.bodies, value->>18, value->>19), NULL, NULL
            FROM json_each(NEW.letters) WHERE NOT ({_REJECTED_NOW} AND EXISTS (
                SELECT 1 FROM letters WHERE id = substr(NEW.bodies, value->>1, 16) AND route = value->>2
                    AND source = {_SOURCE} AND sink = {_SINK} AND NOT {REJECTED}
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
        DELETE FROM facts WHERE NEW.facts IS NULL;
        INSERT OR REPLACE INTO facts SELECT key, value FROM json_each(NEW.facts);
        INSERT OR REPLACE INTO facts SELECT '{_SEAL}', bytes || ' ' || max(NEW.top, {TOP}) FROM totals
            WHERE EXISTS (SELECT 1 FROM facts);
    END""",
)
_APPLY = "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NO_CHANGE = "{}"  # of facts
_MARK = "UPDATE letters SET redrive = ?, redrive_ttl = ? WHERE number = ?"
_TOTALS = "SELECT bytes + letter_bytes, evicted FROM totals"
_TEXTS = tuple(map(Letter._fields.index, ("text", "source", "sink")))
_to_json = json.JSONEncoder(separators=(",", ":")).encode


class LetterBounds(NamedTuple):
    """The most dead letters, and bytes of them, in the file; beyond that the oldest are evicted.

    Letters of messages that were never accepted have bounds of their own, so that they cannot evict the others.
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
    complete(connection)
    for statement in _SETUP:
        connection.execute(statement)


def recount(connection: sqlite3.Connection) -> None:
    """Count the bytes of letters again after they were changed without `apply`. Raises sqlite3.Error."""
    connection.execute(f"UPDATE totals SET letter_bytes = (SELECT {_LETTERS_SUM} FROM letters)")


def totals(connection: sqlite3.Connection) -> Totals:
    """Return the totals after the last commit. Raises sqlite3.Error."""
    return Totals(*connection.execute(_TOTALS).fetchone())


def facts(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the facts that hold; none if somebody has added entries without them, as earlier versions do.

    Raises sqlite3.Error.
    """
    try:
        found = dict(connection.execute("SELECT name, value FROM facts"))
    except sqlite3.OperationalError:  # the disk was full when the table was to be added
        return {}
    sealed_bytes, _, sealed_top = found.pop(_SEAL, "").partition(" ")
    held, top = connection.execute(f"SELECT bytes, {TOP} FROM totals").fetchone()
    return found if sealed_bytes == str(held) and top <= int(sealed_top) else {}


def apply(
    connection: sqlite3.Connection, batch: Batch, top: int, bounds: LetterBounds, changed: Mapping[str, str] | None = None
) -> None:
    """Write a batch in one transaction; ``top`` is the highest number in the file. Raises sqlite3.Error.

    ``changed``: the facts that change; None: none hold any more.
    """
    batch.letters = [fitting for letter in batch.letters if (fitting := _that_fits(letter, bounds)) is not None]
    parts = [_parameters(part, top, bounds) for part in _parts(batch)]
    highest = max((row.number for row in batch.rows), default=0)
    last = None if changed is None else _to_json(changed)
    parts = [*((*part, _NO_CHANGE, highest) for part in parts[:-1]), (*parts[-1], last, highest)]
    if len(parts) == 1 and not batch.rows and not batch.letters_marked and batch.renumbered is None:
        connection.execute(_APPLY, parts[0])
        return
    with transaction(connection):
        if batch.renumbered is not None:
            _renumber(connection, batch.renumbered)
        for part in parts:
            connection.execute(_APPLY, part)
        _insert(connection, batch.rows, _ROWS_PER_STATEMENT if batch.bytes <= _MAX_BLOB_BYTES else 1)
        connection.executemany(_MARK, [(mark.redrive_ms, mark.ttl_ms, mark.number) for mark in batch.letters_marked])


def _renumber(connection: sqlite3.Connection, wanted: Renumbering) -> None:
    """Give entries new numbers. Few statements do it, however many entries there are."""
    is_chosen = "(number % 2 = 0 AND number >= ?1) OR (number % 2 <> 0 AND number >= ?2)"
    union = " UNION ALL ".join(f"SELECT number FROM {table} WHERE {is_chosen}" for table in TABLES)
    connection.execute("CREATE TEMP TABLE renumbered (number INTEGER PRIMARY KEY, new INTEGER)")
    connection.execute(
        f"""INSERT INTO renumbered SELECT number, ?3 + 2 * (row_number() OVER (ORDER BY number) - 1) FROM ({union})""",
        (wanted.even_from, wanted.odd_from, wanted.first),
    )
    for table in TABLES:
        new = f"(SELECT new FROM renumbered WHERE renumbered.number = {table}.number)"
        if table == "letters":  # a key that is there already cannot be inserted
            bounds = wanted.even_from, wanted.odd_from
            connection.execute(f"UPDATE {table} SET number = {new} WHERE {is_chosen}", bounds)
        else:  # a third of the time that an update takes
            columns = ", ".join(column[1] for column in connection.execute(f"PRAGMA table_info({table})"))
            others = columns.removeprefix("number, ")
            connection.execute(
                f"""INSERT INTO {table} ({columns}) SELECT new, {others} FROM renumbered
                CROSS JOIN {table} USING (number) ORDER BY renumbered.number"""
            )
            connection.execute(f"DELETE FROM {table} WHERE number IN (SELECT number FROM renumbered)")
    connection.execute("DROP TABLE renumbered")


def unnamed(connection: sqlite3.Connection, kept: Kept) -> Batch:
    """Return the deletions of all entries but those that are kept. Few statements read them. Raises sqlite3.Error."""
    batch = Batch()
    for table in TABLES:
        named: frozenset[int] | set[int] = getattr(kept, table)
        gone: list[int] = []
        query = f"""SELECT json_group_array(number) FROM (SELECT number FROM {table} WHERE number > ? AND
            NOT (number % 2 = ? AND number >= ?) ORDER BY number LIMIT {_PAGE_NUMBERS})"""
        after = -(1 << 63)
        while page := json.loads(connection.execute(query, (after, kept.parity, kept.own_from)).fetchone()[0]):
            after = page[-1]
            gone += [number for number in page if number not in named]
        getattr(batch, f"{table}_done").extend(gone)
    return batch


def stranger(connection: sqlite3.Connection, batch: Batch, above: int) -> str:
    """Name an entry in the file that another program has written, and that the batch would replace; empty if there is none.

    ``above``: the highest number that this process has written or found. An entry above it is its own only if a transaction
    that has reported an error was written all the same: then it is equal to that of the batch. Raises sqlite3.Error.
    """
    for table, column, entries in (
        ("rows", "body", batch.rows),
        ("segments", "body", batch.segments),
        ("letters", "id", batch.letters),
    ):
        own = {entry.number: getattr(entry, column) for entry in entries if entry.number > above}
        query = f"SELECT number, {column} FROM {table} WHERE {_IN.format('?')}"
        for number, found in connection.execute(query, (_to_json(list(own)),)) if own else ():
            if found != own[number]:
                return f"{table} {number}"
    return ""


def _that_fits(letter: Letter, bounds: LetterBounds) -> Letter | None:
    """Return the letter; without its payload, or None, if it alone is beyond the bounds and would evict all others."""
    most = bounds.max_rejected_bytes if letter.is_rejected else bounds.max_bytes
    if len(letter.body) + ENTRY_BYTES <= most:
        return letter
    logger.warning("letter_too_large id=%s bytes=%d most_bytes=%d", letter.id.hex(), len(letter.body), most)
    try:
        part = letter._replace(ingress="", body=codec.without_payload(letter.body))
    except codec.UnreadableError:
        return None
    return part if len(part.body) + ENTRY_BYTES <= most else None


def _insert(connection: sqlite3.Connection, rows: list[Row], size: int) -> None:
    """Write rows, ``size`` per statement; the rest with half of that, and so on."""
    start = 0
    while start < len(rows):
        if len(rows) - start < size:
            size >>= 1
            continue
        values: list[object] = []
        for number, route, source, target, entered_ms, attempts, outgoing, body in rows[start : start + size]:
            values += (number, route, source, target, entered_ms, attempts, outgoing, crc32(body), body)
        connection.execute(_insert_statement(size), values)
        start += size


@cache
def _insert_statement(size: int) -> str:
    return "INSERT INTO rows VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * size)


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the numbers as ranges (first, last)."""
    spans: list[tuple[int, int]] = []
    if not numbers:
        return spans
    numbers = sorted(numbers)
    first = last = numbers[0]
    for number in numbers:
        if number > last + 1:
            spans.append((first, last))
            first = number
        last = number
    spans.append((first, last))
    return spans


def _parts(batch: Batch) -> Iterator[Batch]:
    """Yield the batch, without its rows, in parts whose bodies fit into one blob. Deletions come first."""
    if batch.bytes <= _MAX_BLOB_BYTES:
        yield batch
        return
    yield replace(batch, segments=[], letters=[])
    for segment in batch.segments:
        yield Batch(segments=[segment])
    for letter in batch.letters:
        yield Batch(letters=[letter])


def _parameters(batch: Batch, top: int, bounds: LetterBounds) -> tuple[object, ...]:
    bodies: list[bytes] = []
    at, added = 1, 0  # substr counts from 1
    segments: list[tuple[object, ...]] = []
    letters: list[tuple[object, ...]] = []
    rows_done, segments_done = batch.rows_done, batch.segments_done
    for row in batch.rows:
        added += len(row.body) + ENTRY_BYTES
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
    for letter in sorted(batch.letters, key=lambda letter: not letter.is_rejected):  # accepted ones last, to replace others
        texts = [text.encode(errors="backslashreplace") for text in (letter.text, letter.source, letter.sink)]
        columns = list(letter[2:-1])
        for column, text in zip(_TEXTS, texts, strict=True):
            columns[column - 2] = len(text)
        parts = [letter.id, *texts, letter.body]
        starts = list(accumulate(map(len, parts), initial=at))
        letters.append((letter.number, at, *columns, crc32(letter.body), *starts[1:-1], len(letter.body)))
        bodies += parts
        at = starts[-1]
    return (
        b"".join(bodies) + b"\0",  # substr of nothing would be NULL
        _to_json(segments),
        _to_json(letters),
        _to_json(_spans(rows_done)),
        _to_json(_spans(segments_done)),
        _to_json(batch.letters_done),
        _to_json(batch.letters_unmarked),
        added,
        *bounds,
    )
