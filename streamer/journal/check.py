"""Checks whether a journal file is intact: its structure, by SQLite's own check, and every body, by its CRC."""

import json
import sqlite3
from collections.abc import Iterator
from zlib import crc32

from streamer.journal.schema import TABLES
from streamer.journal.sqlite import CorruptFileError, check_structure

_PAGE_ENTRIES = 500
_PAGE_BYTES = 4 << 20

Found = tuple[int, int, int]
"""Number, CRC and length of a body."""


def check(connection: sqlite3.Connection) -> None:
    """Check the file. Raises `CorruptFileError` for the first fault found, and sqlite3.Error."""
    check_structure(connection, "integrity_check(letters)")
    for table in TABLES:
        for page in _pages(connection, table):
            if not _is_whole(connection, table, page):
                _check_each(connection, table, page)


def _pages(connection: sqlite3.Connection, table: str) -> Iterator[list[Found]]:
    query = f"""SELECT json_group_array(json_array(number, crc, size)) FROM
        (SELECT number, crc, length(body) AS size FROM {table} WHERE number > ? ORDER BY number LIMIT {_PAGE_ENTRIES})"""
    after = -(1 << 63)
    while found := json.loads(connection.execute(query, (after,)).fetchone()[0]):
        after = found[-1][0]
        page: list[Found] = []
        held = 0
        for number, crc, size in found:
            if size is None or crc is None:
                raise CorruptFileError(f"{table} {number}: its body is missing")
            if page and held + size > _PAGE_BYTES:
                yield page
                page, held = [], 0
            page.append((number, crc, size))
            held += size
        yield page


def _is_whole(connection: sqlite3.Connection, table: str, page: list[Found]) -> bool:
    """Whether all bodies of a page are whole. They are read in one step, for the reason in `streamer.journal.batches`."""
    query = f"""SELECT CAST(group_concat(body, '') AS BLOB) FROM
        (SELECT body FROM {table} WHERE number BETWEEN ? AND ? ORDER BY number)"""
    (bodies,) = connection.execute(query, (page[0][0], page[-1][0])).fetchone()
    view = memoryview(bodies or b"")
    if len(view) != sum(size for _, _, size in page):
        return False
    at = 0
    for _, crc, size in page:
        if crc32(view[at : at + size]) != crc:
            return False
        at += size
    return True


def _check_each(connection: sqlite3.Connection, table: str, page: list[Found]) -> None:
    for number, crc, _ in page:
        (body,) = connection.execute(f"SELECT body FROM {table} WHERE number = ?", (number,)).fetchone()
        if crc32(body) != crc:
            raise CorruptFileError(f"{table} {number}: its body was changed")
