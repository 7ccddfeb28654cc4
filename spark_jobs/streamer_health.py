"""Can the traces of each streamer be trusted?

`seq` counts outcomes, while folders go by ingress time: the record of a message that waited over midnight has a seq among
those of the next day. The records of `REACH_BEFORE` days before are therefore read, too (a longer wait looks like a gap),
and those of the day after, for the record that follows the last one. A gap belongs to the date of the outcome before it.
Records that are missing at the end of a run cannot be noticed.
"""

import datetime as dt
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, job
from spark_jobs.clocks import small_frame
from spark_jobs.tables import STREAMER_HEALTH

REACH_BEFORE = 2
REACH_AFTER = 1
_RUN = ("streamer", "run_ts")
_BUCKET_BITS = 12
"""2 to that power records without a gap need not be looked at one by one."""


Keep = Callable[[DataFrame], DataFrame]


def transform(records: DataFrame, date: dt.date, keep: Keep) -> DataFrame:
    """Records (`schema.PARTITIONED`) around a date → `tables.STREAMER_HEALTH`. Estimates the clocks as well."""
    of_date = records.where(sf.col("date") == sf.lit(date))
    clock = clocks.estimate(clocks.sightings(of_date).collect())
    numbered = _numbered(records, date)
    buckets = keep(_buckets(numbered))
    health = _volume(of_date)
    for more in (_restarts(buckets, date), _gaps(numbered, buckets, date), _skews(records.sparkSession, clock)):
        health = health.join(sf.broadcast(more), "streamer", "left")
    return health.na.fill(0, ["restarts", "gaps", "records_missing", "skew_messages"])


def _volume(of_date: DataFrame) -> DataFrame:
    hours = of_date.groupBy("streamer", "hour", "run_ts").agg(
        sf.count("*").alias("records"), sf.min("ts").alias("first_ts"), sf.max("ts").alias("last_ts")
    )
    present = sf.collect_set("hour")
    missing = sf.array_sort(sf.array_except(sf.sequence(sf.min("hour"), sf.max("hour")), present))
    return hours.groupBy("streamer").agg(
        sf.sum("records").alias("records"),
        sf.countDistinct("run_ts").alias("runs"),
        sf.concat_ws(",", missing.cast("array<string>")).alias("missing_hours"),
        sf.min("first_ts").alias("first_ts"),
        sf.max("last_ts").alias("last_ts"),
    )


def _numbered(records: DataFrame, date: dt.date) -> DataFrame:
    """Run, seq, its bucket, and the day of the outcome, counted from the date; the day ascends with seq."""
    day = sf.to_date(sf.timestamp_add("MICROSECOND", sf.coalesce("latency_us", sf.lit(0)), "ts"))
    offset = sf.datediff(day, sf.lit(date)).cast("long")
    return records.select(*_RUN, "seq", sf.shiftright("seq", _BUCKET_BITS).alias("bucket"), offset.alias("day"))


def _buckets(numbered: DataFrame) -> DataFrame:
    return numbered.groupBy(*_RUN, "bucket").agg(
        sf.count("*").alias("records"), sf.min("seq").alias("first"), sf.max("seq").alias("last"), sf.max("day").alias("day")
    )


def _restarts(buckets: DataFrame, date: dt.date) -> DataFrame:
    """How many runs began on the date, after another run of which there are records."""
    known = buckets.select(*_RUN).distinct()
    known = known.withColumn("first_run_ts", sf.min("run_ts").over(Window.partitionBy("streamer")))
    began = (sf.to_date("run_ts") == sf.lit(date)) & (sf.col("run_ts") > sf.col("first_run_ts"))
    return known.groupBy("streamer").agg(sf.sum(sf.when(began, 1).otherwise(0)).alias("restarts"))


def _gaps(numbered: DataFrame, buckets: DataFrame, date: dt.date) -> DataFrame:
    """Number and size of the gaps in seq. Only incomplete buckets are looked at record by record."""
    complete = sf.col("records") == 1 << _BUCKET_BITS
    whole = buckets.where(complete).select(*_RUN, "first", "last", "day")
    broken = sf.broadcast(buckets.where(~complete).select(*_RUN, "bucket"))
    single = numbered.join(broken, [*_RUN, "bucket"]).select(
        *_RUN, sf.col("seq").alias("first"), sf.col("seq").alias("last"), "day"
    )
    in_order = Window.partitionBy(*_RUN).orderBy("first")
    gap = sf.lead("first").over(in_order) - sf.col("last") - 1
    inside = whole.unionByName(single).withColumn("gap", gap).where((sf.col("day") == 0) & (sf.col("gap") > 0))
    # runs that began on the date and whose first records are missing
    start = (
        buckets.groupBy(*_RUN)
        .agg(sf.min("first").alias("gap"))
        .where((sf.to_date("run_ts") == sf.lit(date)) & (sf.col("gap") > 0))
    )
    gaps = inside.select("streamer", "gap").unionByName(start.select("streamer", "gap"))
    return gaps.groupBy("streamer").agg(sf.count("*").alias("gaps"), sf.sum("gap").alias("records_missing"))


def _skews(spark: SparkSession, clock: dict[str, clocks.ClockEstimate]) -> DataFrame:
    rows = [
        (name, None if each.skew_us is None else each.skew_us / 1000, each.against, each.messages)
        for name, each in clock.items()
    ]
    schema = "streamer STRING, clock_skew_ms DOUBLE, skew_against STRING, skew_messages BIGINT"
    return small_frame(spark, rows, schema)


JOB = job.Job(
    "streamer_health",
    (STREAMER_HEALTH,),
    lambda day: (transform(day.records(REACH_BEFORE, REACH_AFTER), day.date, day.keep),),
    before=REACH_BEFORE,
    after=REACH_AFTER,
)


def main(argv: Sequence[str] | None = None) -> int:
    return job.main(JOB, argv)


if __name__ == "__main__":
    raise SystemExit(main())
