"""The journal over real files: what was reported as written is there, in order, after a restart."""

import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.journal.entries import Batch, CorruptEntryError, Letter, Row, Segment
from streamer.journal.journal import Journal, JournalState


class Loop:
    """Stands in for the event loop: what is posted runs when the test says so."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()

    def post(self, call: Callable[..., object], *args: object) -> None:
        self._posted.put((call, args))

    def run_until(self, is_met: Callable[[], bool], within_s: float = 10) -> None:
        while not is_met():
            call, args = self._posted.get(timeout=within_s)
            call(*args)


def row(number: int, body: bytes = b"body") -> Row:
    return Row(number, "vehicle-cloud", "vehicle", "cloud", 1_700_000_000_000, 0, '{"sink": "ü"}', body)


def letter(number: int, uuid: bytes = bytes(16), body: bytes = b"letter", route: str = "r") -> Letter:
    return Letter(
        number, uuid, route, "vehicle", "cloud", "expired", 4, "too late", 2, 1000, 2000, 1, "//veh1/A/1/8000", "", body
    )


class Desk:
    """A journal and a stand-in for its loop."""

    def __init__(self, path: Path, max_letters: int = 100, max_letter_bytes: int = 1 << 20) -> None:
        self.loop = Loop()
        self.journal = Journal(path, 1 << 30, max_letters, max_letter_bytes, self.loop.post)
        self.opened: list[str] = []

    def open(self) -> "Desk":
        assert self.journal.start(lambda: self.opened.append("opened")).wait(10)
        self.loop.run_until(lambda: bool(self.opened))
        return self

    def write(self, batch: Batch) -> None:
        done: list[bool] = []
        self.journal.write(batch, lambda: done.append(True))
        self.loop.run_until(lambda: bool(done))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_what_was_written_is_there_after_a_restart(path: Path):
    desk = Desk(path).open()
    journal = desk.journal
    rows = [row(journal.number(), n.to_bytes(2, "big") * n) for n in range(600)]
    segment = Segment(journal.number(), "cloud", b"segment")
    desk.write(Batch(rows=rows, segments=[segment], letters=[letter(journal.number())]))
    desk.write(Batch(rows_done=[rows[0].number, rows[300].number]))
    assert list(journal.rows()) == []  # nothing was there when it was opened
    assert journal.row_body(rows[5].number) == rows[5].body
    assert journal.segment_body(segment.number) == b"segment"
    with pytest.raises(CorruptEntryError, match="not in the journal"):
        journal.row_body(rows[0].number)
    assert journal.stop(10)

    again = Desk(path).open().journal
    assert again.state is JournalState.OK
    assert list(again.rows()) == rows[1:300] + rows[301:]
    assert list(again.segments()) == [segment]
    assert again.number() == 603
    assert again.bytes == journal.bytes
    assert again.stop(10)
