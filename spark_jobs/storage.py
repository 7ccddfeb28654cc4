"""Files and folders through Hadoop's FileSystem, as Spark itself uses it: local, hdfs, s3a and abfs alike."""

import fcntl
import io
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has neither stubs nor py.typed
from pyspark.sql import SparkSession

_CAUSES_MAX = 32


class StorageError(OSError):
    """A file or folder cannot be used; the text says which and why."""


_READING = re.compile(r"reading file:? (\S+\.parquet)")
"""Where Spark names the file that it could not read: in one of the first causes."""


def reason(error: BaseException) -> str:
    """Why something failed, in one line. An error of Java's says it in the last of its causes, and names a file before."""
    text, path = str(error), None
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        for _ in range(_CAUSES_MAX):
            path = path or _READING.search(str(cause.toString()))
            cause = cause.getCause() or cause
        text = str(cause.toString())
    line = text.partition("\n")[0] or type(error).__name__
    return line if path is None or path[1] in line else f"{path[1]}: {line}"


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise an error of Java's as StorageError. `what`: which path, and what is not possible."""
    try:
        yield
    except Py4JJavaError as error:
        raise StorageError(f"{what}: {reason(error)}") from error


class Storage:
    """The file system behind any path that Spark can read. A path without a scheme is on Spark's default file system."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        jvm: Any = context._jvm
        # By their full names, and once: each part of a name that is no class is looked for in all of Spark's jars.
        self._path: Any = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._read: Any = getattr(jvm, "org.apache.commons.io.IOUtils")
        self._conf: Any = context._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._path(path)
        with _told(f"{path}: cannot be reached"):
            return hadoop_path.getFileSystem(self._conf), hadoop_path

    def local(self, path: str) -> str | None:
        """The path on this machine's own file system; None if it is on another one."""
        system, at = self._at(path)
        return str(at.toUri().getPath()) if str(system.getUri().getScheme()) == "file" else None

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        with _told(f"{path}: cannot be looked at"):
            return bool(system.exists(at))

    def size_bytes(self, path: str) -> int:
        """The size of a file, or of all files in a folder. Raises OSError if it does not exist."""
        system, at = self._at(path)
        try:
            return int(system.getContentSummary(at).getLength())
        except Py4JJavaError as error:
            raise OSError(f"cannot look at {path}: {error.java_exception.getMessage()}") from error

    def names(self, pattern: str) -> list[str]:
        """The last components of the paths that match a glob, sorted."""
        system, at = self._at(pattern)
        with _told(f"{pattern}: cannot be listed"):
            return sorted(status.getPath().getName() for status in system.globStatus(at) or ())

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content. Does nothing if it does not exist. Raises StorageError."""
        system, at = self._at(path)
        with _told(f"{path}: cannot be deleted"):
            system.delete(at, True)

    def replace(self, target: str, fresh: str) -> None:
        """Put `fresh` in the place of `target`. Raises OSError if that fails; `target` is unchanged then.

        Meanwhile the old `target` is kept as ``<fresh>-old``. A kill between the two moves leaves it there, and no `target`.
        On a file system without a quick rename (an object store) this takes longer.
        """
        system, at = self._at(target)
        _, source = self._at(fresh)
        _, aside = self._at(f"{fresh}-old")
        system.mkdirs(at.getParent())
        replaced = system.exists(at)
        if replaced and not system.rename(at, aside):
            raise OSError(f"cannot move {target} aside")
        moved = False
        try:
            moved = bool(system.rename(source, at))
        except Py4JJavaError as error:
            raise OSError(f"cannot move {fresh} to {target}: {error.java_exception.getMessage()}") from error
        finally:
            if replaced and not moved:
                system.rename(aside, at)
        if not moved:
            raise OSError(f"cannot move {fresh} to {target}")
        if replaced:
            system.delete(aside, True)

    def read_text(self, path: str) -> str | None:
        """The text of a UTF-8 file; None if it does not exist."""
        system, at = self._at(path)
        if not system.exists(at):
            return None
        stream = system.open(at)
        try:
            return str(self._read.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def readable(self, path: str) -> str | io.BytesIO:
        """A file for Python to read: the path of a local one, the content of any other."""
        if (here := self.local(path)) is not None:
            return here
        system, at = self._at(path)
        stream = system.open(at)
        try:
            return io.BytesIO(self._read.toByteArray(stream))
        finally:
            stream.close()

    def tail(self, path: str, size_bytes: int, wanted_bytes: int) -> io.BytesIO:
        """The end of a Parquet file of that size, with all of its footer, of which the last eight bytes tell the length.

        Raises StorageError.
        """
        system, at = self._at(path)
        with _told(f"{path}: cannot be read"):
            end = self._from(system, at, max(0, size_bytes - wanted_bytes))
            footer_bytes = int.from_bytes(end[-8:-4], "little") + 8
            if len(end) < footer_bytes <= size_bytes:
                end = self._from(system, at, size_bytes - footer_bytes)
        return io.BytesIO(end)

    def _from(self, system: Any, at: Any, start: int) -> bytes:
        stream = system.open(at)
        try:
            stream.seek(start)
            return bytes(self._read.toByteArray(stream))
        finally:
            stream.close()

    def check_writable(self, folder: str) -> None:
        """Raise StorageError if no file can be made in the folder, which need not exist."""
        self._at(folder)
        probe = f"{folder}/.probe-{uuid.uuid4().hex}"
        with _told(f"{folder}: cannot be written"):
            self._create(probe, b"")
            self.delete(probe)

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

    def write_text(self, path: str, text: str) -> None:
        """Write a file, which appears complete or not at all."""
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}-{uuid.uuid4().hex}"
        self.write_bytes(fresh, text.encode())
        self.replace(path, fresh)

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file, and its folders, in place. Raises StorageError."""
        with _told(f"{path}: cannot be written"):
            self._create(path, content)

    def _create(self, path: str, content: bytes) -> None:
        system, at = self._at(path)
        stream = system.create(at, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
