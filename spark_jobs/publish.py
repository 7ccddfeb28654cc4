"""Publishing: one date of one table, replaced as a whole.

Rows go to ``_staging/<table>/<date>-<uuid>`` first; the finished folder then takes the place of ``<table>/date=D``, which
waits in staging meanwhile. What a run that was killed left there, the next one removes. Dynamic partition overwrite does
neither that nor empty results.
"""

import datetime as dt
import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs.storage import Storage
from spark_jobs.tables import Table

_ROWS_PER_FILE = 4_000_000


def publish(rows: DataFrame, table: Table, output: str, date: dt.date) -> int:
    """Replace `date` of `table` below `output` by these rows; returns how many there are.

    The rows' columns are taken by name and cast to the table's types; a `date` column is not needed. An empty result gives a
    folder with one empty file, so that a reader finds the date.
    """
    storage = Storage(rows.sparkSession)
    staging = f"{output}/_staging/{table.name}"
    for orphan in storage.names(f"{staging}/{date}-*"):
        storage.delete(f"{staging}/{orphan}")
    fresh = f"{staging}/{date}-{uuid.uuid4().hex}"
    columns = [sf.col(name).cast(kind).alias(name) for name, kind in table.columns.items() if name != "date"]
    # One shuffle more, of a small result: a coalesce(1) would make the aggregation before it run in a single task.
    rows.select(columns).repartition(1).write.option("maxRecordsPerFile", _ROWS_PER_FILE).parquet(fresh)
    written = rows.sparkSession.read.parquet(fresh).count()  # from the footers
    storage.replace(f"{output}/{table.name}/date={date}", fresh)
    return written
