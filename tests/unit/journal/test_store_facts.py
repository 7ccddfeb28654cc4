"""What the owner of a journal file states about it, and the numbers that entries get anew."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, Facts, Mark, Renumbering
from streamer.journal.letters import LetterChange
from streamer.journal.reading import Reader
from streamer.journal.store import Store
from tests.examples import examples
from tests.unit.journal.harness import execute, letter, row, segment


def opened(path: Path) -> Store:
    store = Store(path, LetterBounds(1000, 1 << 30, 1000, 1 << 30))
    store.open()
    return store


def facts(**values: str) -> Facts:
    return Facts(0, values)


def found_in(path: Path) -> dict[str, str]:
    store = opened(path)
    store.close()
    return dict(store.facts)


def test_facts_hold_from_the_transaction_with_which_they_were_written(path: Path) -> None:
    store = opened(path)
    assert store.facts == {}
    store.apply(Batch(rows=[row(2), row(4)], facts=facts(name="a", at='"1"')))
    store.apply(Batch(rows_done=[2], segments=[segment(5, b"x" * 99)], facts=facts(at="2")))
    store.apply(Batch(letters=[letter(6)], letters_marked=[Mark(6, 1, None)], facts=facts()))
    store.change_letters(LetterChange([6]))
    store.close()
    assert found_in(path) == {"name": "a", "at": "2"}


def test_a_transaction_without_facts_ends_them(path: Path) -> None:
    store = opened(path)
    store.apply(Batch(rows=[row(2)], facts=facts(name="a")))
    store.apply(Batch(rows=[row(3)]))
    store.close()
    assert found_in(path) == {}


def _adds(path: Path) -> None:
    execute(path, "INSERT INTO rows SELECT 90, route, source, target, 0, 0, '', crc, body FROM rows WHERE number = 4")


def _replaces(path: Path) -> None:
    """As many entries, with as many bytes."""
    _adds(path)
    execute(path, "DELETE FROM rows WHERE number = 4")


def _fails(path: Path) -> None:
    execute(path, "INSERT INTO letters (number, route) VALUES (91, '')")


@pytest.mark.parametrize("change", [_adds, _replaces, _fails])
def test_facts_end_when_an_earlier_version_has_added_entries(path: Path, change: Callable[[Path], None]) -> None:
    store = opened(path)
    store.apply(Batch(rows=[row(2), row(4)], facts=facts(name="a")))
    store.close()
    assert found_in(path) == {"name": "a"}
    change(path)
    assert found_in(path) == {}


def test_a_salvaged_file_has_no_facts_and_takes_none_that_were_meant_for_the_one_before(path: Path) -> None:
    store = opened(path)
    store.apply(Batch(rows=[row(2), row(4)], facts=facts(name="a")))
    path.unlink()
    store.apply(Batch(rows=[row(6)], facts=facts(at="1")))
    assert store.generation == 1
    store.close()
    assert found_in(path) == {}
    again = opened(path)
    again.apply(Batch(facts=Facts(0, {"name": "b"})))
    again.close()
    assert found_in(path) == {"name": "b"}


def test_facts_of_a_damaged_page_end_with_the_file(path: Path) -> None:
    store = opened(path)
    store.apply(Batch(rows=[row(2)], facts=facts(name="a")))
    store.close()
    execute(path, "UPDATE rows SET body = x'00'")
    store = opened(path)
    assert (store.generation, store.facts) == (1, {})
    store.close()


def test_numbers_below_those_that_were_given_before_the_file_could_be_read_end_facts(path: Path) -> None:
    store = opened(path)
    store.apply(Batch(rows=[row(20)], facts=facts(name="a")))
    store.shift_below(21)
    assert store.facts == {}  # as it was opened
    store.close()
    assert found_in(path) == {"name": "a"}
    store = opened(path)
    store.shift_below(5)
    assert store.facts == {}
    store.close()
    assert found_in(path) == {}


numbers = st.sets(st.integers(1, 200), max_size=30)
bounds = st.none() | st.integers(0, 220)


@given(numbers, numbers, numbers, bounds, bounds, st.integers(0, 1))
@settings(max_examples=examples(60), deadline=None)
def test_entries_get_new_numbers_in_their_order(
    rows: set[int], segments: set[int], letters: set[int], even_from: int | None, odd_from: int | None, parity: int
) -> None:
    path = Path(f"/dev/shm/renumbered-{random.getrandbits(60)}.db")
    try:
        segments, letters = segments - rows, letters - rows - segments
        store = opened(path)
        store.apply(
            Batch(
                [row(each, b"r%d" % each) for each in sorted(rows)],
                [segment(each, b"s%d" % each) for each in sorted(segments)],
                [letter(each, each + 100, b"l%d" % each) for each in sorted(letters)],
                letters_marked=[Mark(each, each, 5) for each in letters],
            )
        )
        first = 300 + parity
        store.apply(Batch(renumbered=Renumbering(even_from, odd_from, first), facts=facts(name="a")))
        chosen = sorted(
            each
            for each in rows | segments | letters
            if (bound := (even_from, odd_from)[each % 2]) is not None and each >= bound
        )
        new = {each: first + 2 * at for at, each in enumerate(chosen)}
        reader = Reader(path, lambda: 0)
        expected = sorted((new.get(each, each), b"%d" % each) for each in rows | segments | letters)
        read = [*reader.rows(1 << 62)], [*reader.segments(1 << 62)], [*reader.letters()]
        assert sorted((each.number, each.body[1:]) for entries in read for each in entries) == expected
        assert reader.entries_corrupt == 0
        assert sorted(each.redrive_ms for each in reader.marks()) == sorted(letters)
        assert {each.number for each in reader.marks()} == {each.number for each in reader.letters()}
        assert store.top == max([0, *(number for number, _ in expected)])
        reader.close()
        store.close()
        assert found_in(path) == {"name": "a"}
    finally:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
