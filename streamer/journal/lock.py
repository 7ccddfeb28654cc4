"""Locks a file against a second daemon: two on one journal would deliver each other's messages.

There are two locks, which end with the process: one on another file beside it, which is there before the file is, and while
that is replaced; and one on the file itself, by whatever name it was opened. The lock file is never removed, to avoid a
race. Of a symbolic link, it is beside the file that the link leads to.

Closing a descriptor of a database releases the locks that SQLite holds on it in this process. So the descriptor of the
file is opened before and closed after SQLite's connection.
"""

import fcntl
import os
import time
from pathlib import Path

from streamer.files import open_regular
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
        self._beside = _Lock()
        self._itself = _Lock()

    def take(self) -> None:
        """Take the lock; take it again if the file or its lock file was removed or replaced. Raises `FileError` and OSError.

        To be called before SQLite connects to the file.
        """
        path = _lock_path(self._locked)
        if not self._beside.is_on(path):
            self._beside.release()
            self._use(self._beside, os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        if not self._itself.is_on(self._locked):
            self._itself.release()
            try:
                descriptor = open_regular(self._locked, os.O_RDONLY)
            except OSError:  # there is no file yet; or it cannot be used, which whoever opens it reports
                return
            self._use(self._itself, descriptor)

    def _use(self, lock: "_Lock", descriptor: int) -> None:
        if not lock.take(descriptor):
            self.release()
            text = f"{self._locked}: another streamer uses it: stop that one, or name another file here"
            raise self._error(text, is_in_use=True)

    def release(self) -> None:
        """Release the lock for other processes."""
        self._itself.release()
        self._beside.release()


class _Lock:
    """The lock on one file, as long as a descriptor of it is open."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def is_on(self, path: Path) -> bool:
        """Whether the lock is held, on the file that is at ``path`` now."""
        return self._descriptor is not None and identity(path) == _identity(os.fstat(self._descriptor))

    def take(self, descriptor: int) -> bool:
        """Lock the file of this descriptor, and return whether nobody else has. It is closed here in any case."""
        if _is_taken(descriptor) or _is_taken(descriptor, _LOOK_S):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def release(self) -> None:
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
    return _is_locked(_lock_path(path)) or _is_locked(path)  # the first also if this process is that daemon


def _is_locked(path: Path) -> bool:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
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
    return look(path)[0]


def look(path: Path | str) -> tuple[Identity, int]:
    """Return the identity and size of the file at ``path``; `NOWHERE` and 0 if there is none. Raises OSError."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return NOWHERE, 0
    return _identity(found), found.st_size


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _lock_path(path: Path) -> Path:
    there = Path(os.path.realpath(path))
    return there.with_name(there.name + ".lock")
