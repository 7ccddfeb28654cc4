"""What a job is, what it is given, and how it is run alone. Each job's file ends with ``JOB = Job(…)`` and a ``main``.

``compute`` takes a `Day` and gives one DataFrame per table of the job, in order, with at least the table's columns (`date`
may be left out). It calls the file's pure ``transform``; nothing else in the file touches a session or a path.
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
from spark_jobs.publish import publish
from spark_jobs.runs import Runs
from spark_jobs.session import session
from spark_jobs.storage import Storage
from spark_jobs.tables import Table

MEMORY_DAYS = 14
"""How many days before a date the tables with a memory look at."""


@dataclass
class Day:
    """One date of the traces, as a job sees it; what several jobs need is computed once."""

    spark: SparkSession
    input: str
    output: str
    date: dt.date
    slo: str | None = None
    _kept: list[DataFrame] = field(default_factory=list)

    def records(self, before: int = 0, after: int = 0) -> DataFrame:
        """The trace records (`schema.PARTITIONED`) of the date and so many days before and after it."""
        return records.read(self.spark, self.input, days(self.date, -before, after))

    @cached_property
    def rollup(self) -> DataFrame:
        """The date's records summed up: see `rollup.transform`."""
        return self.keep(rollup.transform(self.records()))

    def table(self, table: Table) -> DataFrame:
        """What was published of a table for this date."""
        return records.read_table(self.spark, self.output, table, [self.date])

    def past(self, table: Table) -> DataFrame:
        """What was published of a table for the `MEMORY_DAYS` days before this date."""
        return records.read_table(self.spark, self.output, table, days(self.date, -MEMORY_DAYS, -1))

    def keep(self, rows: DataFrame) -> DataFrame:
        """Rows that are used more than once: held in memory, or on disk where that is too small, until `release`."""
        self._kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
        return rows

    def release(self) -> None:
        while self._kept:
            self._kept.pop().unpersist()


class Job(NamedTuple):
    """One unit of the nightly set."""

    name: str
    tables: tuple[Table, ...]
    compute: Callable[[Day], tuple[DataFrame, ...]]
    before: int = 0
    """Days of records before the date that it reads."""
    after: int = 0
    """Days of records after the date that it reads."""
    needs: tuple["Job", ...] = ()
    """Jobs whose tables of the same date it reads: they run first."""
    remembers: bool = False
    """It reads tables of the `MEMORY_DAYS` days before, and no records: it runs again when one of those days does."""


def run(job: Job, day: Day) -> dict[str, int]:
    """Compute and publish one date of a job's tables; returns the rows of each."""
    frames = job.compute(day)
    return {table.name: publish(rows, table, day.output, day.date) for table, rows in zip(job.tables, frames, strict=True)}


def main(job: Job, argv: Sequence[str] | None = None) -> int:
    """A job alone, and what it needs, for the dates of the command line; returns the exit code.

    The next night makes the tables good that look back on these dates, and after a kill or a failure all tables.
    """
    options = arguments.parse(f"spark_jobs.{job.name}", argv)
    spark = session(f"ustreamer {job.name}")
    runs = Runs(Storage(spark), options.output)
    for date in options.dates:
        if before := runs.get(date):
            runs.put(date, replace(before, done=False, trends=False))
        day = Day(spark, options.input, options.output, date, options.slo)
        for each in (*job.needs, job):
            for table, rows in run(each, day).items():
                sys.stdout.write(f"{date} {table}: {rows} rows\n")
        day.release()
        if before:
            runs.put(date, replace(before, trends=False))
    return 0


def days(date: dt.date, first: int, last: int) -> list[dt.date]:
    """The dates from so many days after `date` (before, if negative) to so many."""
    return [date + dt.timedelta(days=offset) for offset in range(first, last + 1)]
