"""The published tables, in whatever format: what jobs, report and retention need of them.

`ParquetTables` are folders below the output, `iceberg_tables.IcebergTables` are tables of a catalogue.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.publish import publish
from spark_jobs.records import dates_in, read_table, table_bytes
from spark_jobs.storage import Storage
from spark_jobs.tables import Table

CHUNK = 1 << 17
"""Rows that are in memory at once, at most."""


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

    def chunks(self, table: Table, date: dt.date) -> Iterator[pa.Table]:
        """The rows of a date, `CHUNK` or fewer at once. The first chunk has the columns of the table as it was written."""

    def withdraw(self, table: Table, dates: Sequence[dt.date]) -> None:
        """Delete these dates of a table. Raises StorageError."""


class ParquetTables:
    """Tables as Parquet files in ``<output>/<table>/date=D``: see `publish`."""

    def __init__(self, spark: SparkSession, output: str) -> None:
        self._spark, self._output, self._storage = spark, output, Storage(spark)

    def alone(self) -> AbstractContextManager[None]:
        return self._storage.alone(self._output)

    def publish(self, rows: DataFrame, table: Table, dates: Sequence[dt.date]) -> int:
        return publish(rows, table, self._output, dates)

    def read(self, spark: SparkSession, table: Table, wanted: Iterable[dt.date] | None = None) -> DataFrame:
        return read_table(spark, self._output, table, wanted)

    def size_bytes(self, table: Table, wanted: Iterable[dt.date]) -> int:
        return table_bytes(self._spark, self._output, table, wanted)

    def dates(self, table: Table) -> list[dt.date]:
        return dates_in(self._storage, f"{self._output}/{table.name}")

    def chunks(self, table: Table, date: dt.date) -> Iterator[pa.Table]:
        folder = f"{self._output}/{table.name}/date={date}"
        for name in self._storage.names(f"{folder}/*.parquet"):
            file = pq.ParquetFile(self._storage.readable(f"{folder}/{name}"))
            yield file.schema_arrow.empty_table()
            yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches(CHUNK))

    def withdraw(self, table: Table, dates: Sequence[dt.date]) -> None:
        for date in dates:
            self._storage.delete(f"{self._output}/{table.name}/date={date}")
