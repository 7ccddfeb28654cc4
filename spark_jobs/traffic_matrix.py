"""Who talks to whom, and how much of it arrives?"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.rollup import failed, total, total_if
from spark_jobs.tables import TRAFFIC_MATRIX


def transform(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `tables.TRAFFIC_MATRIX`."""
    return rollup.groupBy("date", "streamer", "src_authority", "sink_authority").agg(
        total("messages"),
        total("bytes"),
        total_if(sf.col("outcome") == "delivered").alias("delivered"),
        total_if(failed()).alias("failed"),
    )


JOB = job.Job("traffic_matrix", (TRAFFIC_MATRIX,), lambda batch: (transform(batch.rollup),))
