"""Which uEntities send the most?

Records of messages from outside count: a message with two destinations counts twice, and messages that a streamer made
itself (dead letters, RPC errors) do not count.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import job
from spark_jobs.rollup import total
from spark_jobs.tables import TOP_TALKERS

FIRST = 50
"""How many uEntities per streamer are listed, by messages and by bytes."""


def transform(rollup: DataFrame) -> DataFrame:
    """`rollup.transform` → `tables.TOP_TALKERS`. Ties are broken by address, so that a rerun gives the same rows."""
    talkers = (
        rollup.where(sf.col("ingress").isNotNull())
        .groupBy("date", "streamer", "src_authority", "src_ue_id")
        .agg(total("messages"), total("bytes"))
    )
    ranked = talkers.withColumn("by", sf.explode(sf.array(sf.lit("messages"), sf.lit("bytes")))).withColumn(
        "amount", sf.when(sf.col("by") == "messages", sf.col("messages")).otherwise(sf.col("bytes"))
    )
    of_streamer = Window.partitionBy("date", "streamer", "by")
    # try_divide: if all payloads of a streamer are empty, it has no bytes
    return (
        ranked.withColumn("rank", sf.row_number().over(of_streamer.orderBy(sf.desc("amount"), "src_authority", "src_ue_id")))
        .withColumn("share", sf.try_divide(sf.col("amount"), sf.sum("amount").over(of_streamer)))
        .where(sf.col("rank") <= FIRST)
        .select("date", "streamer", "by", "rank", "src_authority", "src_ue_id", "messages", "bytes", "share")
    )


JOB = job.Job("top_talkers", (TOP_TALKERS,), lambda batch: (transform(batch.rollup),))
