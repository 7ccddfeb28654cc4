"""Publishes some dates of one table: replaces each as a whole.

All rows are written to ``_staging/<table>/<first date>_<last date>-<uuid>`` at once, partitioned by date; each finished
folder then takes the place of ``<table>/date=D``, which is kept in staging meanwhile. The next run removes what a killed run
has left there. Dynamic partition overwrite could do neither this nor empty results.
"""

import datetime as dt
import io
import re
import uuid
from collections.abc import Sequence

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sf

from spark_jobs.arrow import arrow_schema
from spark_jobs.records import dates_in
from spark_jobs.session import is_small
from spark_jobs.storage import Storage
from spark_jobs.tables import Table

_ROWS_PER_FILE = 4_000_000
_STAGED = re.compile(r"(\d{4}-\d\d-\d\d)(?:_(\d{4}-\d\d-\d\d))?-")


def publish(rows: DataFrame, table: Table, output: str, dates: Sequence[dt.date]) -> int:
    """Replace these ascending dates of `table` below `output` with these rows. Returns how many there are.

    The rows' columns are selected by name and cast to the table's types. A date without rows becomes a folder with one empty
    file, so that readers find it.
    """
    storage = Storage(rows.sparkSession)
    staging = f"{output}/_staging/{table.name}"
    for name in storage.names(f"{staging}/*"):
        if (staged := _STAGED.match(name)) and staged[1] <= str(dates[-1]) and (staged[2] or staged[1]) >= str(dates[0]):
            storage.delete(f"{staging}/{name}")
    fresh = f"{staging}/{dates[0]}_{dates[-1]}-{uuid.uuid4().hex}"
    columns = [sf.col(name).cast(kind).alias(name) for name, kind in table.columns.items()]
    # For one file. With coalesce, the aggregation before it runs in a single task; the other takes one more shuffle.
    typed = rows.select(columns)
    typed = typed.coalesce(1) if is_small(rows.sparkSession) else typed.repartition(1)
    # Counted on the way: a query for it would cost as much as a small table.
    written = Observation()
    counted = typed.observe(written, *(sf.count_if(sf.col("date") == sf.lit(date)).alias(str(date)) for date in dates))
    counted.write.option("maxRecordsPerFile", _ROWS_PER_FILE).partitionBy("date").parquet(fresh)
    for date in dates:
        if not written.get[str(date)]:
            storage.write_bytes(f"{fresh}/date={date}/part-0.parquet", _empty(table))
        storage.replace(f"{output}/{table.name}/date={date}", f"{fresh}/date={date}")
    storage.delete(fresh)
    return sum(written.get.values())


def published(storage: Storage, output: str, table: Table) -> list[dt.date]:
    """The dates of a table, ascending."""
    return dates_in(storage, f"{output}/{table.name}")


def withdraw(storage: Storage, output: str, table: Table, date: dt.date) -> None:
    """Delete a date of a table."""
    storage.delete(f"{output}/{table.name}/date={date}")


def _empty(table: Table) -> bytes:
    """A Parquet file without rows."""
    content = io.BytesIO()
    pq.write_table(arrow_schema(table.ddl).empty_table().drop_columns(["date"]), content)
    return content.getvalue()
