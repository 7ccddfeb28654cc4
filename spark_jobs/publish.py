"""Publishes one date of one table: replaces it as a whole.

Rows are written to ``_staging/<table>/<date>-<uuid>``; the finished folder then takes the place of ``<table>/date=D``, which
is kept in staging meanwhile. The next run removes what a killed run has left there. Dynamic partition overwrite could do
neither this nor empty results.
"""

import datetime as dt
import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs.storage import Storage
from spark_jobs.tables import Table

_ROWS_PER_FILE = 4_000_000


def publish(rows: DataFrame, table: Table, output: str, date: dt.date) -> int:
    """Replace `date` of `table` below `output` with these rows. Returns how many there are.

    The rows' columns are selected by name and cast to the table's types; a `date` column is not needed. An empty result
    becomes a folder with one empty file, so that readers find the date.
    """
    storage = Storage(rows.sparkSession)
    staging = f"{output}/_staging/{table.name}"
    for orphan in storage.names(f"{staging}/{date}-*"):
        storage.delete(f"{staging}/{orphan}")
    fresh = f"{staging}/{date}-{uuid.uuid4().hex}"
    columns = [sf.col(name).cast(kind).alias(name) for name, kind in table.columns.items() if name != "date"]
    # One more shuffle, of a small result: with coalesce(1), the aggregation before it would run in a single task.
    rows.select(columns).repartition(1).write.option("maxRecordsPerFile", _ROWS_PER_FILE).parquet(fresh)
    written = rows.sparkSession.read.parquet(fresh).count()  # from the footers
    storage.replace(f"{output}/{table.name}/date={date}", fresh)
    return written
