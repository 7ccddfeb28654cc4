"""Which links were down, for how long, and what had piled up?

A *session* is the time from when a link went down until it was up again, also over a restart: a streamer that starts tells
of every endpoint that it is down. There is a row on each date that a session touches, made from the events of `EVENT_DAYS`
days before the date and of the date itself. A link that stays down for longer without an event is no longer known.

A message had piled up if it was received before the link was up, after the time that it was up before, and had its outcome
after it: each message counts for the first end of a session that it waited for. Messages that wait for an absent receiver,
not for the link, are among them.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import events, job
from spark_jobs.batch import Batch, around, seen_from
from spark_jobs.session import small_frame
from spark_jobs.tables import LINK_SESSIONS

EVENT_DAYS = 14
REACH_BEFORE = 2
"""How many days before the end of a session a message may have been received to be counted."""
_LINK = ("streamer", "endpoint")
_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000


def transform(told: DataFrame, records: DataFrame) -> DataFrame:
    """Events (`schema.PARTITIONED_EVENT`) as `seen_from` the dates, and trace records → `tables.LINK_SESSIONS`."""
    sessions = _sessions(told)
    ended = sessions.where(sf.col("up_us").isNotNull())
    piles = _piled_up(ended, records)
    found = sessions.join(piles, [*_LINK, "up_us"], "left")
    has_ended = sf.col("up_us").isNotNull()
    counts = {name: sf.when(has_ended, sf.coalesce(name, sf.lit(0))) for name in ("piled_up", "piled_up_bytes")}
    return found.withColumns(
        {
            "down_ts": sf.timestamp_micros("down_us"),
            "up_ts": sf.timestamp_micros("up_us"),
            **counts,
            "drain_s": (sf.col("drained_us") - sf.col("up_us")) / 1e6,
        }
    )


def _sessions(told: DataFrame) -> DataFrame:
    """The sessions that touch a date, in µs. `up_us`: only if they ended that day; `was_up_us`: of the one before."""
    in_order = Window.partitionBy("date", *_LINK).orderBy("run_ts", "seq")
    # A streamer that starts tells of a link what may have been told before. The clock may have been set: not ordered by ts.
    links = told.where(sf.col("event").isin("up", "down") & sf.col("endpoint").isNotNull())
    changes = links.withColumn("before", sf.lag("event").over(in_order)).where(~sf.col("before").eqNullSafe(sf.col("event")))
    us = sf.unix_micros("ts")
    start_us = sf.unix_date("date") * _DAY_US
    end_us = start_us + _DAY_US
    return (
        changes.withColumns({"down_us": us, "up_us": sf.lead(us).over(in_order), "was_up_us": sf.lag(us).over(in_order)})
        .where(sf.col("event") == "down")
        .where((sf.col("down_us") < end_us) & sf.coalesce(sf.col("up_us") >= start_us, sf.lit(True)))
        .withColumn(
            "offline_s",
            sf.greatest(sf.least(sf.coalesce("up_us", end_us), end_us) - sf.greatest("down_us", start_us), sf.lit(0)) / 1e6,
        )
        .withColumn("up_us", sf.when(sf.col("up_us") < end_us, sf.col("up_us")))
        .drop("ts", "event", "before")
    )


def _piled_up(ended: DataFrame, records: DataFrame) -> DataFrame:
    """How many messages waited for the end of each session, their bytes, and when the last of them had its outcome.

    Only messages that were in flight while their link came up are sorted: of an hour with many sessions, all of it.
    """
    span = sf.struct(sf.min("up_us").alias("first_us"), sf.max("up_us").alias("last_us"))
    hourly = ended.groupBy(*_LINK, sf.floor(sf.col("up_us") / _HOUR_US).alias("hour")).agg(span.alias("span"))
    spans = hourly.groupBy(*_LINK).agg(sf.collect_list("span").alias("spans"))
    waited = records.where(sf.col("egress").isNotNull()).select(
        "streamer",
        sf.col("egress").alias("endpoint"),
        sf.unix_micros("ts").alias("at_us"),
        (sf.unix_micros("ts") + sf.coalesce("latency_us", sf.lit(0))).alias("ended_us"),
        sf.col("payload_bytes").alias("bytes"),
    )

    def overlaps(each: Column) -> Column:
        return (sf.col("at_us") <= each["last_us"]) & (sf.col("ended_us") > each["first_us"])

    waited = waited.join(sf.broadcast(spans), [*_LINK]).where(sf.exists("spans", overlaps)).drop("spans")
    end = sf.struct("up_us", "was_up_us")
    ends = ended.select(*_LINK, sf.col("up_us").alias("at_us"), end.alias("end"))
    points = waited.unionByName(ends, allowMissingColumns=True)
    # The first end at or after each message, which is the last one seen when time runs backwards.
    backwards = Window.partitionBy(*_LINK).orderBy(sf.col("at_us").desc(), sf.col("ended_us").asc_nulls_first())
    matched = points.withColumn("end", sf.last("end", ignorenulls=True).over(backwards)).where(
        (sf.col("ended_us") > sf.col("end.up_us"))
        & sf.coalesce(sf.col("at_us") > sf.col("end.was_up_us"), sf.lit(True))
        & (sf.floor(sf.col("end.up_us") / _DAY_US) - sf.floor(sf.col("at_us") / _DAY_US) <= REACH_BEFORE)
    )
    return matched.groupBy(*_LINK, sf.col("end.up_us").alias("up_us")).agg(
        sf.count("*").alias("piled_up"), sf.sum("bytes").alias("piled_up_bytes"), sf.max("ended_us").alias("drained_us")
    )


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    told = events.read(batch.spark, batch.input, around(batch.dates, -EVENT_DAYS, 0))
    if told is None:
        return (small_frame(batch.spark, [], LINK_SESSIONS.ddl),)
    return (transform(seen_from(told, batch.dates, -EVENT_DAYS, 0), batch.records(REACH_BEFORE)),)


JOB = job.Job("link_sessions", (LINK_SESSIONS,), compute, before=REACH_BEFORE)
