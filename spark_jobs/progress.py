"""Prints one line for each table of a run, and on a terminal below them the running jobs: what is done, what remains."""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_CLEAR = "\r\x1b[K"


class Progress:
    """Counts tables, each once for each date: ``[ 24/144] 2026-11-20 latency: 372 rows, 1.2 s``. For any thread."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._lock = threading.RLock()
        self._expected = self._done = 0
        self._running: list[str] = []

    def expect(self, tables: int) -> None:
        """So many more are to come."""
        with self._lock:
            self._expected += tables

    def skip(self, tables: int) -> None:
        """So many will not come."""
        with self._lock:
            self._done += tables

    @property
    def finished(self) -> int:
        """How many are published or will not come."""
        return self._done

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Show that this runs."""
        with self._lock:
            self._running.append(name)
            self._draw("")
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(name)
                self._draw("")

    def done(self, name: str, rows: int, dates: int, took_s: float) -> None:
        """A table is published, for so many dates."""
        with self._lock:
            self._done += dates
            self.say(f"{self._place()} {name}: {rows} rows, {took_s:.1f} s")

    def say(self, line: str) -> None:
        """Any other line."""
        with self._lock:
            self._draw(f"{line}\n")

    def _place(self) -> str:
        return f"[{self._done:{len(str(self._expected))}}/{self._expected}]"

    def _draw(self, lines: str) -> None:
        if self._out.isatty():
            below = f"{self._place()} {', '.join(self._running)} …" if self._running else ""
            lines = f"{_CLEAR}{lines}{below[: shutil.get_terminal_size().columns - 1]}"
        self._out.write(lines)
        self._out.flush()
