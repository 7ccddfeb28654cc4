"""What a job is, what it gets, and how it runs alone. Each job's file ends with ``JOB = Job(…)`` and a ``main``.

``compute`` takes a `Day` and returns one DataFrame for each table of the job, in order, with at least the table's columns
(`date` may be left out). It calls the file's pure ``transform``; nothing else in the file uses a session or a path.
"""

import datetime as dt
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import arguments, records, rollup
from spark_jobs.manifests import Manifests
from spark_jobs.publish import publish
from spark_jobs.session import session
from spark_jobs.storage import Storage
from spark_jobs.tables import Table

TREND_DAYS = 14
"""How many days before a date its trend tables look back on."""


@dataclass
class Day:
    """One date of the traces, as a job sees it. What several jobs need is computed once."""

    spark: SparkSession
    input: str
    output: str
    date: dt.date
    slo: str | None = None
    _kept: list[DataFrame] = field(default_factory=list)

    def records(self, before: int = 0, after: int = 0) -> DataFrame:
        """The trace records (`schema.PARTITIONED`) of the date, and of so many days before and after it."""
        return records.read(self.spark, self.input, days(self.date, -before, after))

    @cached_property
    def rollup(self) -> DataFrame:
        """The date's records summed up: see `rollup.transform`."""
        return self.keep(rollup.transform(self.records()))

    def table(self, table: Table) -> DataFrame:
        """The published rows of a table for this date."""
        return records.read_table(self.spark, self.output, table, [self.date])

    def past(self, table: Table) -> DataFrame:
        """The published rows of a table for the `TREND_DAYS` days before this date."""
        return records.read_table(self.spark, self.output, table, days(self.date, -TREND_DAYS, -1))

    def keep(self, rows: DataFrame) -> DataFrame:
        """Keep rows that are used more than once, in memory or on disk, until `release`."""
        self._kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
        return rows

    def release(self) -> None:
        while self._kept:
            self._kept.pop().unpersist()


class Job(NamedTuple):
    """One unit of the nightly run."""

    name: str
    tables: tuple[Table, ...]
    compute: Callable[[Day], tuple[DataFrame, ...]]
    before: int = 0
    """It reads records from so many days before the date."""
    after: int = 0
    """It reads records up to so many days after the date."""
    needs: tuple["Job", ...] = ()
    """Jobs whose tables of the same date it reads. They run first."""
    is_trend: bool = False
    """It reads tables of the `TREND_DAYS` days before and no records. It runs again when one of those days does."""


def run(job: Job, day: Day) -> dict[str, int]:
    """Compute and publish one date of a job's tables. Returns the number of rows of each."""
    frames = job.compute(day)
    return {table.name: publish(rows, table, day.output, day.date) for table, rows in zip(job.tables, frames, strict=True)}


def main(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job, and the jobs that it needs, for the dates on the command line. Returns the exit code.

    The next nightly run updates the trend tables that look back on these dates; after a kill or a failure, all tables.
    """
    options = arguments.parse(f"spark_jobs.{job.name}", argv)
    spark = session(f"ustreamer {job.name}")
    manifests = Manifests(Storage(spark), options.output)
    try:
        manifest_of = {date: manifests.get(date) for date in options.dates}
        records.files(spark, options.input, options.dates)
    except (records.InputMissingError, records.NewerVersionError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for date, before in manifest_of.items():
        if before:
            manifests.put(date, replace(before, done=False, trends=False))
        day = Day(spark, options.input, options.output, date, options.slo)
        for each in (*job.needs, job):
            for table, rows in run(each, day).items():
                sys.stdout.write(f"{date} {table}: {rows} rows\n")
        day.release()
        if before:
            manifests.put(date, replace(before, trends=False))
    return 0


def days(date: dt.date, first: int, last: int) -> list[dt.date]:
    """The dates from `first` to `last` days after `date`; negative numbers are days before it."""
    return [date + dt.timedelta(days=offset) for offset in range(first, last + 1)]
