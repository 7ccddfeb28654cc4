"""Locks a file against a second daemon: two on one journal would deliver each other's messages.

The lock is on another file beside it, and ends with the process. That lock file is never removed, to avoid a race.
"""

import fcntl
import os
import time
from pathlib import Path

from streamer.journal.sqlite import FileError

Identity = tuple[int, int]
"""Device and inode: the file itself, whatever its name."""
NOWHERE: Identity = (0, 0)

_LOOK_S = 0.02
"""Wait before a second attempt to take the lock: longer than `is_in_use` holds it."""


class FileLock:
    """A lock that this process holds from `take` to `release`."""

    def __init__(self, path: Path, error: type[FileError]) -> None:
        self._locked = path
        self._error = error
        self._path = _lock_path(path)
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock; take it again if its file was removed. Raises `FileError` and OSError."""
        if self._descriptor is not None:
            if identity(self._path) == _identity(os.fstat(self._descriptor)):
                return
            self.release()
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if not (_is_taken(descriptor) or _is_taken(descriptor, _LOOK_S)):
            os.close(descriptor)
            text = f"{self._locked}: another streamer uses it: stop that one, or name another file here"
            raise self._error(text, is_in_use=True)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock for other processes."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _is_taken(descriptor: int, after_s: float = 0.0) -> bool:
    time.sleep(after_s)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_use(path: Path) -> bool:
    """Whether a daemon uses the file now. Raises OSError."""
    try:
        descriptor = os.open(_lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # which releases the lock; a daemon that starts at this moment tries it twice
    return False


def identity(path: Path | str) -> Identity:
    """The identity of the file at ``path``; `NOWHERE` if there is none. Raises OSError."""
    try:
        return _identity(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return NOWHERE


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")
