"""Opens and reads the files that a configuration names, so that none of them can block the daemon.

The law of this file:
- Only regular files are opened. Pipes and devices are refused with an OSError, without waiting for their other end.
- Reading may still hang, for instance on a network mount that does not answer. So the daemon reads on threads that nobody
  has to join (`in_thread`), one at a time for each purpose, with a time limit (`Files`).
"""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")

MOST_BYTES = 16 << 20
PATIENCE_S = 10.0
"""The default time limit for reading or writing a file."""


def open_regular(path: Path | str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file, and return its descriptor. Raises OSError, also for another kind of file."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    except OSError as exc:
        if exc.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise OSError(errno.EINVAL, "not a regular file", str(path)) from None
        raise
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_to_read(path: Path | str) -> BinaryIO:
    """Open a regular file to read its bytes. Raises OSError, also for another kind of file."""
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes. Raises OSError."""
    with open_to_read(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return content


def read_up_to(path: Path, most: int) -> bytes:
    """Return the first ``most`` bytes of a file, also of a pipe, for whose other end this waits. Raises OSError."""
    with path.open("rb") as file:
        return file.read(most)


def digest(path: Path) -> bytes:
    """Return the digest of a file's content; empty if the file cannot be read, which is reported when it is needed."""
    try:
        return blake2b(read_file(path), digest_size=16).digest()
    except OSError:
        return b""


class Files:
    """Runs file operations on a thread, one at a time, so that a file system that hangs blocks only one thread."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._running: asyncio.Future[Any] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` after earlier calls, and return its result. Raises what it raises.

        Raises OSError (ETIMEDOUT) if there is no result in time; then the thread continues alone.
        """
        try:
            async with asyncio.timeout(self._patience_s) as limit:
                while self._running is not None and not self._running.done():
                    await asyncio.wait((self._running,))
                running: asyncio.Future[T] = asyncio.ensure_future(in_thread(work))
                running.add_done_callback(_retrieve)
                self._running = running
                return await asyncio.shield(running)
        except TimeoutError:
            if not limit.expired():
                raise
            text = f"no answer within {self._patience_s:g} s: does its file system hang?"
            raise OSError(errno.ETIMEDOUT, text) from None


def _retrieve(future: "asyncio.Future[T]") -> None:
    """Retrieve the exception of a call whose caller has timed out, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


async def in_thread(work: Callable[[], T], discard: Callable[[T], None] = lambda result: None) -> T:
    """Run ``work``, which may block, on a thread, and return its result.

    ``discard`` gets a result that comes after this coroutine was cancelled. The thread does not delay the process's end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.done():
            if error is None:
                discard(result)  # type: ignore[arg-type]  # a result that is None is one, too
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as exc:  # noqa: BLE001  # it is raised where the result is awaited
            error = exc
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:  # the loop is closed
            if error is None:
                discard(result)  # type: ignore[arg-type]

    threading.Thread(target=run, name="files", daemon=True).start()
    return await future
