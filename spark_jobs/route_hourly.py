"""How much did each route carry in each hour, and what became of it?"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.rollup import total, total_if
from spark_jobs.schema import OUTCOMES
from spark_jobs.tables import ROUTE_HOURLY


def transform(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `tables.ROUTE_HOURLY`."""
    return rollup.groupBy("date", "hour", "streamer", "route", "ingress", "egress").agg(
        total("messages"),
        total("bytes"),
        *(total_if(sf.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
        total("retries"),
        total("redelivered"),
    )


JOB = job.Job("route_hourly", (ROUTE_HOURLY,), lambda batch: (transform(batch.rollup),))
