"""Redrive and purge of dead letters: which of them a running journal marks and deletes, and why others stay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.journal.entries import Batch, Letter
from streamer.journal.letter_acts import Redriven, purge, redrive
from streamer.journal.letters import LetterFilter, open_letters
from tests.unit.journal.harness import JournalHarness, execute, letters_in
from tests.unit.tools.letters import HOUR_MS, LETTERS, NOW_MS


class Acts:
    """A running journal with three letters, and the letters that it has redriven, each with its new TTL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent: list[tuple[Letter, int | None]] = []
        self.daemon = JournalHarness(path).open(lambda letters, ttls: self.sent.extend(zip(letters, ttls, strict=True)))
        self.daemon.write(Batch(letters=LETTERS))

    def redrive(self, *numbers: int, ttl_ms: int | None = None) -> Redriven:
        with open_letters(self.path) as file:
            selected = LetterFilter(numbers=numbers)
            return redrive(file, self.daemon.journal.change_letters, selected, NOW_MS, ttl_ms, lambda: True)

    def until_sent(self, number: int) -> list[tuple[Letter, int | None]]:
        self.daemon.loop.run_until(lambda: len(self.sent) >= number)
        return self.sent


@pytest.fixture
def acts(tmp_path: Path) -> Iterator[Acts]:
    found = Acts(tmp_path / "journal.db")
    yield found
    found.daemon.close()


def whys(done: Redriven) -> list[tuple[int, str]]:
    return [(each.letter.number, each.why) for each in done.named]


def test_what_has_expired_needs_a_ttl_and_the_others_go(acts: Acts) -> None:
    done = acts.redrive(1, 2, 3)
    assert (done.going, done.staying, whys(done)) == (2, 1, [(2, "expired 59m ago, needs another TTL")])
    assert acts.until_sent(2) == [(LETTERS[0], None), (LETTERS[2], None)]
    assert acts.redrive(2, ttl_ms=0).going == 1
    assert acts.until_sent(3)[2] == (LETTERS[1], 0)


def test_marking_twice_before_a_start_sends_once_with_the_last_ttl(acts: Acts) -> None:
    acts.daemon.close()
    acts.daemon = JournalHarness(acts.path).open()  # it redrives nothing
    acts.redrive(3)
    acts.redrive(3, ttl_ms=HOUR_MS)
    acts.daemon.close()
    acts.daemon = JournalHarness(acts.path).open(lambda letters, ttls: acts.sent.extend(zip(letters, ttls, strict=True)))
    assert acts.until_sent(1) == [(LETTERS[2], HOUR_MS)]


def test_a_request_cannot_live_for_ever(acts: Acts) -> None:
    done = acts.redrive(3, ttl_ms=0)
    assert (done.going, whys(done)) == (0, [(3, "a Request needs a TTL above 0")])


def test_a_damaged_letter_is_not_sent(acts: Acts) -> None:
    execute(acts.path, "UPDATE letters SET body = x'00' WHERE number = 1")
    done = acts.redrive(1)
    assert (done.going, whys(done)) == (0, [(1, "its body was changed")])


def test_purge_deletes_what_matches_until_it_is_told_to_end(acts: Acts) -> None:
    change, selected = acts.daemon.journal.change_letters, LetterFilter(until_ms=NOW_MS - HOUR_MS // 2)
    with open_letters(acts.path) as file:
        assert purge(file, change, selected, lambda: False) == 0
        assert purge(file, change, selected, lambda: True) == 2
    assert letters_in(acts.path) == [(3, "vehicle-phone")]
