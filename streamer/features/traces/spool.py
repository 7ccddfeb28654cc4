"""The spool: a thread that writes buffers to Arrow IPC streams. Every completed batch survives a kill of the process.
Events go to streams of their own beside those of the records.

If a stream cannot be written (full disk, missing folder), only the records of that moment are lost: the stream is truncated
to its last complete batch and closed, and the next buffer starts a new one. The disk is tried in between, so that
`SpoolWriter.problem` ends with the problem, also if no message comes.
"""

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa

from streamer.features.traces.event import EVENT_SCHEMA, Event, to_event_columns
from streamer.features.traces.layout import CLOSED, OPEN, Deleted, Folders, make_file
from streamer.features.traces.record import SCHEMA, Buffer, to_columns

logger = logging.getLogger("ustreamer.trace")

_PENDING = 16  # buffers that may wait to be written; each has at most `recorder.MAX_RECORDS` records
_RETRY_S = 5.0
_EVENTS = 1000  # events that may wait to be written; the last ones are left out
_PROBE_BYTES = 64 * 1024  # about as much as a second of a few hundred records
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class Stream:
    """One spool file that is being written."""

    def __init__(self, path: Path, schema: pa.Schema, now_s: float) -> None:
        """Raises OSError."""
        self.path = path
        self.began_s = now_s
        self.bytes = 0
        self._file: IO[bytes] = os.fdopen(make_file(path), "wb")
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), schema, options=_COMPRESSED)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch completely or not at all. After an OSError the stream must be closed."""
        try:
            self._writer.write_batch(batch)
            self._file.flush()
        except OSError:
            self._abandon()
            os.truncate(self.path, self.bytes)
            raise
        self.bytes = self._file.tell()

    def close(self) -> None:
        """End the stream and rename it to a closed one; delete it if it is empty. Raises OSError."""
        if not self._file.closed:
            try:
                self._writer.close()
                self._file.close()
            except OSError:
                self._abandon()  # the end mark may be missing: readers do not need it
        if self.bytes:
            close_name(self.path)
        else:
            self.path.unlink()

    def _abandon(self) -> None:
        try:
            self._file.close()
        except OSError:  # what was buffered could not be written
            self._file.raw.close()  # type: ignore[attr-defined]  # a BufferedWriter


class SpoolWriter:
    """Writes buffers and events to the spool of one streamer, in a thread.

    The event loop calls `start`, `take`, `tell` and `stop`.

    ``on_closed`` is called in the thread after a file was closed.
    """

    def __init__(
        self,
        folders: Folders,
        run_us: int,
        rotate_s: float,
        rotate_bytes: int,
        max_bytes: int,
        on_closed: Callable[[], None],
    ) -> None:
        self.written = 0
        self.dropped = 0
        self.deleted = Deleted()
        self.problem = ""
        self._folders = folders
        self._run_us = run_us
        self._rotate_s = rotate_s
        self._rotate_bytes = rotate_bytes
        self._max_bytes = max_bytes
        self._on_closed = on_closed
        self._pending: queue.Queue[Buffer | Literal["events"] | None] = queue.Queue()
        self._events: deque[Event] = deque()
        self._streams: dict[Path, Stream] = {}  # by folder: of the records, and of the events
        self._number = 0
        self._lock: int | None = None
        self._thread = threading.Thread(target=self._run, name="trace-spool", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def use(self, rotate_s: float, rotate_bytes: int, max_bytes: int) -> None:
        """Other bounds hold from the next buffer on."""
        self._rotate_s, self._rotate_bytes, self._max_bytes = rotate_s, rotate_bytes, max_bytes

    def take(self, buffer: Buffer) -> bool:
        """Queue a buffer to be written; returns False if too many wait."""
        if self._pending.qsize() >= _PENDING:
            return False
        self._pending.put(buffer)
        return True

    def tell(self, event: Event) -> None:
        """Queue an event to be written. It is left out if too many wait, and kept while nothing can be written."""
        if len(self._events) < _EVENTS:
            self._events.append(event)
            if len(self._events) == 1:  # otherwise the thread has been told, and writes all that it finds
                self._pending.put("events")

    def stop(self, within_s: float) -> bool:
        """Write the buffered records and close the file. Returns whether that was done in time."""
        self._pending.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    # -- in the thread

    def _run(self) -> None:
        pa.set_memory_pool(pa.system_memory_pool())  # mimalloc would keep 12 MB for a batch of some 100 kB
        self._try(self._prepare)
        while True:
            try:
                buffer = self._pending.get(timeout=_RETRY_S if self.problem else self._rotates_in_s())
            except queue.Empty:
                if self.problem:
                    self._probe()
                else:
                    self._rotate()
                continue
            if buffer is None:
                break
            if buffer == "events":
                self._write_events()
            else:
                self._write(buffer)
            if self._rotates_in_s() == 0 or any(each.bytes >= self._rotate_bytes for each in self._streams.values()):
                self._rotate()
        self._rotate()
        if self._lock is not None:
            os.close(self._lock)

    def _rotates_in_s(self) -> float | None:
        """All files are closed together: a few events cause no more files than records do."""
        began_s = min((each.began_s for each in self._streams.values()), default=None)
        return None if began_s is None else max(0.0, began_s + self._rotate_s - time.monotonic())

    def _prepare(self) -> None:
        """Lock the folders, and close what an earlier run has left open; once more if they were removed."""
        if self._lock is not None:
            if self._folders.has_lock("lock", self._lock):
                return
            os.close(self._lock)
            self._lock = None
            self._failed(f"the folder was removed while in use: {self._folders.spool}")
            self._rotate()
        self._folders.create()
        self._lock = self._folders.lock("lock", wait=False)
        found = self._folders.left_open()
        for file in found:
            close_name(file)
        if found or self._folders.closed():
            self._on_closed()

    def _write(self, buffer: Buffer) -> None:
        if self._append(self._folders.spool, lambda: to_columns(buffer, self._run_us)):
            self.written += buffer.records
        else:
            self.dropped += buffer.records

    def _write_events(self) -> None:
        while events := list(islice(self._events, _EVENTS)):
            if not self._append(self._folders.events, partial(to_event_columns, events, self._run_us)):
                return
            for _ in events:
                self._events.popleft()

    def _append(self, folder: Path, columns: Callable[[], pa.RecordBatch]) -> bool:
        """Append a batch to the stream in a folder. Returns whether that succeeded."""

        def write() -> None:
            self._prepare()
            if folder not in self._streams:
                self._number += 1
                name = f"{self._run_us}-{self._number}{OPEN}"
                schema = EVENT_SCHEMA if self._folders.events == folder else SCHEMA
                self._streams[folder] = Stream(folder / name, schema, time.monotonic())
            self._streams[folder].write(columns())

        if self._try(write):
            self._recovered()
            return True
        if folder in self._streams:
            self._rotate()
        return False

    def _probe(self) -> None:
        """Find out whether records could be written again."""

        def write() -> None:
            self._prepare()
            file = self._folders.spool / "probe"
            try:
                file.write_bytes(bytes(_PROBE_BYTES))
            finally:
                file.unlink(missing_ok=True)

        if self._try(write):
            self._recovered()

    def _recovered(self) -> None:
        if self.problem:
            logger.info("trace_recovered folder=%s", self._folders.path, extra={"state": ("traces", "ok")})
            if self._events:
                self._pending.put("events")
        self.problem = ""

    def _rotate(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            self._try(stream.close)
        if streams:
            self._try(self._keep_to_bound)
            self._on_closed()

    def _keep_to_bound(self) -> None:
        """Delete the oldest files if compaction, which usually does it, lags behind."""
        if len(self._folders.closed()) > 1:
            files, size = self._folders.keep_to(self._max_bytes, time.time())
            self.deleted = Deleted(self.deleted.files + files, self.deleted.bytes + size)

    def _try(self, work: Callable[[], object]) -> bool:
        """Do work that may fail: the worst that tracing may cost is records, never messages."""
        try:
            work()
        except BlockingIOError:
            self._failed("another streamer with the same authority writes its traces to this folder")
        except OSError as exc:
            self._failed(f"{exc.strerror or exc}: {exc.filename or self._folders.path}")
        except Exception as exc:
            logger.exception("trace_failed")
            self._failed(f"{type(exc).__name__}: {exc}")
        else:
            return True
        return False

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            consequence = "records are dropped and counted"
            logger.error(
                "trace_not_written reason=%s consequence=%s", problem, consequence, extra={"state": ("traces", problem)}
            )
        self.problem = problem


def close_name(path: Path) -> None:
    """Rename an open spool file to a closed one. Raises OSError."""
    path.rename(path.with_name(path.name.removesuffix(OPEN) + CLOSED))
