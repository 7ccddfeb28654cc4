"""Can the traces of each streamer be trusted?

`seq` counts outcomes, while folders go by ingress time: the record of a message that waited over midnight has a seq among
those of the next day. The records of `REACH_BEFORE` days before are therefore read, too (a longer wait looks like a gap),
and those of the day after, for the record that follows the last one. A gap belongs to the date of the outcome before it.
Records that are missing at the end of a run cannot be noticed.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, job
from spark_jobs.batch import seen_from
from spark_jobs.clocks import Sightings, small_frame
from spark_jobs.tables import STREAMER_HEALTH

REACH_BEFORE = 2
REACH_AFTER = 1
_RUN = ("streamer", "run_ts")
_BUCKET_BITS = 12
"""2 to that power records without a gap need not be looked at one by one."""


Keep = Callable[[DataFrame], DataFrame]


def transform(records: DataFrame, sightings: Sequence[Sightings], dates: Sequence[dt.date], keep: Keep) -> DataFrame:
    """Records (`schema.PARTITIONED`) around some dates, and their `clocks.sightings` → `tables.STREAMER_HEALTH` of these
    dates."""
    numbered = _numbered(records)
    hourly = keep(_buckets(numbered))
    seen = seen_from(hourly, dates, -REACH_BEFORE, REACH_AFTER)
    buckets = keep(_joined(seen))
    volume = _volume(hourly.where(sf.col("date").isin(list(dates))))
    # United, not joined: each join would be a query of its own.
    more = (_restarts(buckets), _gaps(numbered, buckets), _skews(records.sparkSession, sightings, dates))
    rows = reduce(lambda x, y: x.unionByName(y, allowMissingColumns=True), more, volume)
    columns = [name for name in rows.columns if name not in ("date", "streamer")]
    health = rows.groupBy("date", "streamer").agg(*(sf.max(name).alias(name) for name in columns))
    return health.where(sf.col("records").isNotNull()).na.fill(0, ["restarts", "gaps", "records_missing", "skew_messages"])


def _numbered(records: DataFrame) -> DataFrame:
    """Run, seq, its bucket, and the date of the outcome, which ascends with seq."""
    ended = sf.to_date(sf.timestamp_add("MICROSECOND", sf.coalesce("latency_us", sf.lit(0)), "ts"))
    bucket = sf.shiftright("seq", _BUCKET_BITS).alias("bucket")
    return records.select("date", "hour", "ts", *_RUN, "seq", bucket, ended.alias("ended"))


def _buckets(numbered: DataFrame) -> DataFrame:
    return numbered.groupBy("date", "hour", *_RUN, "bucket").agg(
        sf.count("*").alias("records"),
        sf.min("seq").alias("first"),
        sf.max("seq").alias("last"),
        sf.max("ended").alias("ended"),
        sf.min("ts").alias("first_ts"),
        sf.max("ts").alias("last_ts"),
    )


def _joined(seen: DataFrame) -> DataFrame:
    """The buckets as they are seen from each date, from their parts by date and hour."""
    return seen.groupBy("date", *_RUN, "bucket").agg(
        sf.sum("records").alias("records"),
        sf.min("first").alias("first"),
        sf.max("last").alias("last"),
        sf.max("ended").alias("ended"),
    )


def _volume(of_dates: DataFrame) -> DataFrame:
    present = sf.collect_set("hour")
    missing = sf.array_sort(sf.array_except(sf.sequence(sf.min("hour"), sf.max("hour")), present))
    return of_dates.groupBy("date", "streamer").agg(
        sf.sum("records").alias("records"),
        sf.size(sf.collect_set("run_ts")).alias("runs"),
        sf.concat_ws(",", missing.cast("array<string>")).alias("missing_hours"),
        sf.min("first_ts").alias("first_ts"),
        sf.max("last_ts").alias("last_ts"),
    )


def _restarts(buckets: DataFrame) -> DataFrame:
    """How many runs began on the date, after another run of which there are records."""
    known = buckets.select("date", *_RUN).distinct()
    known = known.withColumn("first_run_ts", sf.min("run_ts").over(Window.partitionBy("date", "streamer")))
    began = (sf.to_date("run_ts") == sf.col("date")) & (sf.col("run_ts") > sf.col("first_run_ts"))
    return known.groupBy("date", "streamer").agg(sf.sum(sf.when(began, 1).otherwise(0)).alias("restarts"))


def _gaps(numbered: DataFrame, buckets: DataFrame) -> DataFrame:
    """Number and size of the gaps in seq. Only incomplete buckets are looked at record by record."""
    complete = sf.col("records") == 1 << _BUCKET_BITS
    whole = buckets.where(complete).select("date", *_RUN, "first", "last", "ended")
    broken = sf.broadcast(buckets.where(~complete).select(sf.col("date").alias("from"), *_RUN, "bucket"))
    away = sf.datediff("date", "from").between(-REACH_BEFORE, REACH_AFTER)
    single = numbered.join(broken, [*_RUN, "bucket"]).where(away)
    single = single.select(
        sf.col("from").alias("date"), *_RUN, sf.col("seq").alias("first"), sf.col("seq").alias("last"), "ended"
    )
    in_order = Window.partitionBy("date", *_RUN).orderBy("first")
    gap = sf.lead("first").over(in_order) - sf.col("last") - 1
    inside = whole.unionByName(single).withColumn("gap", gap).where(sf.col("ended") == sf.col("date"))
    # runs that began on the date and whose first records are missing
    begun = buckets.where(sf.to_date("run_ts") == sf.col("date"))
    start = begun.groupBy("date", *_RUN).agg(sf.min("first").alias("gap"))
    gaps = inside.select("date", "streamer", "gap").unionByName(start.select("date", "streamer", "gap"))
    of_streamer = gaps.where(sf.col("gap") > 0).groupBy("date", "streamer")
    return of_streamer.agg(sf.count("*").alias("gaps"), sf.sum("gap").alias("records_missing"))


def _skews(spark: SparkSession, sightings: Sequence[Sightings], dates: Sequence[dt.date]) -> DataFrame:
    rows = [
        (date, name, None if each.skew_us is None else each.skew_us / 1000, each.against, each.messages)
        for date in dates
        for name, each in clocks.estimate(row for row in sightings if row.date == date).items()
    ]
    schema = "date DATE, streamer STRING, clock_skew_ms DOUBLE, skew_against STRING, skew_messages BIGINT"
    return small_frame(spark, rows, schema)


JOB = job.Job(
    "streamer_health",
    (STREAMER_HEALTH,),
    lambda batch: (transform(batch.records(REACH_BEFORE, REACH_AFTER), batch.sightings, batch.dates, batch.keep),),
    before=REACH_BEFORE,
    after=REACH_AFTER,
)


def main(argv: Sequence[str] | None = None) -> int:
    return job.main(JOB, argv)


if __name__ == "__main__":
    raise SystemExit(main())
