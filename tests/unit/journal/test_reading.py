"""Reading the journal beside its writer: in order, as far as it was when it was opened, and nothing false."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.journal import reading
from streamer.journal.entries import Batch, CorruptEntryError, JournalError
from streamer.journal.reading import Reader
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import JournalHarness, execute, row, segment


class Generation:
    """Counts the files that took the place of another."""

    def __init__(self) -> None:
        self.number = 0


@pytest.fixture
def generation() -> Generation:
    return Generation()


@pytest.fixture
def journal(harness: MakeHarness) -> JournalHarness:
    made = harness().open()
    made.write(Batch(rows=[row(number, b"%d" % number) for number in (1, 2, 5)], segments=[segment(3), segment(4)]))
    return made


@pytest.fixture
def reader(journal: JournalHarness, path: Path, generation: Generation) -> Iterator[Reader]:
    reader = Reader(path, lambda: generation.number)
    yield reader
    reader.close()


def test_entries_are_read_in_the_order_of_their_numbers_up_to_one(reader: Reader) -> None:
    assert list(reader.rows(5)) == [row(number, b"%d" % number) for number in (1, 2, 5)]
    assert [each.number for each in reader.rows(4)] == [1, 2]
    assert list(reader.segments(3)) == [segment(3)]


@pytest.mark.parametrize("bound", ["_PAGE_ENTRIES", "_PAGE_BYTES"])
def test_pages_of_any_size_hold_every_entry_once(reader: Reader, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(reading, bound, 1)
    assert [each.number for each in reader.rows(5)] == [1, 2, 5]


def test_entries_that_are_written_meanwhile_are_read_as_well_if_they_are_below_the_bound(
    reader: Reader, journal: JournalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAGE_ENTRIES", 1)
    found = reader.rows(10)
    assert next(found).number == 1
    journal.write(Batch(rows=[row(7), row(20)], rows_done=[2]))
    assert [each.number for each in found] == [5, 7]


def test_single_bodies_are_read(reader: Reader) -> None:
    assert (reader.row_body(2), reader.segment_body(3)) == (b"2", b"segment")


def test_a_body_that_is_not_there_or_damaged_is_told(reader: Reader, path: Path) -> None:
    execute(path, "UPDATE rows SET body = ? WHERE number = 2", b"?")
    for number, text in ((99, "not in the journal"), (2, "was changed")):
        with pytest.raises(CorruptEntryError, match=text):
            reader.row_body(number)
    assert reader.entries_corrupt == 1


def test_a_damaged_entry_is_left_out_counted_and_logged(
    reader: Reader, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(path, "UPDATE rows SET body = ? WHERE number = 2", b"?")
    assert [each.number for each in reader.rows(5)] == [1, 5]
    assert reader.entries_corrupt == 1
    assert [record.getMessage() for record in caplog.records] == [f"journal_entry_damaged file={path} number=2"]


def test_a_file_that_cannot_be_read_now_is_told(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "nothing.db", lambda: 0)
    with pytest.raises(JournalError):
        reader.row_body(1)


def test_a_file_that_took_the_place_of_another_is_opened_when_it_is_told_so(
    reader: Reader, journal: JournalHarness, harness: MakeHarness, path: Path, generation: Generation
) -> None:
    assert reader.row_body(1) == b"1"
    journal.close()
    other = harness(path.with_name("other.db")).open()
    other.write(Batch(rows=[row(1, b"other")]))
    other.close()
    path.with_name("other.db").replace(path)
    for name in ("journal.db-wal", "journal.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    assert reader.row_body(1) == b"1"
    generation.number = 1
    assert reader.row_body(1) == b"other"


def test_a_reader_that_was_closed_opens_the_file_again(reader: Reader) -> None:
    reader.close()
    reader.close()
    assert reader.row_body(1) == b"1"
