"""Prints one line for each table of a run: what is done, what remains."""

import sys
import threading
from typing import TextIO


class Progress:
    """Counts tables, each once for each date: ``[ 24/144] 2026-11-20 latency: 372 rows, 1.2 s``. For any thread."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._lock = threading.RLock()
        self._expected = self._done = 0

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

    def done(self, name: str, rows: int, dates: int, took_s: float) -> None:
        """A table is published, for so many dates."""
        with self._lock:
            self._done += dates
            self.say(f"[{self._done:{len(str(self._expected))}}/{self._expected}] {name}: {rows} rows, {took_s:.1f} s")

    def say(self, line: str) -> None:
        """Any other line."""
        with self._lock:
            self._out.write(f"{line}\n")
            self._out.flush()
