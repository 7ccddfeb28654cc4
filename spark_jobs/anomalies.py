"""Which hours were unlike the same hour of the 14 days before?

For each streamer, route and hour, the number of messages, the share that failed and the 99th percentile of the latency are
compared by the robust z-score, 0.6745 × (value − median) / MAD. Of so few days, an ordinary value exceeds 4 once a night.

**Days.** A route is compared with those of the 14 days on which any streamer wrote, beginning with the first on which the
route did. On such a day, an hour without a record counts as 0 messages.

**MAD.** That of a few days is often too small by chance. The column holds the largest of the hour's, the usual one of the
route over all hours, what chance alone does to counts, and what does not matter (`_floors`).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import job, latency, traffic
from spark_jobs.batch import Batch
from spark_jobs.schema import FAILURES
from spark_jobs.tables import ANOMALIES, LATENCY, ROUTE_HOURLY

THRESHOLD = 6.0
LEAST_DAYS = 5
LEAST_TRAFFIC = 10
"""An hour without messages is a silence if each of the days had at least so many in it."""
LEAST_DELIVERED = 100
"""The 99th percentile of an hour is compared from so many messages on: with fewer, it is the maximum."""

_SIGMA = 0.6745
"""The MAD of normally distributed values, as a share of their standard deviation."""
_ROUTE = ("streamer", "route")
_SERIES = (*_ROUTE, "hour", "metric")


def transform(today: DataFrame, today_latency: DataFrame, past: DataFrame, past_latency: DataFrame) -> DataFrame:
    """`tables.ROUTE_HOURLY` and `tables.LATENCY` of some dates and of the days before → `tables.ANOMALIES`.

    The rows of the past are as `batch.seen_from` gives them.
    """
    values = _values(_of_today(today), _of_today(today_latency)).withColumn("past", sf.lit(False))
    values = values.unionByName(_filled(_values(past, past_latency), past).withColumn("past", sf.lit(True)))
    of_past = sf.when(sf.col("past"), sf.col("value"))
    of_today = sf.when(~sf.col("past"), sf.col("value"))
    series = values.groupBy("date", *_SERIES).agg(
        sf.max(of_today).alias("value"),
        sf.max(sf.when(~sf.col("past"), sf.col("judged"))).alias("judged"),
        sf.collect_list(of_past).alias("before"),
    )
    median = series.withColumn("days", sf.size("before")).withColumn("median", _median("before"))
    away = sf.transform("before", lambda value: sf.abs(value - sf.col("median")))
    scored = (
        median.withColumn("value", sf.coalesce("value", sf.when(sf.col("metric") == "messages", sf.lit(0.0))))
        .withColumn("mad", _median(away))
        .withColumn("mad", sf.greatest("mad", *_floors()))
        .withColumn("score", sf.lit(_SIGMA) * (sf.col("value") - sf.col("median")) / sf.col("mad"))
    )
    silent = (sf.col("metric") == "messages") & (sf.col("value") == 0) & (sf.array_min("before") >= LEAST_TRAFFIC)
    unlike = (sf.abs("score") >= THRESHOLD) | silent
    wanted = ["date", "hour", *_ROUTE, "metric", "value", "median", "mad", "score", "days"]
    return scored.where((sf.col("days") >= LEAST_DAYS) & sf.col("value").isNotNull() & unlike).select(*wanted)


def _of_today(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", sf.col("date"))


def _values(hours: DataFrame, latencies: DataFrame) -> DataFrame:
    """One row per date, day, hour, route and metric. `judged`: how many messages the value is based on."""
    keys = ("date", "day", *_ROUTE, "hour")
    failed = sum((sf.col(outcome) for outcome in FAILURES), sf.lit(0))
    counts = hours.groupBy(*keys).agg(
        sf.sum("messages").alias("messages"), sf.sum(failed).alias("failed"), sf.sum(failed + sf.col("delivered")).alias("n")
    )
    p99 = latencies.where(sf.col("messages") >= LEAST_DELIVERED).select(
        *keys, sf.lit("latency_p99_us").alias("metric"), _value("latency_p99_us"), sf.col("messages").alias("judged")
    )
    volume = counts.select(*keys, sf.lit("messages").alias("metric"), _value("messages"), sf.col("messages").alias("judged"))
    share = (
        counts.where(sf.col("n") > 0)
        .withColumn("share", sf.col("failed") / sf.col("n"))
        .select(*keys, sf.lit("failed_share").alias("metric"), _value("share"), sf.col("n").alias("judged"))
    )
    return volume.unionByName(share).unionByName(p99)


def _filled(values: DataFrame, past: DataFrame) -> DataFrame:
    """`values` of the days before, with 0 messages for hours in which a route wrote nothing."""
    dates = past.select("date", "day").distinct()
    first = past.groupBy("date", *_ROUTE).agg(sf.min("day").alias("first"))
    hours = sf.explode(sf.sequence(sf.lit(0), sf.lit(23))).alias("hour")
    days = (
        first.join(sf.broadcast(dates), "date").where(sf.col("day") >= sf.col("first")).select("date", "day", *_ROUTE, hours)
    )
    empty = days.select(
        "*", sf.lit("messages").alias("metric"), sf.lit(0.0).alias("value"), sf.lit(0).cast("bigint").alias("judged")
    )
    keys = ("date", "day", *_SERIES)
    return values.unionByName(empty).groupBy(*keys).agg(sf.max("value").alias("value"), sf.max("judged").alias("judged"))


def _floors() -> list[Column]:
    """Lower bounds of the MAD; null where a bound does not apply to the metric (`greatest` ignores nulls)."""
    metric, median, mad = sf.col("metric"), sf.col("median"), sf.col("mad")
    hours = Window.partitionBy("date", *_ROUTE, "metric")
    volume, share, p99 = (metric == name for name in ("messages", "failed_share", "latency_p99_us"))
    enough = sf.col("days") >= LEAST_DAYS
    usual_share = sf.median(sf.when(enough & share, mad)).over(hours)
    usual_relative = sf.median(sf.when(enough & ~share & (median > 0), mad / median)).over(hours)
    judged = sf.greatest("judged", sf.lit(1))
    # Where nothing has ever failed, a single failure is still to be expected.
    binomial = sf.sqrt(sf.greatest(median * (1 - median), 1 / judged) / judged)
    return [
        sf.when(share, usual_share),
        sf.when(~share, usual_relative * median),
        sf.when(volume, sf.greatest(0.05 * median, _SIGMA * sf.sqrt(sf.greatest(median, sf.lit(1.0))))),
        sf.when(share, sf.greatest(_SIGMA * binomial, sf.lit(0.001))),
        sf.when(p99, sf.greatest(0.1 * median, sf.lit(1.0))),
    ]


def _value(column: str) -> Column:
    return sf.col(column).cast("double").alias("value")


def _median(values: Column | str) -> Column:
    """The median of an array (of an even number of values, the mean of the middle two); null if it is empty."""
    ordered = sf.array_sort(values)
    size = sf.size(ordered)
    low, high = sf.floor((size - 1) / 2).cast("int"), sf.floor(size / 2).cast("int")
    return sf.when(size > 0, (sf.get(ordered, low) + sf.get(ordered, high)) / 2)


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    return (transform(batch.table(ROUTE_HOURLY), batch.table(LATENCY), batch.past(ROUTE_HOURLY), batch.past(LATENCY)),)


JOB = job.Job("anomalies", (ANOMALIES,), compute, needs=(traffic.JOB, latency.JOB), is_trend=True)
