"""The journal as the router uses it: hands batches to one writer thread, so that the event loop never waits for the disk."""

import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, JournalError, Letter, Mark, Row, Segment
from streamer.journal.letters import LetterChange
from streamer.journal.reading import LOWEST, Reader
from streamer.journal.schema import Tables
from streamer.journal.sqlite import MAX_WAL_BYTES
from streamer.journal.store import Result, Store

_SHORT_WAIT_S = 0.02
_CHANGE_S = 10.0  # the wait for a change of letters
_REDRIVE_LETTERS = 64
_HIGHEST = (1 << 63) - 1

logger = logging.getLogger("ustreamer.journal")

Post = Callable[..., object]
"""Calls a function with arguments on the event loop soon: asyncio's ``call_soon_threadsafe``."""

OnRedrive = Callable[[list[Letter], list[int | None]], None]
"""Takes letters to redrive, and each one's new TTL in ms from now on (0: never expires, None: its own)."""


class JournalState(Enum):
    """Whether batches reach the disk."""

    OPENING = "opening"
    OK = "ok"
    FAILING = "failing"


class Journal:
    """The entries that survive the process. All methods are for the event loop's thread, except for `stop` and
    `change_letters`, which block; callbacks are posted to it.

    ``entries_found`` is how many rows and segments were in the file when it was opened, ``facts`` those that held then.
    ``is_newer``: the reason why ``state`` is FAILING is the file's version.
    ``files_set_aside``, ``letters_evicted``, ``commits``, ``rows_written`` and ``failures`` only grow;
    ``last_commit_s`` is how long the last commit took. ``tables`` are those of features in the same file, by
    name. ``post`` may raise RuntimeError once the loop is closed.

    The writer takes the GIL five times for a batch. Each time can take long beside an event loop that is never idle, and
    releases and takes the GIL in every iteration: each time, CPython's waiter restarts its switch interval.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        letters: LetterBounds,
        post: Post,
        *,
        tables: Tables | None = None,
        retry_s: float = 1.0,
        idle_s: float = 1.0,
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.tables = (tables or Tables()).create
        self.is_busy = False
        self._state = JournalState.OPENING
        self._problem = ""
        self.is_newer = False
        self.entries_found = 0
        self.facts: Mapping[str, str] = {}
        self.commits = 0
        self.rows_written = 0
        self.failures = 0
        self.files_set_aside = 0
        self.letters_evicted = 0
        self.last_commit_s = 0.0
        self._post = post
        self._store = Store(path, letters, max_bytes + MAX_WAL_BYTES, tables)
        self._reader = Reader(path, lambda: self._store.generation)
        self._retry_s = retry_s
        self._idle_s = idle_s
        self._numbers: Iterator[int] | None = None
        self._numbered_from: int | None = None
        self._numbering = threading.Lock()
        self._found_up_to = 0
        self._committed_bytes = 0
        self._writing_bytes = 0
        self._failing_since_s = 0.0
        self._hung = ""  # what was logged of a disk that hangs
        self._is_unwritten = False
        self._to_redrive: list[int] | None = None  # None: the marks in the file are not read yet
        self._is_redriving = False  # the loop has letters to redrive, and will ask for more
        self._stop_at_s = 0.0
        self._tried = threading.Event()
        self._stopping = threading.Event()
        self._work: SimpleQueue[Callable[[], bool] | None] = SimpleQueue()  # False: the thread has to end
        self._thread: threading.Thread | None = None
        self._on_redrive: OnRedrive | None = None

    @property
    def state(self) -> JournalState:
        """Return whether batches reach the disk: one that has been on its way for `file.HANGS_AFTER_S` does not."""
        return JournalState.FAILING if self._store.hangs else self._state

    @property
    def problem(self) -> str:
        """Return why ``state`` is FAILING, as a text."""
        return self._store.hangs or self._problem

    @property
    def hangs(self) -> str:
        """Return that the disk hangs, as a text; empty if it does not."""
        return self._store.hangs

    def tick(self) -> None:
        """Log that the disk hangs, and that it does not any more: its thread cannot. To be called every second or so."""
        hangs, before = self._store.hangs, self._hung
        if bool(hangs) is bool(before):
            return
        self._hung = hangs
        if hangs:
            self.failures += 1
            logger.error("journal_failing reason=%s", hangs, extra={"state": (f"journal {self.path}", hangs)})
        elif self._state is JournalState.OK:
            logger.warning("journal_healed reason=%s", "the disk answers", extra={"state": (f"journal {self.path}", "ok")})

    def lock(self) -> None:
        """Lock the file against other streamers until `stop`. Raises `JournalError` only if another streamer uses it."""
        try:
            self._store.lock()
        except JournalError as exc:  # other failures are left to `start`, which retries
            if exc.is_in_use:
                raise

    def start(self, on_opened: Callable[[], None], on_redrive: OnRedrive | None = None) -> threading.Event:
        """Open the file, retrying every second; ``on_opened`` is posted once that succeeds.

        ``on_redrive`` is posted the letters that are marked for a redrive; without it they stay marked.

        The event that is returned is set after the first attempt, whether it succeeded or not.
        """
        self._on_redrive = on_redrive
        self._work.put(self._redrive_next)
        self._thread = threading.Thread(target=self._run, args=(on_opened,), name="journal", daemon=True)
        self._thread.start()
        return self._tried

    def use(self, letters: LetterBounds) -> None:
        """Apply other bounds of dead letters from the next batch on."""
        self._store.bounds = letters

    @property
    def bounds(self) -> LetterBounds:
        """Return the bounds of dead letters."""
        return self._store.bounds

    @property
    def top(self) -> int:
        """Return the highest number in the file, or a higher one; exact while no batch is being written."""
        return self._store.top

    def number(self) -> int:
        """Return the next number, above those of all entries in the file, even while the file cannot be read."""
        numbers = self._numbers
        if numbers is None:
            with self._numbering:
                if self._numbers is None:
                    self._numbered_from = (time.time_ns() // 1_000_000) << 20
                    self._numbers = itertools.count(self._numbered_from)
                numbers = self._numbers
        return next(numbers)

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        """Hand over a batch; ``done`` is posted once it is on disk. The caller hands over the next batch only after that."""
        if self.is_busy:
            raise AssertionError("a batch is being written already")
        self.is_busy = self._is_unwritten = True
        self._writing_bytes = batch.bytes
        self._work.put(partial(self._write, batch, done))

    def rows(self, everything: bool = False, first: int = LOWEST) -> Iterator[Row]:
        """Yield the rows that were in the file when it was opened, in order; with ``everything``, also those since.

        ``first`` is the lowest number that counts.
        """
        return self._reader.rows(_HIGHEST if everything else self._found_up_to, first)

    def segments(self, everything: bool = False, first: int = LOWEST) -> Iterator[Segment]:
        """Yield the segments, as `rows` the rows."""
        return self._reader.segments(_HIGHEST if everything else self._found_up_to, first)

    def all_letters(self) -> Iterator[Letter]:
        """Yield every dead letter, in order."""
        return self._reader.letters()

    def letter_marks(self) -> list[Mark]:
        """Return the marks of all letters that are to be redriven."""
        return self._reader.marks()

    def numbers(self, table: str) -> list[int]:
        """Return the numbers of all entries in ``table`` (rows, segments, letters), in order."""
        return self._reader.numbers(table)

    def row_body(self, number: int) -> bytes:
        """Return the body of a row. Raises `CorruptEntryError`."""
        return self._reader.row_body(number)

    def segment_body(self, number: int) -> bytes:
        """Return the body of a segment. Raises `CorruptEntryError`."""
        return self._reader.segment_body(number)

    def letter_body(self, number: int) -> bytes:
        """Return the body of a dead letter. Raises `CorruptEntryError` if the letter was deleted or damaged."""
        return self._reader.letter_body(number)

    def change_letters(self, change: LetterChange) -> int:
        """Delete or mark letters. Return how many of them still existed, once that is on disk.

        Blocks, for some seconds at most. Raises `JournalError`; the letters are unchanged then.
        """
        if self.state is JournalState.FAILING:
            raise JournalError(self.problem)
        done: Future[int] = Future()
        self._work.put(partial(self._do, partial(self._change, change), done))
        try:
            return done.result(_CHANGE_S)
        except TimeoutError:
            if done.cancel():
                raise JournalError(f"{self.path}: it is busy writing") from None
            return done.result()

    def submit(self, work: Callable[[sqlite3.Connection], Result]) -> "Future[Result]":
        """Have the writer thread call ``work``, which changes tables of features in a transaction, with the connection.

        The future can be cancelled until that begins. Raises `JournalError` if the journal fails or is stopped.
        """
        if self._stopping.is_set() or self.state is JournalState.FAILING:
            raise JournalError(self.problem or f"{self.path}: it is closed")
        done: Future[Result] = Future()
        self._work.put(partial(self._do, partial(self._store.use, work), done))
        return done

    def stop(self, within_s: float) -> bool:
        """Write the last batch, and close the file. Blocks for at most ``within_s``. False: a batch is not written."""
        self._reader.close()
        if self._thread is None:
            self._close()
            return not self._is_unwritten
        self._stop_at_s = time.monotonic() + within_s
        self._stopping.set()
        self._work.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive() and not self._is_unwritten

    @property
    def entries_corrupt(self) -> int:
        """Return the number of entries that were found damaged."""
        return self._store.entries_lost + self._reader.entries_corrupt

    @property
    def wal_bytes(self) -> int:
        """Return the size of the file's write-ahead log, which grows while another program reads the file."""
        return self._store.wal_bytes

    @property
    def bytes(self) -> int:
        """Return the bytes of all entries, including the batch that is being written. See `ENTRY_BYTES`."""
        return self._committed_bytes + self._writing_bytes

    # Everything below runs on the writer thread, except for the three callbacks at the end.

    def _run(self, on_opened: Callable[[], None]) -> None:
        try:
            if self._open():
                self._call(on_opened)
                self._serve()
        except Exception as exc:
            self._state, self._problem = JournalState.FAILING, f"the journal's thread died: {exc!r}"
            logger.exception("journal_died file=%s", self.path, extra={"state": (f"journal {self.path}", "died")})
        finally:
            self._tried.set()
            self._close()

    def _open(self) -> bool:
        while not self._attempt(self._store.open):
            self._tried.set()
            if self._has_to_stop(self._retry_s):
                return False
        with self._numbering:
            if self._numbers is None:
                self._numbers = itertools.count(self._above(self._store.facts, self._store.top) + 1)
        if self._numbered_from is not None:
            shift = partial(self._store.shift_below, self._numbered_from)
            while not self._attempt(shift):
                if self._has_to_stop(self._retry_s):
                    return False
        self._found_up_to = self._store.top
        self.entries_found, self.facts = self._store.entries, self._store.facts
        self._committed_bytes = self._store.totals.bytes
        logger.info("journal_opened file=%s bytes=%d", self.path, self._committed_bytes)
        self._tried.set()
        return True

    def _above(self, facts: Mapping[str, str], top: int) -> int:
        """Return the number above which new entries are numbered; ``top`` is the highest one in the file."""
        return top

    def _serve(self) -> None:
        """Write what is handed over. When nothing is, tidy the file, which also shows whether it can be used."""
        while True:
            try:
                work = self._work.get(timeout=self._idle_s)
            except Empty:
                self._attempt(self._tidy)
            else:
                if work is None or not work():
                    return

    def _write(self, batch: Batch, done: Callable[[], None]) -> bool:
        """Write a batch, however often that fails. False: given up because the process stops."""
        while not self._attempt(lambda: self._apply(batch)):
            if self._has_to_stop(self._retry_s / 2):
                return False
        self._is_unwritten = False
        self._call(self._written, self._store.totals.bytes, done)
        return True

    def _apply(self, batch: Batch) -> None:
        started_s = time.perf_counter()
        self._store.apply(batch)
        self.last_commit_s = time.perf_counter() - started_s
        self.commits += 1
        self.rows_written += len(batch.rows)

    def _do(self, work: Callable[[], Result], done: "Future[Result]") -> bool:
        """Call ``work`` unless its caller has stopped waiting."""
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except Exception as exc:  # noqa: BLE001  # whatever it is, the caller waits for it
                done.set_exception(exc)
            self.files_set_aside = self._store.generation
        return True

    def _change(self, change: LetterChange) -> int:
        changed = self._store.change_letters(change)
        self._call(self._changed, change, self._store.totals.bytes)
        if change.redrive_ms is not None and self._to_redrive is not None:
            self._to_redrive += change.numbers
            self._attempt(self._post_marked)
        return changed

    def _tidy(self) -> None:
        try:
            while self._store.tidy() and self._work.empty():
                pass
            self._post_marked()
        except JournalError as exc:
            if not exc.is_link_good:
                raise
            logger.debug("journal_untidy reason=%s", exc)  # the disk is full, or another program reads the file: try later

    def _redrive_next(self) -> bool:
        self._is_redriving = False
        if self._to_redrive != []:
            self._attempt(self._post_marked)
        return True

    def _post_marked(self) -> None:
        """Post marked letters to the loop, some at a time: the next ones once it has taken the last ones."""
        if self._on_redrive is None or self._is_redriving:
            return
        if self._to_redrive is None:
            self._to_redrive = self._store.marked()
        if self._to_redrive:
            page = self._to_redrive[:_REDRIVE_LETTERS]
            letters, ttls = self._store.letters(page)
            del self._to_redrive[: len(page)]
            self._is_redriving = True
            self._call(self._redrive, letters, ttls)

    def _attempt(self, action: Callable[[], None]) -> bool:
        """Call ``action``; if it fails, log that and return False."""
        try:
            action()
        except JournalError as exc:
            self.failures += 1
            if self._state is not JournalState.FAILING:
                self._failing_since_s = time.monotonic()
            self._state, self._problem, self.is_newer = JournalState.FAILING, str(exc), exc.is_newer
            logger.error("journal_failing reason=%s", exc, extra={"state": (f"journal {self.path}", self._problem)})
            return False
        finally:
            self.files_set_aside = self._store.generation
            self.letters_evicted = self._store.letters_evicted
        if self._state is JournalState.FAILING:
            after_s = time.monotonic() - self._failing_since_s
            logger.warning("journal_healed after_s=%.1f", after_s, extra={"state": (f"journal {self.path}", "ok")})
        self._state, self._problem = JournalState.OK, ""
        return True

    def _has_to_stop(self, wait_s: float) -> bool:
        """Wait before the next attempt. True if there is no time for one."""
        if not self._stopping.wait(wait_s):
            return False
        time.sleep(_SHORT_WAIT_S)
        return time.monotonic() >= self._stop_at_s or not self._is_unwritten

    def _close(self) -> None:
        try:
            self._store.close()
        except JournalError as exc:
            logger.error("journal_not_closed reason=%s", exc)

    def _call(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._post(call, *args)
        except RuntimeError:  # the loop is closed: nobody waits for the call
            logger.debug("journal_callback_dropped call=%s", call)

    def _written(self, committed_bytes: int, done: Callable[[], None]) -> None:
        self.is_busy = False
        self._committed_bytes, self._writing_bytes = committed_bytes, 0
        done()

    def _changed(self, change: LetterChange, committed_bytes: int) -> None:
        self._committed_bytes = committed_bytes

    def _redrive(self, letters: list[Letter], ttls: list[int | None]) -> None:
        if self._on_redrive is not None and letters:
            self._on_redrive(letters, ttls)
        self._work.put(self._redrive_next)
