"""The published tables, in whatever format: what jobs, report and retention need of them, and the two formats' common part.

`parquet_tables.ParquetTables` are folders below the output, `iceberg_tables.IcebergTables` are tables of a catalogue.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from spark_jobs.session import is_small
from spark_jobs.tables import Table


class TableStore(Protocol):
    """The tables that the jobs publish. For any thread. Dates that are given are ascending."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other runs out, if two that publish at once could spoil a table. Raises StorageError if one is there."""

    def publish(self, rows: DataFrame, table: Table, dates: Sequence[dt.date]) -> int:
        """Replace these dates of a table with these rows, whose columns are cast. Returns how many there are."""

    def read(self, spark: SparkSession, table: Table, wanted: Iterable[dt.date] | None = None) -> DataFrame:
        """The rows on these dates (None: all). No rows for dates on which the table was not published."""

    def size_bytes(self, table: Table, wanted: Iterable[dt.date]) -> int:
        """The size of the files that `read` reads."""

    def dates(self, table: Table) -> list[dt.date]:
        """The dates that were published, with or without rows, ascending."""

    def files(self, table: Table, date: dt.date, folder: Path) -> list[str]:
        """The rows of a date as Parquet files of this machine, in a folder ``date=D``: if necessary, one below `folder`."""

    def withdraw(self, table: Table, dates: Sequence[dt.date]) -> None:
        """Delete these dates of a table. Raises StorageError."""


class Written:
    """Rows as a table has them, in one task, and how many were written: a query for it would cost as much as a small table.

    Text is UTF-8 from here on: Spark copies what a foreign trace file has, and others refuse it.
    """

    def __init__(self, rows: DataFrame, table: Table, dates: Sequence[dt.date]) -> None:
        columns = {
            name: sf.make_valid_utf8(name) if kind == "STRING" else sf.col(name) for name, kind in table.columns.items()
        }
        typed = rows.select(*(columns[name].cast(kind).alias(name) for name, kind in table.columns.items()))
        # With coalesce, the aggregation before it runs in a single task; the other takes one more shuffle.
        typed = typed.coalesce(1) if is_small(rows.sparkSession) else typed.repartition(1)
        self._dates, self._written = dates, Observation()
        self.rows = typed.observe(
            self._written, *(sf.count_if(sf.col("date") == sf.lit(date)).alias(str(date)) for date in dates)
        )
        """To be written once."""

    @property
    def empty(self) -> list[dt.date]:
        """The dates without rows, once they are written."""
        return [date for date in self._dates if not self._written.get[str(date)]]

    @property
    def count(self) -> int:
        return sum(self._written.get.values())
