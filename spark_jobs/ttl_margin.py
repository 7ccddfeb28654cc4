"""How close to expiry do messages arrive?

The TTL runs from the creation of the message. What is left of it is the TTL minus the age at ingress minus the latency. A
message without a time in its id is left out, because it is not known when its TTL began. So is one with TTL 0, which never
expires.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.rollup import MARGINS, total_if
from spark_jobs.tables import TTL_MARGIN


def transform(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `tables.TTL_MARGIN`.

    `messages` were delivered and are the sum of the five classes, which do not overlap; `expired` ones come on top. Margins
    are rounded down to whole ms: −1 is late by up to 1 ms. Routes without messages that have a TTL have no row.
    """
    delivered = sf.col("outcome") == "delivered"
    margins = [total_if(delivered, name).alias(name) for name in MARGINS]
    return (
        rollup.groupBy("date", "streamer", "route")
        .agg(
            total_if(sf.col("outcome") == "expired").alias("expired"),
            *margins,
            sf.floor(sf.min(sf.when(delivered, sf.col("least_margin_us"))) / 1000).alias("least_margin_ms"),
        )
        .withColumn("messages", sum((sf.col(name) for name in MARGINS), sf.lit(0)))
        .where((sf.col("messages") > 0) | (sf.col("expired") > 0))
    )


JOB = job.Job("ttl_margin", (TTL_MARGIN,), lambda batch: (transform(batch.rollup),))
