"""Reads trace records of some dates, and lists their files.

On this machine, a file that has the content of another one beside it is left out: its records would count twice. In an
object store this would take a request for each of many small files, so there it is not looked for.
"""

import datetime as dt
import hashlib
import io
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark_jobs.schema import PARTITIONED, VERSION
from spark_jobs.storage import Storage, StorageError

_VERSION = re.compile(r"\.v(\d+)\.parquet$")
_DATE = re.compile(r"date=(\d{4}-\d\d-\d\d)(?:\.json)?$")
SMALL_BYTES = 96 << 20
"""Some four million records: for so many, what counts is planning and compiling."""
_BELOW_DATE = re.compile(r"/date=(?=\d{4}-\d\d-\d\d/)")
_FILES = "*.parquet"  # temporary names end differently, and Spark ignores hidden files
_PATTERN = re.compile(r"([][{}*?\\])")
"""What Spark takes for a pattern in the path of a file."""


class InputMissingError(FileNotFoundError):
    """The folder of the traces does not exist: more likely a mistyped path than a day without messages."""


class NewerVersionError(ValueError):
    """There is a file of a version that these jobs would misread; the text says what to do."""

    def __init__(self, path: str, version: int, known: int) -> None:
        super().__init__(
            f"{path}: format {version} was written by a newer ustreamer; these jobs know formats up to {known}: "
            "run the jobs of that version, or move the file away"
        )


class File(NamedTuple):
    """What tells a file from a later one of the same name."""

    size_bytes: int
    modified_ms: int


class Listing(dict[str, File]):
    """The files of a date, by their path below its folder. Not changed once its hashes were asked for."""

    @cached_property
    def hashes(self) -> np.ndarray:
        """Eight bytes for each file, where a large fleet's paths are gigabytes: 40 bits for its path, 24 for the rest."""
        return np.fromiter(starmap(_hash, self.items()), "<u8", len(self))


def _hash(path: str, file: File) -> int:
    of_path = hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=5).digest()
    return int.from_bytes(of_path) << 24 | zlib.crc32(b"%d,%d" % file) & 0xFFFFFF


def hashes(files: Mapping[str, File] | bytes) -> np.ndarray:
    """The hashes of files, or what a manifest has of them."""
    listed = files if isinstance(files, Listing | bytes) else Listing(files)
    return np.frombuffer(listed, "<u8") if isinstance(listed, bytes) else listed.hashes


def dates(spark: SparkSession, traces: str) -> list[dt.date]:
    """The dates that have a folder, ascending. Raises InputMissingError."""
    return dates_in(_checked(Storage(spark), traces), traces)


LeftOut = dict[dt.date, dict[str, str]]
"""Why files are not to be read, by their date and path below its folder: see `quarantine`."""


def read(spark: SparkSession, traces: str, wanted: Mapping[dt.date, Iterable[str]]) -> DataFrame:
    """The records of these files, by their dates and paths below the dates' folders, as `schema.PARTITIONED`.

    A column that an older file lacks is null; a column that only a newer version has is ignored.
    """
    paths = [
        f"{traces}/date={date}/" + _PATTERN.sub(r"\\\1", path) for date, found in wanted.items() for path in sorted(found)
    ]
    if not paths:
        return empty(spark, PARTITIONED)
    return spark.read.schema(PARTITIONED).option("basePath", traces).parquet(*paths)


def files(spark: SparkSession, traces: str, wanted: Iterable[dt.date], *, strict: bool = True) -> dict[dt.date, Listing]:
    """The files of each of these dates, by their path below its folder. Raises StorageError, and if it is `strict`
    NewerVersionError, as `read` does."""
    wanted = set(wanted)
    found = {date: Listing() for date in sorted(wanted)}
    folders = _folders(spark, traces, wanted)
    here = Storage(spark).local(traces)
    listed = (
        _listed(Storage(spark), folders) if here is None else _listed_here(Path(here, Path(each).name) for each in folders)
    )
    for path, file in listed:
        if strict:
            _check_version(path)
        date, below = _BELOW_DATE.split(path)[-1].split("/", 1)
        found[dt.date.fromisoformat(date)][below] = file
    return found


def _listed(storage: Storage, folders: Iterable[str]) -> Iterator[tuple[str, File]]:
    """The files in folders that are far away. As by Spark, hidden names and empty files are passed over."""
    for folder in folders:
        for path, size_bytes, modified_ms in storage.files(folder):
            below = _BELOW_DATE.split(path)[-1].split("/")
            if size_bytes and path.endswith(_FILES[1:]) and all(map(_is_shown, below)):
                yield path, File(size_bytes, modified_ms)


def _listed_here(folders: Iterable[Path]) -> Iterator[tuple[str, File]]:
    """The same on this machine, where it takes less than Spark's first query. As by Spark, hidden names are passed over and
    links are followed. Raises StorageError if a folder cannot be read: the tables would lack its records."""
    for folder in folders:
        for parent, below, names in os.walk(folder, onerror=_refuse, followlinks=True):
            below[:] = filter(_is_shown, below)
            for path in (Path(parent, name) for name in names if _is_shown(name) and name.endswith(_FILES[1:])):
                try:
                    status = path.stat()
                except OSError as error:
                    _refuse(error)
                else:
                    yield str(path), File(status.st_size, status.st_mtime_ns // 1_000_000)


def copies(spark: SparkSession, traces: str, files: Mapping[dt.date, Mapping[str, File]]) -> dict[dt.date, list[str]]:
    """The files of each date with the content of another one in their folder, which is the first by its name.

    Only files of equal size are opened. Records have their run and `seq`: without a copy, no two files are alike.
    """
    found: dict[dt.date, list[str]] = defaultdict(list)
    here = Storage(spark).local(traces)
    for date, listed in files.items() if here else ():
        alike: dict[tuple[str, int], list[str]] = defaultdict(list)
        for path, file in sorted(listed.items()):
            alike[os.path.dirname(path), file.size_bytes].append(path)
        seen = set()
        for place, path in ((place, path) for place, paths in alike.items() if len(paths) > 1 for path in paths):
            with suppress(OSError):  # deleted since, or a fault for those who read it
                key = place, _digest(f"{here}/date={date}/{path}", listed[path])
                if key in seen:
                    found[date].append(path)
                seen.add(key)
    return found


@cache
def _digest(path: str, _file: File) -> bytes:
    """Of the content of a file. A night first says what it leaves out, and later leaves it out: it is read once for both."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "_"))


def _refuse(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # deleted since, as the oldest files are
        raise StorageError(f"{error.filename}: cannot be read: {error.strerror}") from error


def content_fault(file: str | io.BytesIO) -> str | None:
    """Why a file, by its path on this machine or with its content, cannot be read to its end; None if it can."""
    try:
        for each in pq.ParquetFile(file).iter_batches():
            each.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        return unreadable(error)
    return None


def unreadable(error: Exception) -> str:
    return f"cannot be read: {str(error).partition(chr(10))[0] or type(error).__name__}"


def is_small(traces: str, wanted: Iterable[dt.date]) -> bool:
    """Whether the files of these dates are few and on this machine. Known before Spark starts, which is tuned by it.

    Raises StorageError as `files` does.
    """
    files = _listed_here(Path(traces, f"date={date}") for date in wanted)
    return Path(traces).is_dir() and sum(file.size_bytes for _, file in files) <= SMALL_BYTES


def newer(path: str) -> int | None:
    """The version at the end of a file's name, if these jobs do not know it."""
    version = _VERSION.search(path)
    return int(version[1]) if version is not None and int(version[1]) > VERSION else None


def _check_version(path: str) -> None:
    if (version := newer(path)) is not None:
        raise NewerVersionError(path, version, VERSION)


def _checked(storage: Storage, traces: str) -> Storage:
    if not storage.exists(traces):
        raise InputMissingError(f"there is no folder {traces}: expected traces, as date=…/hour=…/streamer=…")
    return storage


def date_of(name: str) -> dt.date | None:
    """The date of a folder or file ``date=2026-11-21…``; None if that is none."""
    match = _DATE.match(name)
    with suppress(ValueError):
        return None if match is None else dt.date.fromisoformat(match[1])
    return None


def dates_in(storage: Storage, root: str) -> list[dt.date]:
    """The dates that have a folder below `root`, ascending."""
    return [date for name in storage.names(f"{root}/date=*") if (date := date_of(name)) is not None]


def _folders(spark: SparkSession, traces: str, wanted: Iterable[dt.date]) -> list[str]:
    storage = _checked(Storage(spark), traces)
    folders = [f"{traces}/date={date}" for date in sorted(set(wanted))]
    return [folder for folder in folders if storage.exists(folder)]


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows. For `createDataFrame`, Spark would start Python workers."""
    return spark.range(0).select(*(sf.lit(None).cast(field.dataType).alias(field.name) for field in schema))
