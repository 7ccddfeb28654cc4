"""Fixtures: a path for a journal, and a function that makes harnesses; they are closed at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.journal.harness import PROMPT_S, JournalHarness

MakeHarness = Callable[..., JournalHarness]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def harness(path: Path) -> Iterator[MakeHarness]:
    made: list[JournalHarness] = []

    def make(
        path: Path = path, max_letters: int = 100, max_letter_bytes: int = 1 << 20, idle_s: float = PROMPT_S
    ) -> JournalHarness:
        made.append(JournalHarness(path, max_letters, max_letter_bytes, idle_s))
        return made[-1]

    yield make
    for each in made:
        each.journal.stop(10)
