"""A stand-in for the event loop, and a journal that uses it."""

import queue
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, Letter, Row, Segment
from streamer.journal.journal import Journal, OnRedrive

PROMPT_S = 0.01
BOUNDS = LetterBounds(1000, 1 << 20, 1000, 1 << 20)


class ManualLoop:
    """Runs what was posted when the test says so."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()

    def post(self, call: Callable[..., object], *args: object) -> None:
        self._posted.put((call, args))

    def run_until(self, is_met: Callable[[], bool], within_s: float = 60) -> None:
        """Raises `queue.Empty` if nothing is posted for that long."""
        while not is_met():
            call, args = self._posted.get(timeout=within_s)
            call(*args)


class JournalHarness:
    """A journal and its loop."""

    def __init__(
        self, path: Path, max_letters: int = 100, max_letter_bytes: int = 1 << 20, idle_s: float = PROMPT_S
    ) -> None:
        self.loop = ManualLoop()
        self.journal = Journal(
            path,
            1 << 30,
            BOUNDS._replace(max_letters=max_letters, max_bytes=max_letter_bytes),
            self.loop.post,
            retry_s=PROMPT_S,
            idle_s=idle_s,
        )
        self.opened: list[str] = []

    def start(self, on_redrive: OnRedrive | None = None) -> Self:
        """Returns after the first attempt to open the file."""
        assert self.journal.start(lambda: self.opened.append("opened"), on_redrive).wait(10)
        return self

    def open(self, on_redrive: OnRedrive | None = None) -> Self:
        """Returns once the file is open."""
        self.start(on_redrive).loop.run_until(lambda: bool(self.opened))
        return self

    def write(self, batch: Batch) -> None:
        done = self.hand_over(batch)
        self.loop.run_until(lambda: bool(done))

    def hand_over(self, batch: Batch) -> list[str]:
        done: list[str] = []
        self.journal.write(batch, lambda: done.append("done"))
        return done

    def number(self) -> int:
        return self.journal.number()

    def close(self) -> None:
        assert self.journal.stop(10)


def row(number: int, body: bytes = b"body") -> Row:
    return Row(number, "vehicle-cloud", "vehicle", "cloud", 1_700_000_000_000, 0, '{"sink": "ü\\u0000"}', body)


def segment(number: int, body: bytes = b"segment") -> Segment:
    return Segment(number, "cloud", body)


def letter(number: int, uuid: int = 0, body: bytes = b"letter", route: str = "r", outcome: str = "expired") -> Letter:
    key = uuid.to_bytes(16, "big")
    return Letter(
        number, key, route, "vehicle", "cloud", outcome, 4, "too late", 2, 1000, 2000, 1, "//veh1/A/1/8000", "", body
    )


def letters_in(path: Path) -> list[tuple[int, str]]:
    """Number and route of the letters in a file, read by plain SQL."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT number, route FROM letters ORDER BY number").fetchall()
    finally:
        connection.close()


def execute(path: Path, statement: str, *parameters: object) -> None:
    """Another program that writes to the file."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute(statement, parameters)
    finally:
        connection.close()


def wait_until(is_met: Callable[[], bool], within_s: float = 60) -> None:
    """Wait, on this thread, for a condition."""
    end_s = time.monotonic() + within_s
    while not is_met():
        assert time.monotonic() < end_s
        time.sleep(0.002)
