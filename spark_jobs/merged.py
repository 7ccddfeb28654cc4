"""Small trace files put together: the copies of their records from which the jobs read a fleet's traces.

A fleet uploads a hundred thousand files a day, and to open one takes Spark longer than to read it. So each is read once: its
records go into a *part*, below the tables, or for files of this machine in a temporary folder:

    <output>/_merged/date=D/<name>-0.parquet, …     the records, with hour and streamer as columns
    <output>/_merged/date=D/<name>.json             the files that they come from; written last

The files themselves stay as and where they are, because a gateway would upload again what is gone. A part never changes,
and without its list it does not count. Of two parts with a file in common, which two runs at once can make, only the first
by its name is used. A part with a file that has changed since, or is left out, is not used. All files that are in no used
part are read themselves. So no record is lost or counted twice, whatever is merged or uploaded at the same time.
"""

import datetime as dt
import io
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import quarantine, records
from spark_jobs.arrow import arrow_schema
from spark_jobs.records import File, LeftOut, dates_in
from spark_jobs.schema import PARTITIONED, TRACE
from spark_jobs.storage import Storage

LEAST = 200
"""Fewer files of a date are not merged: to read them costs less than a part of their own."""
_SMALL_BYTES = 4 << 20
_AT_ONCE = 16
_IN_MEMORY = 1024
"""So many files are in memory at a time."""
_ROWS_PER_GROUP = 1 << 17
_PART_BYTES = 64 << 20
_PLACE = re.compile(r"hour=(\d{1,2})/streamer=([^/]+)/[^/]+$")

Files = Mapping[str, File]
"""Of one date, by their path below its folder."""


class Part(NamedTuple):
    """Files that are put together, and the paths of the Parquet files with their records."""

    files: dict[str, File]
    paths: list[str]


def parts(storage: Storage, output: str, date: dt.date, files: Files, left_out: Iterable[str] = ()) -> list[Part]:
    """The parts of a date that are used. `files`: those that there are now; gone ones do no harm."""
    without, used, found = set(left_out), set[str](), []
    for name in storage.names(f"{_folder(output, date)}/*.json"):
        content = json.loads(storage.read_text(f"{_folder(output, date)}/{name}") or "{}")
        part = Part(
            {path: File(*seen) for path, seen in content["files"].items()},
            [f"{_folder(output, date)}/{each}" for each in content["parts"]],
        )
        own = part.files.keys()
        if used.isdisjoint(own) and without.isdisjoint(own) and all(files.get(p, f) == f for p, f in part.files.items()):
            used |= own
            found.append(part)
    return found


def merge(
    storage: Storage, traces: str, output: str, date: dt.date, files: Files, skip: Iterable[str], least: int
) -> tuple[int, LeftOut]:
    """Put the small files of a date that are in no part yet into a new one, if there are at least `least`.

    Returns how many, and those that cannot be used, with the reason. `skip`: files that are not looked at. What cannot be
    reached is left for those who read it. Raises StorageError if the part cannot be written.
    """
    known = set(skip).union(*(part.files for part in parts(storage, output, date, files)))
    new = [path for path, file in sorted(files.items()) if path not in known and file.size_bytes <= _SMALL_BYTES]
    new = [path for path in new if _PLACE.match(path)]
    if len(new) < least:
        return 0, {}
    writer = _PartWriter(storage, _folder(output, date))
    faults: dict[str, str] = {}
    remaining, here = iter(new), storage.local(traces)
    folder = f"{here or traces}/date={date}"
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="merge") as pool:
        while some := list(islice(remaining, _IN_MEMORY)):
            fetched = pool.map(lambda path: _fetched(None if here else storage, folder, path, files[path]), some)
            for path, found in zip(some, fetched, strict=True):
                if isinstance(found, str):
                    faults[path] = found
                elif found is not None:
                    writer.add(path, files[path], found)
    return writer.finish(), {date: faults} if faults else {}


def known(storage: Storage, output: str, files: Mapping[dt.date, Files]) -> Iterator[dict[dt.date, Files]]:
    """The files that are in parts."""
    for date, found in files.items():
        for part in parts(storage, output, date, found):
            yield {date: part.files}


def read(
    spark: SparkSession,
    traces: str,
    output: str,
    files: Mapping[dt.date, Files],
    left_out: LeftOut | None = None,
) -> DataFrame:
    """The records of these files, as `records.read` gives them."""
    storage, paths, rest = Storage(spark), list[str](), dict[dt.date, set[str]]()
    for date, found in files.items():
        without = set((left_out or {}).get(date, ()))
        used = parts(storage, output, date, found, without)
        paths += [path for part in used for path in part.paths]
        rest[date] = set(found) - without - {path for part in used for path in part.files}
    single = records.read(spark, traces, rest)
    if not paths:
        return single
    merged = spark.read.schema(PARTITIONED).option("basePath", f"{output}/_merged").parquet(*paths)
    return single.unionByName(merged.select(*PARTITIONED.names))


def delete_before(storage: Storage, output: str, first: dt.date) -> None:
    """Delete the parts of the dates before `first`, which nothing reads any more."""
    for date in dates_in(storage, f"{output}/_merged"):
        if date < first:
            storage.delete(_folder(output, date))


def _folder(output: str, date: dt.date) -> str:
    return f"{output}/_merged/date={date}"


def _fetched(storage: Storage | None, folder: str, path: str, file: File) -> pa.Table | str | None:
    """The records of a file with their hour and streamer, or why they cannot be used. None: it cannot be reached now.

    `storage`: None if the folder is on this machine.
    """
    if (fault := quarantine.name_fault(path)) is not None:
        return fault
    try:
        content = f"{folder}/{path}" if storage is None else storage.readable(f"{folder}/{path}", file.size_bytes)
    except OSError:
        return None
    try:
        parquet = pq.ParquetFile(content)
        if (fault := quarantine.footer_fault(parquet.metadata)) is not None:
            return fault
        rows = parquet.read()
        rows.validate(full=True)
        if (fault := quarantine.null_fault({name: rows[name].null_count for name in quarantine.NEEDED})) is not None:
            return fault
    except (pa.ArrowException, OSError) as error:
        return records.unreadable(error)
    place = _PLACE.match(path)
    assert place is not None
    return (
        _whole(rows)
        .append_column("hour", _same(int(place[1]), rows, pa.int32()))
        .append_column("streamer", _same(unquote(place[2]), rows, pa.string()))
    )


def _same(value: Any, rows: pa.Table, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(rows))


def _whole(rows: pa.Table) -> pa.Table:
    """With the columns of `schema.TRACE`, and no others."""
    schema = _schema()
    if (rows.column_names, rows.schema.types) == (schema.names, schema.types):
        return pa.table(rows.columns, schema=schema)
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


@cache
def _schema() -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in arrow_schema(TRACE)])


class _PartWriter:
    """Writes one part, and its list when it is finished."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder, self._name = storage, folder, uuid.uuid4().hex
        self._files: dict[str, File] = {}
        self._parts: list[str] = []
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._content = io.BytesIO()
        self._open: pq.ParquetWriter | None = None

    def add(self, path: str, file: File, rows: pa.Table) -> None:
        """Add the records of a file."""
        self._files[path] = file
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= _ROWS_PER_GROUP:
            self._write()
            if self._content.tell() >= _PART_BYTES:
                self._close()

    def finish(self) -> int:
        """Write the rest, and the list. Returns how many files are in the part."""
        if not self._files:
            return 0
        self._write()
        self._close()
        files = {path: list(file) for path, file in self._files.items()}
        content = json.dumps({"parts": self._parts, "files": files}, separators=(",", ":"))
        self._storage.write_text(f"{self._folder}/{self._name}.json", content)
        return len(self._files)

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._rows = [], 0
        if self._open is None:
            self._open = pq.ParquetWriter(self._content, rows.schema, compression="zstd", store_schema=False)
        self._open.write_table(rows, row_group_size=_ROWS_PER_GROUP)

    def _close(self) -> None:
        if self._open is None:
            return
        self._open.close()
        name = f"{self._name}-{len(self._parts)}.parquet"
        self._storage.write_bytes(f"{self._folder}/{name}", self._content.getvalue())
        self._parts.append(name)
        self._content, self._open = io.BytesIO(), None
