"""Files and folders of tables and traces: replaced as a whole, kept to one run, read by Python. On any file system."""

import fcntl
import io
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs import jvm
from spark_jobs.file_system import ArrowFileSystem, StorageError
from spark_jobs.jvm import file_of, is_missing, reason

__all__ = ["Storage", "StorageError", "file_of", "is_missing", "reason"]


class Storage:
    """The files behind any path that Spark can read. A path without a scheme is on Spark's default file system.

    Without a session, what Arrow can read.
    """

    def __init__(self, spark: SparkSession | None) -> None:
        hadoop = jvm.file_system(spark) if spark else None
        self._files: jvm.HadoopFileSystem | ArrowFileSystem = hadoop or ArrowFileSystem()

    def local(self, path: str) -> str | None:
        """The path on this machine's own file system; None if it is on another one."""
        return self._files.local(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def size_bytes(self, path: str) -> int:
        """The size of a file, or of all files in a folder. Raises StorageError if it does not exist."""
        return self._files.size_bytes(path)

    def names(self, pattern: str) -> list[str]:
        """The last components of the paths that match a pattern, which only the last component has. Sorted."""
        return self._files.names(pattern)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content. Does nothing if it does not exist."""
        self._files.delete(path)

    def replace(self, target: str, fresh: str) -> None:
        """Put `fresh` in the place of `target`. Raises OSError if that fails; `target` is unchanged then.

        Meanwhile the old `target` is kept as ``<fresh>-old``. A kill between the two moves leaves it there, and no `target`.
        On a file system without a quick rename (an object store) this takes longer.
        """
        aside = f"{fresh}-old"
        replaced = self.exists(target)
        if replaced:
            self._files.move(target, aside)
        try:
            self._files.move(fresh, target)
        except BaseException:
            if replaced:
                self._files.move(aside, target)
            raise
        if replaced:
            self.delete(aside)

    def read_text(self, path: str) -> str | None:
        """The text of a UTF-8 file; None if it does not exist. Raises StorageError."""
        if (here := self.local(path)) is None:
            return self._files.read(path).decode(errors="replace") if self.exists(path) else None
        try:
            return Path(here).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from error

    def files(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """All files below a folder: path, size, and when each was modified, in ms since 1970."""
        return self._files.files(folder)

    def readable(self, path: str, size_bytes: int | None = None) -> str | io.BytesIO:
        """A file for Python to read: the path of a local one, the content of any other. `size_bytes`: if it is known."""
        return self.local(path) or io.BytesIO(self._files.read(path, size_bytes=size_bytes))

    def tail(self, path: str, size_bytes: int, wanted_bytes: int) -> io.BytesIO:
        """The end of a Parquet file of that size, with all of its footer, of which the last eight bytes tell the length.

        Raises StorageError.
        """
        end = self._files.read(path, max(0, size_bytes - wanted_bytes), size_bytes)
        footer_bytes = int.from_bytes(end[-8:-4], "little") + 8
        if len(end) < footer_bytes <= size_bytes:
            end = self._files.read(path, size_bytes - footer_bytes, size_bytes)
        return io.BytesIO(end)

    def check_writable(self, folder: str) -> None:
        """Raise StorageError if no file can be made in the folder, which need not exist."""
        probe = f"{folder}/.probe-{uuid.uuid4().hex}"
        try:
            self._files.write(probe, b"")
            self.delete(probe)
        except StorageError as error:
            raise StorageError(str(error).replace(f"{probe}: cannot", f"{folder}: cannot")) from error

    @contextmanager
    def alone(self, folder: str) -> Iterator[None]:
        """Keep other runs out of an existing folder. Raises StorageError if one is in it.

        Two that replace a table at once can put one into the other. The lock ends with the process. There is none where the
        folder is on another file system than this machine's.
        """
        if (here := self.local(folder)) is None:
            yield
            return
        locked = os.open(here, os.O_RDONLY)
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(locked)
            raise StorageError(f"{folder}: another run is writing these tables: try again when it has ended") from None
        try:
            yield
        finally:
            os.close(locked)

    def write_text(self, path: str, text: str, mode: int = 0o640) -> None:
        """Write a file, which appears complete or not at all. Raises StorageError.

        On this machine, readers find the file before or the one after it at any time, and any number of runs may write it.
        `mode`: its permissions there, of which a folder that is made gets those to read, also to enter it.
        """
        if (here := self.local(path)) is not None:
            try:
                write_here(Path(here), text, mode)
            except OSError as error:
                raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
            return
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}-{uuid.uuid4().hex}"
        self.write_bytes(fresh, text.encode())
        self.replace(path, fresh)

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file, and its folders, in place. Raises StorageError."""
        self._files.write(path, content)


def write_here(path: Path, text: str, mode: int) -> None:
    """Replace a file of this machine by one rename. Hadoop's would leave a moment without one, and a checksum of its own."""
    path.parent.mkdir(mode=mode | (mode & 0o444) >> 2, parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).chmod(mode)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # of an earlier version, which Hadoop would compare with
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
