"""How a batch gets into the file: deleted first, then written, counted exactly, all of it or nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.journal import batches, codec
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import ENTRY_BYTES, Batch, Letter
from streamer.journal.schema import JOURNAL, REJECTED
from streamer.journal.sqlite import FileForm
from streamer.journal.versions import build
from streamer.uprotocol.message import notification
from streamer.uprotocol.uri import UUri
from tests.examples import examples
from tests.unit.journal.harness import letter, row, segment

BOUNDS = LetterBounds(3, 10_000, 3, 10_000)
TOLD = "one\0two\\u0000 \N{SNOWMAN}\0"


class File:
    """A journal in memory. ``top`` is the highest number that was written."""

    def __init__(
        self, connection: sqlite3.Connection, bounds: LetterBounds = BOUNDS, form: FileForm = JOURNAL, is_set_up: bool = True
    ) -> None:
        build(connection, form)
        if is_set_up:
            batches.set_up(connection)
        self.connection = connection
        self.bounds = bounds
        self.top = 0

    def apply(self, batch: Batch) -> None:
        batches.apply(self.connection, batch, self.top, self.bounds)
        for entries in (batch.rows, batch.segments, batch.letters):
            self.top = max(self.top, max((entry[0] for entry in entries), default=0))

    def numbers(self, table: str) -> list[int]:
        return [number for (number,) in self.connection.execute(f"SELECT number FROM {table} ORDER BY number")]

    def body(self, table: str, number: int) -> bytes:
        ((body,),) = self.connection.execute(f"SELECT body FROM {table} WHERE number = ?", (number,))
        assert isinstance(body, bytes)
        return body

    @property
    def bytes(self) -> int:
        return batches.totals(self.connection).bytes

    @property
    def recounted(self) -> int:
        return sum(
            len(body) + ENTRY_BYTES
            for table in JOURNAL.tables
            for (body,) in self.connection.execute(f"SELECT body FROM {table}")
        )


def _columns(entry: Letter) -> tuple[object, ...]:
    """A row of the table."""
    return (*entry[:-1], crc32(entry.body), len(entry.body), entry.body, None, None)


@pytest.fixture
def file() -> Iterator[File]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield File(connection)


def test_entries_are_written_with_their_own_bodies(file: File) -> None:
    file.apply(
        Batch(rows=[row(1, b"a"), row(2, b""), row(3, b"ccc")], segments=[segment(4, b"dd")], letters=[letter(5, 9, b"e")])
    )
    assert [file.body("rows", number) for number in (1, 2, 3)] == [b"a", b"", b"ccc"]
    assert (file.body("segments", 4), file.body("letters", 5)) == (b"dd", b"e")
    (columns,) = file.connection.execute(
        "SELECT number, route, source, target, entered_ms, attempts, outgoing FROM rows LIMIT 1"
    )
    assert columns == row(1)[:-1]
    ((uuid,),) = file.connection.execute("SELECT id FROM letters")
    assert uuid == letter(5, 9).id


@settings(max_examples=examples(40))
@given(count=st.integers(1, 700), done=st.sets(st.integers(1, 1200)), again=st.sets(st.integers(1, 700), max_size=20))
def test_any_number_of_rows_is_written_and_any_of_them_deleted(count: int, done: set[int], again: set[int]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        file = File(connection)
        file.apply(Batch(rows=[row(number, b"%d" % number) for number in range(1, count + 1)]))
        rewritten = sorted(number for number in again if number <= count)
        file.apply(Batch(rows=[row(number, b"again") for number in rewritten], rows_done=sorted(done, reverse=True)))
        left = {number: b"%d" % number for number in range(1, count + 1) if number not in done}
        left |= dict.fromkeys(rewritten, b"again")
        assert dict(connection.execute("SELECT number, body FROM rows")) == left
        assert file.bytes == file.recounted


@pytest.mark.parametrize("name", ["text", "source", "sink"])
def test_what_a_stranger_wrote_is_kept_to_the_end(file: File, name: str) -> None:
    told: dict[str, Any] = {name: TOLD}
    nothing: dict[str, Any] = {name: ""}
    file.apply(Batch(letters=[letter(1, 1)._replace(**told), letter(2, 2, b"x")._replace(**nothing)]))
    assert [text for (text,) in file.connection.execute(f"SELECT {name} FROM letters")] == [TOLD, ""]
    assert [file.body("letters", number) for number in (1, 2)] == [b"letter", b"x"]


def test_a_text_that_is_no_unicode_leaves_the_letters_readable(file: File) -> None:
    file.apply(Batch(letters=[letter(1)._replace(text="no such file: \udcff")]))
    assert file.connection.execute("SELECT text FROM letters").fetchall() == [("no such file: \\udcff",)]


def test_what_is_done_is_deleted(file: File) -> None:
    file.apply(Batch(rows=[row(1), row(2)], segments=[segment(3), segment(4)], letters=[letter(5, 1), letter(6, 2)]))
    file.apply(Batch(rows_done=[1, 99], segments_done=[3], letters_done=[5]))
    assert [file.numbers(table) for table in ("rows", "segments", "letters")] == [[2], [4], [6]]


def test_an_entry_replaces_the_one_with_its_number(file: File) -> None:
    file.apply(Batch(rows=[row(1, b"old"), row(2)], segments=[segment(3, b"old")]))
    file.apply(Batch(rows=[row(1, b"new")], segments=[segment(3, b"new")]))
    assert (file.body("rows", 1), file.body("segments", 3)) == (b"new", b"new")
    assert file.bytes == file.recounted


def test_a_letter_replaces_the_one_of_the_same_message_on_the_same_route(file: File) -> None:
    file.apply(Batch(letters=[letter(1, 7, b"old"), letter(2, 7, b"other", route="side")]))
    file.apply(Batch(letters=[letter(3, 7, b"new")]))
    assert file.numbers("letters") == [2, 3]
    assert file.bytes == file.recounted


@pytest.mark.parametrize("other", [{"source": "//veh2/A/1/8000"}, {"sink": "//veh2/B/1/7"}, {"sink": ""}])
@pytest.mark.parametrize("outcome", ["dead_lettered", "rejected"])
def test_a_letter_replaces_none_of_another_sender_or_sink(file: File, other: dict[str, Any], outcome: str) -> None:
    first = letter(1, 7, b"first")._replace(sink="//cloud/B/1/7")
    file.apply(Batch(letters=[first]))
    file.apply(Batch(letters=[first._replace(number=2, outcome=outcome, **other)]))
    assert file.numbers("letters") == [1, 2]
    assert file.bytes == file.recounted


@pytest.mark.parametrize("is_full", [False, True])
def test_letters_of_a_file_that_was_written_before_are_told_apart_by_their_sender_from_now_on(is_full: bool) -> None:
    letters = JOURNAL.tables["letters"].replace("UNIQUE (id, route, source, sink)", "UNIQUE (id, route)")
    earlier = replace(JOURNAL, tables={**JOURNAL.tables, "letters": letters})
    first, forged = letter(1, 7, b"first" * 1000), letter(2, 7, b"second")._replace(source="//veh2/A/1/8000")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        before = File(connection, form=earlier, is_set_up=False)
        connection.execute(f"INSERT INTO letters VALUES ({', '.join('?' * 19)})", _columns(first))
        if is_full:
            ((pages,),) = connection.execute("PRAGMA page_count")
            connection.execute(f"PRAGMA max_page_count = {pages}")
        batches.set_up(connection)
        assert before.body("letters", 1) == first.body
        connection.execute("PRAGMA max_page_count = 1000000")
        if is_full:
            for name in ("VIEW batch", "TABLE totals"):
                connection.execute(f"DROP {name}")
            batches.set_up(connection)
        before.apply(Batch(letters=[forged]))
        assert before.numbers("letters") == [1, 2]
        assert before.bytes == before.recounted
        indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql NOT NULL")
        assert {name for (name,) in indexes} == {
            "letters_by_size",
            "letters_rejected",
            "letters_accepted",
            "letters_to_redrive",
        }


def test_every_change_is_counted_exactly(file: File) -> None:
    for batch in (
        Batch(rows=[row(1, b"a"), row(2, b"bb")], letters=[letter(3, 1)]),
        Batch(rows=[row(4)], rows_done=[1], segments=[segment(5, b"x" * 1000)]),
        Batch(segments_done=[5], letters_done=[3]),
        Batch(rows_done=[2, 2, 99]),
        Batch(rows_done=[4]),
    ):
        file.apply(batch)
        assert file.bytes == file.recounted
    assert file.bytes == 0


def test_the_oldest_letters_go_beyond_their_number(file: File) -> None:
    file.apply(Batch(letters=[letter(number, number) for number in range(1, 6)]))
    assert file.numbers("letters") == [3, 4, 5]
    assert batches.totals(file.connection).evicted == 2
    file.apply(Batch(letters=[letter(6, 6)]))
    assert file.numbers("letters") == [4, 5, 6]
    assert (batches.totals(file.connection).evicted, file.bytes) == (3, file.recounted)


def test_the_oldest_letters_go_beyond_their_bytes(file: File) -> None:
    file.bounds = LetterBounds(100, 3 * (ENTRY_BYTES + 100), 3, 10_000)
    file.apply(Batch(letters=[letter(number, number, b"x" * 100) for number in range(1, 5)]))
    assert file.numbers("letters") == [2, 3, 4]
    file.apply(Batch(letters=[letter(5, 5, b"x" * 300)]))
    assert file.numbers("letters") == [4, 5]


WHOLE = codec.pack(notification(1, UUri.parse("//veh1/A/1/8000"), UUri.parse("//cloud/A/1/0"), b"x" * 300))
PART = codec.without_payload(WHOLE)
SMALL = b"small"


@pytest.mark.parametrize(
    ("most", "body", "kept"),
    [
        (len(WHOLE), WHOLE, [WHOLE]),
        (len(WHOLE) - 1, WHOLE, [SMALL, PART]),
        (len(PART), WHOLE, [PART]),
        (len(PART) - 1, WHOLE, [SMALL]),
        (len(WHOLE) - 1, b"y" * len(WHOLE), [SMALL]),
    ],
    ids=["it fits", "it does not", "without its payload it does", "nor without its payload", "it cannot be read"],
)
@pytest.mark.parametrize("outcome", ["expired", "rejected"])
def test_a_letter_beyond_all_bounds_is_kept_without_its_payload_if_that_fits_and_evicts_nothing_if_not(
    file: File, most: int, body: bytes, kept: list[bytes], outcome: str
) -> None:
    own, other = ENTRY_BYTES + most, 100_000
    accepted = (3, own) if outcome == "expired" else (3, other)
    rejected = (3, own) if outcome == "rejected" else (3, other)
    file.bounds = LetterBounds(*accepted, *rejected)
    file.apply(Batch(letters=[letter(1, 1, SMALL, outcome=outcome)]))
    file.apply(Batch(letters=[letter(2, 2, body, outcome=outcome)]))
    assert [file.body("letters", number) for number in file.numbers("letters")] == kept
    assert file.bytes == file.recounted


def test_letters_of_what_was_never_accepted_push_out_only_each_other(file: File) -> None:
    file.apply(Batch(letters=[letter(number, number) for number in (1, 2, 3)]))
    flood = [letter(number, number, outcome="rejected", route="" if number % 2 else "r") for number in range(4, 10_050)]
    file.apply(Batch(letters=flood))
    file.apply(Batch(letters=[letter(10_050, 10_050, route="")]))
    assert file.numbers("letters") == [1, 2, 3, 10_048, 10_049, 10_050]
    assert batches.totals(file.connection).evicted == 10_047 - 3
    file.apply(Batch(letters=[letter(10_051, 10_051)]))
    assert file.numbers("letters") == [2, 3, 10_048, 10_049, 10_050, 10_051]
    assert file.bytes == file.recounted


def test_letters_of_what_was_never_accepted_have_their_own_bytes(file: File) -> None:
    file.bounds = LetterBounds(100, 10_000, 100, 2 * (ENTRY_BYTES + 100))
    file.apply(Batch(letters=[letter(number, number, b"x" * 100) for number in (1, 2, 3)]))
    file.apply(Batch(letters=[letter(number, number, b"x" * 100, outcome="rejected") for number in (4, 5, 6)]))
    assert file.numbers("letters") == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_letter_of_what_was_never_accepted_replaces_none_of_an_accepted_message(file: File, forged_first: bool) -> None:
    genuine, forged = letter(1, 7, b"genuine"), letter(2, 7, b"forged", outcome="rejected")
    file.apply(Batch(letters=[genuine]))
    file.apply(Batch(letters=[forged]))
    assert file.numbers("letters") == [1]
    later, again = letter(3, 8, b"genuine"), letter(4, 8, b"forged", outcome="rejected")
    file.apply(Batch(letters=[again, later] if forged_first else [later, again]))
    assert file.numbers("letters") == [1, 3]
    file.apply(Batch(letters=[letter(5, 9, outcome="rejected")]))
    file.apply(Batch(letters=[letter(6, 9, outcome="rejected")]))
    assert file.numbers("letters") == [1, 3, 6]
    assert file.bytes == file.recounted


@pytest.mark.parametrize(
    ("outcome", "route"), [(outcome, route) for outcome in ("rejected", "expired", "dead_lettered") for route in ("", "r")]
)
def test_the_file_and_the_entry_agree_on_what_was_never_accepted(file: File, outcome: str, route: str) -> None:
    entry = letter(1, 1, route=route, outcome=outcome)
    file.apply(Batch(letters=[entry]))
    ((is_rejected,),) = file.connection.execute(f"SELECT {REJECTED} FROM letters")
    assert bool(is_rejected) is entry.is_rejected


def test_a_file_that_was_written_before_has_its_letters_told_apart_without_reading_their_bodies(file: File) -> None:
    for name in ("letters_rejected", "letters_accepted"):
        file.connection.execute(f"DROP INDEX {name}")
    for name in ("VIEW batch", "TABLE totals"):
        file.connection.execute(f"DROP {name}")
    batches.set_up(file.connection)
    for kind, index in ((REJECTED, "letters_rejected"), (f"NOT {REJECTED}", "letters_accepted")):
        plan = file.connection.execute(f"EXPLAIN QUERY PLAN SELECT sum(size) FROM letters WHERE {kind}").fetchall()
        assert f"COVERING INDEX {index}" in plan[0][-1]


def test_no_letter_goes_while_none_comes(file: File) -> None:
    file.apply(Batch(letters=[letter(number, number) for number in range(1, 4)]))
    file.bounds = LetterBounds(1, 1, 3, 10_000)
    file.apply(Batch(rows=[row(4)]))
    assert file.numbers("letters") == [1, 2, 3]


def test_a_letter_that_was_asked_for_and_stays_is_marked_no_more(file: File) -> None:
    file.apply(Batch(letters=[letter(1, 1), letter(2, 2)]))
    file.connection.execute("UPDATE letters SET redrive = 1, redrive_ttl = 2")
    file.apply(Batch(letters_unmarked=[1]))
    marks = file.connection.execute("SELECT redrive, redrive_ttl FROM letters ORDER BY number").fetchall()
    assert marks == [(None, None), (1, 2)]


def test_a_batch_that_is_too_large_for_one_statement_is_written_in_one_transaction(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MAX_BLOB_BYTES", 100)
    file.apply(Batch(rows=[row(1, b"old")]))
    file.apply(Batch(rows=[row(2), row(3)], segments=[segment(4)], letters=[letter(5, 5)], rows_done=[1]))
    assert [file.numbers(table) for table in ("rows", "segments", "letters")] == [[2, 3], [4], [5]]
    assert file.bytes == file.recounted
    with pytest.raises(sqlite3.IntegrityError):
        file.apply(Batch(rows=[row(6), row(6)], rows_done=[2, 3]))
    assert file.numbers("rows") == [2, 3]


def test_letters_that_another_program_deleted_are_counted_anew(file: File) -> None:
    file.apply(Batch(letters=[letter(1, 1), letter(2, 2)]))
    file.connection.execute("DELETE FROM letters WHERE number = 1")
    batches.recount(file.connection)
    assert file.bytes == file.recounted


def test_what_is_in_the_file_when_it_is_opened_is_counted(file: File) -> None:
    file.apply(Batch(rows=[row(1)], letters=[letter(2, 2)]))
    for name in ("VIEW batch", "TABLE totals"):
        file.connection.execute(f"DROP {name}")
    batches.set_up(file.connection)
    assert file.bytes == file.recounted > 0
