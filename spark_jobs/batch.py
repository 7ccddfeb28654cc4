"""Dates of the traces that are computed together, as the jobs see them. What several jobs need is computed once.

Spark's fixed cost, planning and compiling, is then paid once for all of them. A batch is bounded by `SMALL_BYTES`, so that a
night of many large dates takes no more memory than one of them, and a kill loses no more than one batch. A larger date is
a batch of its own.
"""

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from tempfile import TemporaryDirectory
from threading import RLock

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs import clocks, merged, records, rollup
from spark_jobs.clocks import Sightings
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.records import SMALL_BYTES, File, LeftOut
from spark_jobs.session import is_small, light
from spark_jobs.storage import Storage, StorageError
from spark_jobs.table_store import TableStore
from spark_jobs.tables import ROLLUP, TREND_DAYS, Table

DATES_AT_ONCE = 30
"""Of a query: its plan grows with them, and of trend tables, each date looks back on 14 days."""
_LIGHT_ROWS = 100_000
_LIGHT_BYTES = 4 << 20
"""Up to so many rows of the roll-up, or bytes of a table's files, queries are `light`, whatever the size of the input."""


@dataclass
class Batch:
    """Some dates, ascending. `reach`: how many days before and after them its records are read at most. For any thread.

    `left_out`: files that are not read (`quarantine`), and gets those that turn out to be broken. None: these are faults.
    """

    spark: SparkSession
    input: str
    output: str
    dates: tuple[dt.date, ...]
    slo: str | None = None
    reach: tuple[int, int] = (0, 0)
    left_out: LeftOut | None = None
    store: TableStore | None = None
    """Where the published tables are. None: in Parquet files below `output`."""
    listed: Mapping[dt.date, Mapping[str, File]] | None = None
    """The files of every date that is read. None: whatever is in the dates' folders then."""
    _read: dict[tuple[dt.date, ...], DataFrame] = field(default_factory=dict)
    _ends: ExitStack = field(default_factory=ExitStack)
    _lock: RLock = field(default_factory=RLock)
    _asking: RLock = field(default_factory=RLock)
    _counting: RLock = field(default_factory=RLock)
    """Locks of their own: a query that runs must not keep other jobs from the records."""

    @cached_property
    def tables(self) -> TableStore:
        return self.store or ParquetTables(self.spark, self.output)

    def records(self, before: int = 0, after: int = 0) -> DataFrame:
        """The trace records (`schema.PARTITIONED`) of the dates, and of so many days before and after each of them."""
        dates = tuple(around(self.dates, -before, after))
        with self._lock:
            if self._here is None:
                return self._everything.where(sf.col("date").isin(list(dates)))
            if dates not in self._read:
                self._read[dates] = self._put_together(dates, self._here)
            return self._read[dates]

    @cached_property
    def _here(self) -> str | None:
        """The folder for small files of this machine that are put together; None if the traces are elsewhere."""
        if Storage(self.spark).local(self.input) is None:
            return None
        return self._ends.enter_context(TemporaryDirectory(prefix="ustreamer-nightly-"))

    def _put_together(self, dates: Sequence[dt.date], folder: str) -> DataFrame:
        """The records of these dates. A file that cannot be read is a fault only for those who ask for its date."""
        read = self._files(dates)
        for date, copied in records.copies(self.spark, self.input, read).items():
            read[date] = {path: file for path, file in read[date].items() if path not in copied}
        for date, files in read.items():
            without = (self.left_out or {}).get(date, {})
            least = 1 if is_small(self.spark) else merged.LEAST
            merge = merged.merge(Storage(self.spark), self.input, folder, date, files, without, least)
            faults = merge[1].get(date, {})
            if faults and self.left_out is None:
                raise StorageError("; ".join(f"{self.input}/date={date}/{path}: {why}" for path, why in faults.items()))
            if faults and self.left_out is not None:
                self.left_out.setdefault(date, {}).update(faults)
        return merged.read(self.spark, self.input, folder, read, self.left_out)

    def _files(self, dates: Sequence[dt.date]) -> dict[dt.date, Mapping[str, File]]:
        listed = self.listed
        if listed is None:
            listed = records.files(self.spark, self.input, dates, strict=self.left_out is None)
        return {date: listed.get(date, {}) for date in dates}

    @cached_property
    def _everything(self) -> DataFrame:
        files = self._files(around(self.dates, -self.reach[0], self.reach[1]))
        return merged.read(self.spark, self.input, self.output, files, self.left_out)

    @property
    def rollup(self) -> DataFrame:
        """The dates' records summed up: see `rollup.transform`."""
        with self._counting:
            return self._rollup

    @property
    def alike(self) -> DataFrame:
        """The rows of `sightings`, as many as there are."""
        with self._asking:
            return self._alike

    @property
    def sightings(self) -> list[Sightings]:
        """Who saw messages of whom, on the dates and as many days around them as can be read, up to one."""
        with self._asking:
            return self._sightings

    @cached_property
    def _rollup(self) -> DataFrame:
        name = f"rollup_{uuid.uuid4().hex}"
        with self._lock:
            kept = self._kept_rollup
        kept.createGlobalTempView(name)
        self._ends.callback(self.spark.catalog.dropGlobalTempView, name)
        is_light = is_small(self.spark) or kept.count() <= _LIGHT_ROWS
        return together((light(self.spark) if is_light else self.spark).table(f"global_temp.{name}"))

    @cached_property
    def _kept_rollup(self) -> DataFrame:
        return self.keep(rollup.transform(self.records()))

    @cached_property
    def _alike(self) -> DataFrame:
        with self._lock:
            seen = clocks.alike_in(self._kept_rollup)
        before, after = (min(1, days) for days in self.reach)
        if before or after:
            near = self.records(before, after).where(~sf.col("date").isin(list(self.dates)))
            seen = seen.unionByName(clocks.alike(near))
        return self.keep(seen)

    @cached_property
    def _sightings(self) -> list[Sightings]:
        return clocks.sightings(self._alike)

    def table(self, table: Table) -> DataFrame:
        """The published rows of a table for these dates."""
        return self._published(table, self.dates)

    def past(self, table: Table) -> DataFrame:
        """The published rows of a table for the `TREND_DAYS` days before each date, as `seen_from` gives them."""
        return seen_from(self._published(table, around(self.dates, -TREND_DAYS, -1)), self.dates, -TREND_DAYS, -1)

    def _published(self, table: Table, dates: Sequence[dt.date]) -> DataFrame:
        if table.query:
            seen = rollup.view(table, self._published(ROLLUP, dates)).select(*table.columns)
            # What an earlier version made of a date whose records may be gone.
            before = set(self.tables.dates(table)).difference(self.tables.dates(ROLLUP))
            earlier = [date for date in dates if date in before]
            return seen.unionByName(self.tables.read(seen.sparkSession, table, earlier)) if earlier else seen
        is_light = is_small(self.spark) or self.tables.size_bytes(table, dates) <= _LIGHT_BYTES
        return together(self.tables.read(light(self.spark) if is_light else self.spark, table, dates))

    def keep(self, rows: DataFrame) -> DataFrame:
        """Keep rows that are used more than once, in memory or on disk, until `release`."""
        self._ends.callback(rows.persist(StorageLevel.MEMORY_AND_DISK).unpersist)
        return together(rows)

    def release(self) -> None:
        """Let go of all of that, and of the files that were gathered."""
        self._ends.close()


def together(rows: DataFrame) -> DataFrame:
    """Of few rows, in one partition: whatever they are grouped by, they need not be shuffled any more."""
    return rows.coalesce(1) if is_small(rows.sparkSession) else rows


def days(date: dt.date, first: int, last: int) -> list[dt.date]:
    """The dates from `first` to `last` days after `date`; negative numbers are days before it."""
    return [date + dt.timedelta(days=offset) for offset in range(first, last + 1)]


def around(dates: Iterable[dt.date], first: int, last: int) -> list[dt.date]:
    """All dates from `first` to `last` days after one of these, ascending."""
    return sorted({each for date in dates for each in days(date, first, last)})


def seen_from(rows: DataFrame, dates: Sequence[dt.date], first: int, last: int) -> DataFrame:
    """Each row once for every one of `dates` that it is `first` to `last` days after. That becomes its `date`; its own is in
    `day`."""
    readers = sf.explode(sf.sequence(sf.date_sub("date", last), sf.date_sub("date", first)))
    return rows.withColumns({"day": sf.col("date"), "date": readers}).where(sf.col("date").isin(list(dates)))


def size_bytes(dates: Iterable[dt.date], files: Mapping[dt.date, Mapping[str, File]]) -> int:
    """The size of all files of these dates."""
    return sum(file.size_bytes for date in dates for file in files.get(date, {}).values())


def batches(dates: Iterable[dt.date], files: Mapping[dt.date, Mapping[str, File]]) -> list[tuple[dt.date, ...]]:
    """Put ascending dates together, up to `DATES_AT_ONCE`, as long as their files have no more than `SMALL_BYTES`."""
    made: list[list[dt.date]] = []
    size = 0
    for date in sorted(dates):
        own = size_bytes([date], files)
        if not made or size + own > SMALL_BYTES or len(made[-1]) == DATES_AT_ONCE:
            made.append([])
            size = 0
        made[-1].append(date)
        size += own
    return [tuple(each) for each in made]


def shown(dates: Sequence[dt.date]) -> str:
    """The dates of a batch, for people: the first and the last."""
    return str(dates[0]) if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
