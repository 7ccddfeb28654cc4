"""All that needs the Java process beside PySpark: py4j, and names of PySpark's that are not public. No other module has any.

With Spark Connect there is no such process: `file_system` gives None then, and `start` must not be called.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.file_system import StorageError

try:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has neither stubs nor py.typed
except ImportError:  # PySpark's client alone is installed

    class Py4JJavaError(Exception):  # type: ignore[no-redef]  # stands for it: is never raised
        """What py4j raises."""


_CAUSES_MAX = 32
_READING = re.compile(r"reading file:? (\S+\.parquet)")
"""Where Spark names the file that it could not read: in one of the first causes."""
_MISSING = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND")
_CLASSES = ("functions", "PythonUtils", "PythonSQLUtils", "org.apache.spark.sql.functions")
"""PySpark asks Java for them again with every column, and Java then looks through all of Spark's jars."""


def is_running() -> bool:
    """Whether this process has a Java process already: spark-submit has started it, or an earlier session."""
    from pyspark import SparkContext  # noqa: PLC0415  # PySpark's client alone has none

    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def start(results: Mapping[str, str], local: Mapping[str, str], name: str) -> SparkSession:
    """The session of this process, on its Java process, which is started if there is none.

    `results`: settings that are set. `local`: settings for a local master that are set where nothing else is configured.
    Where there is a session already, settings that cannot be changed any more stay as they are.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # as above

    SparkContext._ensure_initialized()  # SparkConf reads spark-defaults and spark-submit's options through the JVM
    conf = SparkConf()
    for key, value in results.items():
        conf.set(key, value)
    if (conf.get("spark.master") or "local[*]").startswith("local"):
        for key, value in local.items():
            conf.setIfMissing(key, value)
    spark = SparkSession.builder.appName(name).config(conf=conf).getOrCreate()
    java: Any = spark.sparkContext._jvm
    for each in _CLASSES:
        setattr(java, each, getattr(java, each))
    return spark


def is_beside(spark: SparkSession) -> bool:
    """Whether the session has a Java process of this machine's."""
    return getattr(spark, "_jvm", None) is not None


def file_system(spark: SparkSession) -> "HadoopFileSystem | None":
    """Hadoop's file systems, as Spark itself uses them: local, hdfs, s3a and abfs alike. None without a Java process."""
    return HadoopFileSystem(spark) if is_beside(spark) else None


def reason(error: BaseException) -> str:
    """Why something failed, in one line. An error of Java's says it in the last of its causes, and names a file before."""
    line = _texts(error)[-1].partition("\n")[0] or type(error).__name__
    path = file_of(error)
    return line if path is None or path in line else f"{path}: {line}"


def file_of(error: BaseException) -> str | None:
    """The file, as a URL, that Spark could not read, if that is what the error is about."""
    found = (_READING.search(text) for text in _texts(error))
    return next((match[1] for match in found if match), None)


def is_missing(error: BaseException) -> bool:
    """Whether something failed because a file is not there."""
    return isinstance(error, FileNotFoundError) or any(_MISSING.search(text) for text in _texts(error))


def _texts(error: BaseException) -> list[str]:
    """The text of an error, and if it is one of Java's, of each of its causes."""
    texts = [str(error)]
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        while cause is not None and len(texts) <= _CAUSES_MAX:
            texts.append(str(cause.toString()))
            cause = cause.getCause()
    return texts


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise an error of Java's as StorageError. `what`: which path, and what is not possible."""
    try:
        yield
    except Py4JJavaError as error:
        raise StorageError(f"{what}: {reason(error)}") from error


class HadoopFileSystem:
    """The file system behind any path that Spark can read. A path without a scheme is on Spark's default file system."""

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        jvm: Any = context._jvm
        # By their full names, and once: each part of a name that is no class is looked for in all of Spark's jars.
        self._path: Any = getattr(jvm, "org.apache.hadoop.fs.Path")
        self._read: Any = getattr(jvm, "org.apache.commons.io.IOUtils")
        self._conf: Any = context._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        with _told(f"{path}: cannot be reached"):
            hadoop_path = self._path(path)
            return hadoop_path.getFileSystem(self._conf), hadoop_path

    def local(self, path: str) -> str | None:
        system, at = self._at(path)
        return str(at.toUri().getPath()) if str(system.getUri().getScheme()) == "file" else None

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        with _told(f"{path}: cannot be looked at"):
            return bool(system.exists(at))

    def size_bytes(self, path: str) -> int:
        system, at = self._at(path)
        with _told(f"cannot look at {path}"):
            return int(system.getContentSummary(at).getLength())

    def names(self, pattern: str) -> list[str]:
        system, at = self._at(pattern)
        with _told(f"{pattern}: cannot be listed"):
            return sorted(status.getPath().getName() for status in system.globStatus(at) or ())

    def delete(self, path: str) -> None:
        system, at = self._at(path)
        with _told(f"{path}: cannot be deleted"):
            system.delete(at, True)

    def move(self, source: str, target: str) -> None:
        system, at = self._at(target)
        with _told(f"cannot move {source} to {target}"):
            system.mkdirs(at.getParent())
            if not system.rename(self._path(source), at):
                raise StorageError(f"cannot move {source} to {target}")

    def files(self, folder: str) -> Iterator[tuple[str, int, int]]:
        system, at = self._at(folder)
        with _told(f"{folder}: cannot be listed"):
            found = system.listFiles(at, True)
            while found.hasNext():
                each = found.next()
                yield str(each.getPath().toString()), int(each.getLen()), int(each.getModificationTime())

    def read(self, path: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        system, at = self._at(path)
        with _told(f"{path}: cannot be read"):
            if size_bytes is None:
                stream = system.open(at)
            else:
                stream = system.openFile(at).opt("fs.option.openfile.length", str(size_bytes)).build().get()
            try:
                stream.seek(start)
                return bytes(self._read.toByteArray(stream))
            finally:
                stream.close()

    def write(self, path: str, content: bytes) -> None:
        system, at = self._at(path)
        with _told(f"{path}: cannot be written"):
            stream = system.create(at, True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
