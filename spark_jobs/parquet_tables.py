"""The published tables as Parquet files in ``<output>/<table>/date=D``: a date of a table is replaced as a whole.

All rows are written to ``_staging/<table>/<first date>_<last date>-<uuid>`` at once, partitioned by date; each finished
folder then takes the place of ``<table>/date=D``, which is kept in staging meanwhile. The next run removes what a killed run
has left there. Dynamic partition overwrite could do neither this nor empty results.
"""

import datetime as dt
import io
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.arrow import arrow_schema
from spark_jobs.records import dates_in, empty
from spark_jobs.storage import Storage
from spark_jobs.table_store import Written
from spark_jobs.tables import Table

_ROWS_PER_FILE = 4_000_000
_STAGED = re.compile(r"(\d{4}-\d\d-\d\d)(?:_(\d{4}-\d\d-\d\d))?-")


class ParquetTables:
    """A `TableStore` of folders."""

    def __init__(self, spark: SparkSession | None, output: str) -> None:
        self._output, self._storage = output, Storage(spark)

    def alone(self) -> AbstractContextManager[None]:
        return self._storage.alone(self._output)

    def publish(self, rows: DataFrame, table: Table, dates: Sequence[dt.date]) -> int:
        """A date without rows becomes a folder with one empty file, so that readers find it."""
        storage, staging = self._storage, f"{self._output}/_staging/{table.name}"
        for name in storage.names(f"{staging}/*"):
            if (staged := _STAGED.match(name)) and staged[1] <= str(dates[-1]) and (staged[2] or staged[1]) >= str(dates[0]):
                storage.delete(f"{staging}/{name}")
        fresh = f"{staging}/{dates[0]}_{dates[-1]}-{uuid.uuid4().hex}"
        written = Written(rows, table, dates)
        written.rows.write.option("maxRecordsPerFile", _ROWS_PER_FILE).partitionBy("date").parquet(fresh)
        for date in written.empty:
            storage.write_bytes(f"{fresh}/date={date}/part-0.parquet", _without_rows(table))
        for date in dates:
            storage.replace(f"{self._output}/{table.name}/date={date}", f"{fresh}/date={date}")
        storage.delete(fresh)
        return written.count

    def read(self, spark: SparkSession, table: Table, wanted: Iterable[dt.date] | None = None) -> DataFrame:
        schema = StructType.fromDDL(table.ddl)
        assert isinstance(schema, StructType)  # the stubs say DataType
        if not (folders := self._folders(table, wanted)):
            return empty(spark, schema)
        reader = spark.read.schema(schema).option("basePath", f"{self._output}/{table.name}")
        return reader.parquet(*folders).select(*table.columns)  # the date would otherwise be the last column

    def size_bytes(self, table: Table, wanted: Iterable[dt.date]) -> int:
        return sum(map(self._storage.size_bytes, self._folders(table, wanted)))

    def _folders(self, table: Table, wanted: Iterable[dt.date] | None) -> list[str]:
        present = self.dates(table)
        asked = present if wanted is None else sorted(set(wanted).intersection(present))
        return [f"{self._output}/{table.name}/date={date}" for date in asked]

    def dates(self, table: Table) -> list[dt.date]:
        return dates_in(self._storage, f"{self._output}/{table.name}")

    def files(self, table: Table, date: dt.date, folder: Path) -> list[str]:
        below, found = f"{table.name}/date={date}", []
        for name in self._storage.names(f"{self._output}/{below}/*.parquet"):
            file = self._storage.readable(f"{self._output}/{below}/{name}")
            if not isinstance(file, str):
                (folder / below).mkdir(parents=True, exist_ok=True)
                (folder / below / name).write_bytes(file.getvalue())
                file = str(folder / below / name)
            found.append(file)
        return found

    def withdraw(self, table: Table, dates: Sequence[dt.date]) -> None:
        for date in dates:
            self._storage.delete(f"{self._output}/{table.name}/date={date}")


def _without_rows(table: Table) -> bytes:
    """A Parquet file without rows."""
    content = io.BytesIO()
    pq.write_table(arrow_schema(table.ddl).empty_table().drop_columns(["date"]), content)
    return content.getvalue()
