"""The interface of a job. Each job's file ends with ``JOB = Job(…)``.

``compute`` takes a `Batch` and returns one DataFrame for each table of the job, in order, with at least the table's columns.
It calls the file's pure ``transform``; nothing else in the file uses a session or a path. The nightly run has those that
`nightly.JOBS` lists; their tables are in `tables`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark.sql import DataFrame

from spark_jobs import records, slo_file, webhook
from spark_jobs.batch import Batch
from spark_jobs.iceberg_tables import CatalogError
from spark_jobs.java import JavaMissingError
from spark_jobs.storage import StorageError
from spark_jobs.tables import Table

CANNOT_BEGIN = (
    slo_file.SloFileError,
    JavaMissingError,
    StorageError,
    records.InputMissingError,
    records.NewerVersionError,
    webhook.WebhookError,
    CatalogError,
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
        yield table, batch.tables.publish(rows, table, batch.dates)
