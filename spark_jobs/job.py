"""The interface of a job, its input, and how it runs alone. Each job's file ends with ``JOB = Job(…)`` and a ``main``.

``compute`` takes a `Batch` and returns one DataFrame for each table of the job, in order, with at least the table's columns.
It calls the file's pure ``transform``; nothing else in the file uses a session or a path. The nightly run has those that
`nightly.JOBS` lists; their tables are in `tables`.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import DataFrame

from spark_jobs import arguments, quarantine, records, slo_file, webhook
from spark_jobs.batch import Batch, around, batches, shown
from spark_jobs.java import JavaMissingError
from spark_jobs.manifests import Manifests
from spark_jobs.publish import publish
from spark_jobs.session import session
from spark_jobs.storage import Storage, StorageError
from spark_jobs.tables import Table

CANNOT_BEGIN = (
    slo_file.SloFileError,
    JavaMissingError,
    StorageError,
    records.InputMissingError,
    records.NewerVersionError,
    webhook.WebhookError,
)
"""Faults of the machine, the folders or the command line: their text is all that has to be told."""


class Job(NamedTuple):
    """One unit of the nightly run."""

    name: str
    tables: tuple[Table, ...]
    compute: Callable[[Batch], tuple[DataFrame, ...]]
    before: int = 0
    """It reads records from so many days before the date."""
    after: int = 0
    """It reads records up to so many days after the date."""
    needs: tuple["Job", ...] = ()
    """Jobs whose tables of the same date it reads. They run first."""
    is_trend: bool = False
    """It reads tables of the `TREND_DAYS` days before and no records. It runs again when one of those days does."""


def run(job: Job, batch: Batch) -> Iterator[tuple[Table, int]]:
    """Compute and publish a job's tables. Yields each, with the number of its rows, when it is published."""
    for table, rows in zip(job.tables, job.compute(batch), strict=True):
        yield table, publish(rows, table, batch.output, batch.dates)


def main(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job, and the jobs that it needs, for the dates on the command line.

    Returns the exit code: 1 if files were left out, 2 if it cannot begin or go on. The next nightly run updates the trend
    tables that look back on these dates; after a kill or a failure, all tables.
    """
    options = arguments.parse(f"spark_jobs.{job.name}", argv)
    read = around(options.dates, -job.before, job.after)
    try:
        if options.slo:
            slo_file.load(options.slo)  # a mistake is reported before any table is replaced
        spark = session(f"ustreamer {job.name}", small=records.is_small(options.input, read))
        storage = Storage(spark)
        manifests = Manifests(storage, options.output)
        storage.check_writable(options.output)
        with storage.alone(options.output):
            manifest_of = {date: manifests.get(date) for date in options.dates}
            files = records.files(spark, options.input, read, strict=options.strict)
            left_out = None if options.strict else quarantine.refused(storage, options.input, files)
            before = {date: manifest for date, manifest in manifest_of.items() if manifest}
            for dates in batches(options.dates, files):
                for date in before.keys() & set(dates):
                    manifests.put(date, replace(before[date], done=False, trends=False))
                batch = Batch(spark, options.input, options.output, dates, options.slo, (job.before, job.after), left_out)
                for each in (*job.needs, job):
                    for table, rows in run(each, batch):
                        sys.stdout.write(f"{shown(dates)} {table.name}: {rows} rows\n")
                batch.release()
                for date in before.keys() & set(dates):
                    manifests.put(date, replace(before[date], trends=False))
    except CANNOT_BEGIN as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for line in quarantine.told(left_out or {}, options.input):
        sys.stderr.write(f"{line}\n")
    return 1 if left_out else 0
