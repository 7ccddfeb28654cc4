"""Reads the events beside the records: what happened to streamers and their links (`schema.EVENT`).

They are few. Streamers of earlier versions have none, and neither does a date on which nothing happened. A file that cannot
be read, or of a version that these jobs do not know, is passed over: it costs the rows of its streamer, not the night.
"""

import datetime as dt
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.schema import PARTITIONED_EVENT
from spark_jobs.storage import Storage

FOLDER = "_events"
_FILES = "events-" + "-".join("?" * length for length in (8, 4, 4, 4, 12)) + ".parquet"
"""Those of version 1: later ones are named events-….v2.parquet."""


def read(spark: SparkSession, traces: str, dates: Iterable[dt.date]) -> DataFrame | None:
    """The events of these dates, as `schema.PARTITIONED_EVENT`; None if none of the dates has a folder."""
    storage = Storage(spark)
    root = f"{traces}/{FOLDER}"
    present = set(storage.names(f"{root}/date=*"))
    folders = [f"{root}/date={date}" for date in sorted(set(dates)) if f"date={date}" in present]
    if not folders:
        return None
    reader = spark.read.schema(PARTITIONED_EVENT).option("basePath", root).option("pathGlobFilter", _FILES)
    kept = reader.option("ignoreCorruptFiles", "true").option("ignoreMissingFiles", "true").parquet(*folders)
    return kept.select(*PARTITIONED_EVENT.names)
