"""The journal as the router sees it: batches go to one writer thread, and the event loop never waits for the disk."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue

from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, JournalError, Letter, Row, Segment
from streamer.journal.reading import Reader
from streamer.journal.store import Store

RETRY_S = 1.0
IDLE_S = 1.0

logger = logging.getLogger("ustreamer.journal")

Post = Callable[..., object]
"""Runs a function with arguments on the event loop soon; asyncio's ``call_soon_threadsafe``."""

OnRedrive = Callable[[list[Letter], list[int | None]], None]
"""Takes letters that somebody wants sent again, and each one's new TTL in ms from now (0: never expires, None: its own)."""


class JournalState(Enum):
    """Whether what is handed over gets onto the disk."""

    OPENING = "opening"
    OK = "ok"
    FAILING = "failing"


class Journal:
    """What survives the process. All methods are for the event loop's thread; callbacks are posted to it."""

    def __init__(self, path: Path, max_bytes: int, max_letters: int, max_letter_bytes: int, post: Post) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.on_redrive: OnRedrive | None = None
        self.is_busy = False
        self.state = JournalState.OPENING
        self.problem = ""
        self.commits = 0
        self.rows_written = 0
        self.failures = 0
        self.files_set_aside = 0
        self.entries_corrupt = 0
        self.letters_evicted = 0
        self.last_commit_s = 0.0
        self._post = post
        self._store = Store(path, LetterBounds(max_letters, max_letter_bytes))
        self._reader = Reader(path)
        self._numbers: Iterator[int] | None = None
        self._numbering = threading.Lock()
        self._found_up_to = 0
        self._committed_bytes = 0
        self._in_hand_bytes = 0
        self._tried = threading.Event()
        self._stopping = threading.Event()
        self._work: SimpleQueue[tuple[Batch, Callable[[], None]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, on_opened: Callable[[], None]) -> threading.Event:
        """Open the file, and try again every second for as long as that fails; ``on_opened`` is posted when it did not.

        The event that is returned is set after the first attempt, whatever came of it.
        """
        self._thread = threading.Thread(target=self._run, args=(on_opened,), name="journal", daemon=True)
        self._thread.start()
        return self._tried

    def number(self) -> int:
        """The next number: above everything in the file, also if that could not be read yet."""
        numbers = self._numbers
        if numbers is None:
            with self._numbering:
                if self._numbers is None:
                    self._numbers = itertools.count((time.time_ns() // 1_000_000) << 20)
                numbers = self._numbers
        return next(numbers)

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        """Hand over a batch; ``done`` is posted when it is on the disk, however long that takes. One at a time."""
        if self.is_busy:
            raise AssertionError("a batch is being written already")
        self.is_busy = True
        self._in_hand_bytes = batch.bytes
        self._work.put((batch, done))

    def rows(self) -> Iterator[Row]:
        """The rows that were in the file when it was opened, in order."""
        return self._reader.rows(self._found_up_to)

    def segments(self) -> Iterator[Segment]:
        """The segments that were in the file when it was opened, in order."""
        return self._reader.segments(self._found_up_to)

    def row_body(self, number: int) -> bytes:
        """The body of a row. Raises `CorruptEntryError`."""
        return self._reader.row_body(number)

    def segment_body(self, number: int) -> bytes:
        """The body of a segment. Raises `CorruptEntryError`."""
        return self._reader.segment_body(number)

    def stop(self, within_s: float) -> bool:
        """Write what was handed over and close the file; False if that took longer. Blocks."""
        self._stopping.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(within_s)
        self._reader.close()
        return self._thread is None or not self._thread.is_alive()

    @property
    def bytes(self) -> int:
        """What the entries count, with what is being written. See `ENTRY_BYTES`."""
        return self._committed_bytes + self._in_hand_bytes

    # the writer thread

    def _run(self, on_opened: Callable[[], None]) -> None:
        if not self._open():
            return
        self._post(on_opened)
        while (work := self._next()) is not None:
            batch, done = work
            while not self._commit(batch):
                if self._stopping.wait(RETRY_S):
                    return
            self._post(self._written, self._store.totals.bytes, done)
        self._store.close()

    def _next(self) -> tuple[Batch, Callable[[], None]] | None:
        while True:
            try:
                return self._work.get(timeout=IDLE_S)
            except Empty:
                pass

    def _open(self) -> bool:
        while True:
            try:
                self._store.open()
            except JournalError as exc:
                self._failed(exc)
            else:
                break
            self._tried.set()
            if self._stopping.wait(RETRY_S):
                return False
        self._found_up_to = self._store.top
        with self._numbering:
            if self._numbers is None:
                self._numbers = itertools.count(self._store.top + 1)
        self._committed_bytes = self._store.totals.bytes
        self.state, self.problem = JournalState.OK, ""
        self._tried.set()
        return True

    def _commit(self, batch: Batch) -> bool:
        started_s = time.perf_counter()
        try:
            self._store.apply(batch)
        except JournalError as exc:
            self._failed(exc)
            return False
        self.last_commit_s = time.perf_counter() - started_s
        self.commits += 1
        self.rows_written += len(batch.rows)
        self.letters_evicted = self._store.totals.evicted
        self.state, self.problem = JournalState.OK, ""
        return True

    def _failed(self, exc: JournalError) -> None:
        self.failures += 1
        self.state, self.problem = JournalState.FAILING, str(exc)
        logger.error("journal_failing reason=%s", exc)

    def _written(self, committed_bytes: int, done: Callable[[], None]) -> None:
        """On the loop."""
        self.is_busy = False
        self._committed_bytes, self._in_hand_bytes = committed_bytes, 0
        done()
