"""Did a version or a configuration make it worse? What became of messages, by version and configuration of streamers.

A streamer that was upgraded or reloaded during the day is in several cohorts. What `lost` counts comes from the audit: a
loss belongs to the streamer that handed the message over, whose record tells the cohort. Its date is that of the message.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_jobs import delivery_audit, job
from spark_jobs.batch import Batch
from spark_jobs.latency import SKETCH_K, quantile
from spark_jobs.schema import OUTCOMES
from spark_jobs.spans import REACH_DAYS
from spark_jobs.tables import COHORTS, DELIVERY_AUDIT_DETAIL

KEYS = ("date", "version", "compiled", "config", "route")
_SUMS = ("streamers", "messages", "bytes", *OUTCOMES, "lost", "redelivered")
_PERCENTILES = ("latency_p50_us", "latency_p99_us")


def transform(records: DataFrame, near: DataFrame, detail: DataFrame) -> DataFrame:
    """Trace records, those with the days around them, and `DELIVERY_AUDIT_DETAIL` → `tables.COHORTS`."""
    both = [_counted(records), _lost(near, detail)]
    each = (rows.select(*KEYS, *(_or_null(rows, name) for name in (*_SUMS, *_PERCENTILES))) for rows in both)
    # Of a key, each part has one row, so the sums are those numbers; a join of them would have to take null for equal.
    united = reduce(DataFrame.unionByName, each).groupBy(*KEYS)
    return united.agg(
        *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in _SUMS),
        *(sf.max(name).alias(name) for name in _PERCENTILES),
    )


def _counted(records: DataFrame) -> DataFrame:
    delivered_us = sf.when((sf.col("outcome") == "delivered") & (sf.col("latency_us") >= 0), sf.col("latency_us"))
    counted = records.groupBy(*KEYS).agg(
        # Hashes, of which so many are alike in no fleet: their names would take ten times the memory.
        sf.size(sf.collect_set(sf.xxhash64("streamer"))).cast("bigint").alias("streamers"),
        sf.count("*").alias("messages"),
        sf.sum("payload_bytes").alias("bytes"),
        *(sf.count_if(sf.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
        sf.count_if("redelivered").alias("redelivered"),
        sf.kll_sketch_agg_bigint(delivered_us, SKETCH_K).alias("sketch"),
    )
    shares = zip(_PERCENTILES, (0.5, 0.99), strict=True)
    return counted.withColumns({name: quantile("sketch", share) for name, share in shares})


def _lost(near: DataFrame, detail: DataFrame) -> DataFrame:
    lost = detail.where(sf.col("finding") == "lost").select(
        "date", "msg_id", sf.col("last_streamer").alias("streamer"), sf.col("last_route").alias("route")
    )
    handed_over = near.where(sf.col("outcome") == "delivered").drop("date")
    # A message that was handed over twice was lost once: its first record tells where it belongs.
    first = handed_over.join(sf.broadcast(lost), ["msg_id", "streamer", "route"]).groupBy(
        "date", "msg_id", "streamer", "route"
    )
    told = first.agg(sf.min_by(sf.struct("version", "compiled", "config"), "ts").alias("run")).select(
        "date", "route", "run.*"
    )
    return told.groupBy(*KEYS).agg(sf.count("*").alias("lost"))


def _or_null(rows: DataFrame, name: str) -> Column:
    return sf.col(name) if name in rows.columns else sf.lit(None).cast("bigint").alias(name)


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    near = batch.records(REACH_DAYS, REACH_DAYS)
    return (transform(batch.records(), near, batch.table(DELIVERY_AUDIT_DETAIL)),)


JOB = job.Job("cohorts", (COHORTS,), compute, before=REACH_DAYS, after=REACH_DAYS, needs=(delivery_audit.JOB,))
