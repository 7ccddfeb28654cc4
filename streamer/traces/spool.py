"""The spool: a thread that turns buffers into Arrow IPC streams. Every completed batch survives a kill of the process.

A stream that cannot be written (full disk, missing folder) costs the records of that moment and nothing else: it is cut
back to its last batch and closed, and the next buffer begins a new one.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pyarrow as pa

from streamer.traces.layout import CLOSED, OPEN, Deleted, Folders
from streamer.traces.record import SCHEMA, Buffer, to_columns

logger = logging.getLogger("ustreamer.trace")

_PENDING = 16  # buffers that wait to be written; each has at most `recorder.MAX_RECORDS` records
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class Stream:
    """One spool file that is being written."""

    def __init__(self, path: Path, now_s: float) -> None:
        """Raises OSError."""
        self.path = path
        self.began_s = now_s
        self.bytes = 0
        self._file: IO[bytes] = path.open("xb")
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), SCHEMA, options=_COMPRESSED)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch, all of it or nothing. After an OSError the stream must be closed."""
        try:
            self._writer.write_batch(batch)
            self._file.flush()
        except OSError:
            self._abandon()
            os.truncate(self.path, self.bytes)
            raise
        self.bytes = self._file.tell()

    def close(self) -> None:
        """End the stream and give it the name of those that are complete, if there is anything in it. Raises OSError."""
        if not self._file.closed:
            try:
                self._writer.close()
                self._file.close()
            except OSError:
                self._abandon()  # the mark of the end may be missing: it says nothing
        if self.bytes:
            close_name(self.path)
        else:
            self.path.unlink()

    def _abandon(self) -> None:
        try:
            self._file.close()
        except OSError:  # what it still held could not be written
            self._file.raw.close()  # type: ignore[attr-defined]  # a BufferedWriter


class Spool:
    """Writes buffers to the spool of one streamer. `take` is for the loop's thread, everything else for its own.

    ``on_closed`` is called in its thread after a file was closed.
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
        self._pending: queue.Queue[Buffer | None] = queue.Queue()
        self._stream: Stream | None = None
        self._number = 0
        self._lock: int | None = None
        self._thread = threading.Thread(target=self._run, name="trace-spool", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def take(self, buffer: Buffer) -> bool:
        """Have a buffer written; False if too many wait."""
        if self._pending.qsize() >= _PENDING:
            return False
        self._pending.put(buffer)
        return True

    def stop(self, within_s: float) -> bool:
        """Write what waits and close the file; whether that was done in time."""
        self._pending.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    # -- in the thread

    def _run(self) -> None:
        self._try(self._prepare)
        while True:
            try:
                buffer = self._pending.get(timeout=self._rotates_in_s())
            except queue.Empty:
                self._rotate()
                continue
            if buffer is None:
                break
            self._write(buffer)
            if self._rotates_in_s() == 0 or (self._stream is not None and self._stream.bytes >= self._rotate_bytes):
                self._rotate()
        self._rotate()
        if self._lock is not None:
            os.close(self._lock)

    def _rotates_in_s(self) -> float | None:
        return None if self._stream is None else max(0.0, self._stream.began_s + self._rotate_s - time.monotonic())

    def _prepare(self) -> None:
        """Have the folders to ourselves, and close what an earlier run has left open."""
        if self._lock is not None:
            return
        self._folders.create()
        self._lock = self._folders.lock("lock", wait=False)
        found = self._folders.left_open()
        for file in found:
            close_name(file)
        if found or self._folders.closed():
            self._on_closed()

    def _write(self, buffer: Buffer) -> None:
        def write() -> None:
            self._prepare()
            if self._stream is None:
                self._number += 1
                name = f"{self._run_us}-{self._number}{OPEN}"
                self._stream = Stream(self._folders.spool / name, time.monotonic())
            self._stream.write(to_columns(buffer, self._run_us))

        if self._try(write):
            self.written += buffer.records
            if self.problem:
                logger.info("trace_written_again folder=%s", self._folders.path)
            self.problem = ""
        else:
            self.dropped += buffer.records
            if self._stream is not None:
                self._rotate()

    def _rotate(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._try(stream.close)
            self._try(self._keep_to_bound)
            self._on_closed()

    def _keep_to_bound(self) -> None:
        """Sealing sees to the bound; if it does not come to it, this does."""
        if len(self._folders.closed()) > 1:
            files, size = self._folders.keep_to(self._max_bytes)
            self.deleted = Deleted(self.deleted.files + files, self.deleted.bytes + size)

    def _try(self, work: Callable[[], object]) -> bool:
        """Do what may fail: tracing costs records at worst, never a message."""
        try:
            work()
        except BlockingIOError:
            self._failed("another streamer with the same authority writes its traces there")
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
            logger.error("trace_not_written reason=%s consequence=%s", problem, "records are dropped and counted")
        self.problem = problem


def close_name(path: Path) -> None:
    """Give an open spool file the name of a closed one. Raises OSError."""
    path.rename(path.with_name(path.name.removesuffix(OPEN) + CLOSED))
