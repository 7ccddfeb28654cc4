"""Whether a journal file is whole: every body is compared with its checksum."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamer.journal import check as check_module
from streamer.journal.check import check
from streamer.journal.entries import Batch
from streamer.journal.sqlite import CorruptFileError
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import execute, letter, row, segment


@pytest.fixture
def full(path: Path, harness: MakeHarness) -> Path:
    """A journal with all kinds of entries, some of them without a body."""
    made = harness().open()
    rows = [row(number, b"x" * number) for number in range(10)]
    made.write(Batch(rows=rows, segments=[segment(20), segment(21, b"")], letters=[letter(30, 1), letter(31, 2)]))
    made.close()
    return path


@pytest.fixture
def connection(full: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(full)) as connection:
        yield connection


def test_a_whole_file_passes(connection: sqlite3.Connection) -> None:
    check(connection)


@pytest.mark.parametrize("bounds", [("_PAGE_ENTRIES", 3), ("_PAGE_BYTES", 10)])
def test_a_whole_file_passes_in_pages_of_any_size(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, bounds: tuple[str, int]
) -> None:
    monkeypatch.setattr(check_module, *bounds)
    check(connection)


@pytest.mark.parametrize("bounds", [("_PAGE_ENTRIES", 3), ("_PAGE_BYTES", 10), ("_PAGE_ENTRIES", 500)])
@pytest.mark.parametrize(
    ("table", "number", "body"),
    [("rows", 3, b"xxy"), ("rows", 5, b"xxxxy"), ("rows", 9, b""), ("segments", 21, b"z"), ("letters", 30, b"lettre")],
)
def test_a_body_that_was_changed_is_found_wherever_it_is(
    connection: sqlite3.Connection, full: Path, monkeypatch: pytest.MonkeyPatch, table: str, number: int, body: bytes,
    bounds: tuple[str, int],
) -> None:  # fmt: skip
    monkeypatch.setattr(check_module, *bounds)
    execute(full, f"UPDATE {table} SET body = ? WHERE number = ?", body, number)
    with pytest.raises(CorruptFileError, match=f"{table} {number}: its body was changed"):
        check(connection)


@pytest.mark.parametrize("column", ["body", "crc"])
def test_a_body_that_is_missing_is_found(connection: sqlite3.Connection, full: Path, column: str) -> None:
    execute(full, f"UPDATE rows SET {column} = NULL WHERE number = 3")
    with pytest.raises(CorruptFileError, match="rows 3: its body is missing"):
        check(connection)
