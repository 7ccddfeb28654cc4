"""Dead letters in the file, for other programs: found by what is asked, read whole, deleted and marked by number."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from streamer.journal import letters as letters_module
from streamer.journal.entries import Batch, CorruptEntryError, JournalError
from streamer.journal.letter_json import summary_json
from streamer.journal.letters import LetterChange, LetterFilter, open_letters
from streamer.journal.schema import JOURNAL
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import execute, letter

LETTERS = [
    letter(1, 1, b"first"),
    letter(2, 2, route="other")._replace(code=int(UCode.UNAVAILABLE), last_ms=5000),
    letter(3, 3)._replace(source="//veh2/A/1/8000", sink="//cloud/B/1/7"),
    letter(4, 4)._replace(source="nonsense", sink="//cloud/B/1/7"),
]


@pytest.fixture
def full(path: Path, harness: MakeHarness) -> Path:
    """A journal whose daemon has stopped."""
    daemon = harness().open()
    daemon.write(Batch(letters=LETTERS))
    daemon.close()
    return path


def found(path: Path, **selected: object) -> list[int]:
    with open_letters(path) as letters:
        return [each.number for each in letters.find(LetterFilter(**selected))]  # type: ignore[arg-type]


def test_a_journal_of_an_earlier_version_is_left_for_the_daemon(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(JOURNAL, version=JOURNAL.version + 1, migrations={JOURNAL.version: lambda connection: None})
    monkeypatch.setattr(letters_module, "JOURNAL", later)
    with pytest.raises(JournalError) as caught, open_letters(full):
        pass
    assert str(caught.value) == f"{full}: an earlier version wrote it; the daemon brings it up to date when it starts"
    assert not caught.value.is_newer


def test_all_letters_are_found_in_their_order(full: Path) -> None:
    assert found(full) == [1, 2, 3, 4]


def test_letters_are_found_by_pages_in_either_order(full: Path) -> None:
    with open_letters(full) as letters:

        def page(after: int | None, newest_first: bool) -> list[int]:
            selected = LetterFilter(until_ms=4000)  # all but the second
            return [each.number for each in letters.find(selected, after, 2, newest_first=newest_first)]

        assert [page(after, newest_first=False) for after in (None, 3, 4)] == [[1, 3], [4], []]
        assert [page(after, newest_first=True) for after in (None, 3, 1)] == [[4, 3], [1], []]


@pytest.mark.parametrize(
    ("selected", "numbers"),
    [
        ({"id": (2).to_bytes(16, "big")}, [2]),
        ({"route": "other"}, [2]),
        ({"code": UCode.UNAVAILABLE}, [2]),
        ({"until_ms": 2000}, [1, 3, 4]),
        ({"since_ms": 2001}, [2]),
        ({"since_ms": 2000, "until_ms": 2000}, [1, 3, 4]),
        ({"source": UUri.parse("//veh1/FFFFFFFF/FF/FFFF")}, [1, 2]),
        ({"source": UUri.parse("//veh2/A/1/8000")}, [3]),
        ({"sink": UUri.parse("//cloud/FFFFFFFF/FF/FFFF")}, [3, 4]),
        ({"sink": UUri.parse("//cloud/FFFFFFFF/FF/FFFF"), "source": UUri.parse("//*/FFFFFFFF/FF/FFFF")}, [3]),
        ({"route": "nobody"}, []),
    ],
)
def test_letters_are_selected_by_all_that_is_asked(full: Path, selected: dict[str, object], numbers: list[int]) -> None:
    assert found(full, **selected) == numbers


def test_a_letter_is_listed_with_everything_but_its_body(full: Path) -> None:
    with open_letters(full) as letters:
        first = letters.find(LetterFilter())[0]
    expected = LETTERS[0]
    assert first[:14] == expected[:14]
    assert (first.size, first.redrive_ms, first.redrive_ttl_ms) == (len(expected.body), None, None)


@pytest.mark.parametrize(
    "column",
    [
        "id",
        "route",
        "ingress",
        "target",
        "outcome",
        "code",
        "text",
        "attempts",
        "first_ms",
        "last_ms",
        "type",
        "source",
        "sink",
        "size",
    ],
)
def test_a_letter_that_has_lost_a_value_is_listed_with_the_others(full: Path, column: str) -> None:
    execute(full, f"UPDATE letters SET {column} = NULL WHERE number = 2")
    with open_letters(full) as letters:
        told = [summary_json(each, 10_000) for each in letters.find(LetterFilter())]
    assert [each["number"] for each in told] == [1, 2, 3, 4]
    assert all(None not in (each["id"], each["source"], each["text"], each["size"]) for each in told)


def test_a_body_is_read_whole_or_not_at_all(full: Path) -> None:
    with open_letters(full) as letters:
        assert letters.body(1) == b"first"
        execute(full, "UPDATE letters SET body = ? WHERE number = 1", b"other")
        with pytest.raises(CorruptEntryError, match="was changed"):
            letters.body(1)
        with pytest.raises(CorruptEntryError, match="no longer"):
            letters.body(99)


def marks(path: Path) -> dict[int, tuple[int | None, int | None]]:
    with open_letters(path) as letters:
        return {each.number: (each.redrive_ms, each.redrive_ttl_ms) for each in letters.find(LetterFilter())}


def test_letters_are_deleted_and_marked_by_number_and_those_that_were_there_are_counted(
    full: Path, harness: MakeHarness
) -> None:
    journal = harness().open().journal
    assert journal.change_letters(LetterChange([1, 99])) == 1
    assert journal.change_letters(LetterChange([1, 2, 3], 7000, 500)) == 2
    assert marks(full) == {2: (7000, 500), 3: (7000, 500), 4: (None, None)}


def test_what_reads_the_file_cannot_change_it_and_leaves_no_files_behind(full: Path) -> None:
    before = sorted(os.listdir(full.parent))
    with open_letters(full) as letters, pytest.raises(sqlite3.OperationalError, match="readonly"):
        LetterChange([1]).apply(letters._connection)
    assert found(full) == [1, 2, 3, 4]
    assert sorted(os.listdir(full.parent)) == before


def test_a_file_that_is_not_there_or_empty_is_told(path: Path) -> None:
    for text in ("no such file", "the file is empty"):
        with pytest.raises(JournalError, match=text), open_letters(path):
            pass
        path.touch()


def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE songs (name TEXT)")
    with pytest.raises(JournalError, match="another program"), open_letters(path):
        pass


def test_a_file_that_may_not_be_read_is_told(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(JournalError, match="permission denied"), open_letters(full):
        pass
