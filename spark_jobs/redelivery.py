"""How often were messages sent more than once?"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.rollup import total, total_if
from spark_jobs.tables import REDELIVERY


def transform(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `tables.REDELIVERY`. `retried`: refused at least once."""
    return rollup.groupBy("date", "streamer", "route").agg(
        total("messages"),
        total("redelivered"),
        total_if(sf.col("outcome") == "duplicate").alias("duplicates"),
        total("retried"),
        total("retries"),
        sf.max("max_retries").alias("max_retries"),
    )


JOB = job.Job("redelivery", (REDELIVERY,), lambda batch: (transform(batch.rollup),))
