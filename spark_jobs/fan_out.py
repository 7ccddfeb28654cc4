"""Which Publishes did only a part of the gateways get that usually do, and which gateways lack them?

The audit says that a message is delivered as soon as one destination has it. For a topic that goes to a fleet, this table
has the share. A gateway *usually* gets a topic if it has records of at least half of its Publishes, of those made on the
date and the days before and after; the publisher's own is none of them. It *lacks* one that was made while it wrote records,
and of which it has none. What was made before its first record, or less than `GRACE_US` before the time until which its hour
is complete (`completeness`) or before its last record, is unknown.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from spark_jobs import job, streamer_health
from spark_jobs.batch import days, seen_from
from spark_jobs.clocks import Sightings
from spark_jobs.session import broadcast, small_frame
from spark_jobs.spans import REACH_DAYS, Spans
from spark_jobs.tables import COMPLETENESS, FAN_OUT, FAN_OUT_MISSING

LEAST = 4
"""Topics of fewer gateways are of a chain, and the audit tells their losses."""
GRACE_US = 600_000_000
_HOUR_US = 3_600_000_000
_TOPIC = ("date", "src_authority", "src_ue_id", "src_resource_id")
_SOURCES = "date DATE, src_authority STRING"
_SPANS = "date DATE, streamer STRING, first_us BIGINT, last_us BIGINT"


def transform(
    records: DataFrame, sightings: Sequence[Sightings], dates: Sequence[dt.date], completeness: DataFrame | None = None
) -> tuple[DataFrame, DataFrame]:
    """Records (`schema.PARTITIONED`) around some dates, their `clocks.sightings`, and `tables.COMPLETENESS` →
    `tables.FAN_OUT` and `tables.FAN_OUT_MISSING` of these dates."""
    spark = records.sparkSession
    sources, is_crowded = _sources(sightings, dates)
    if not sources and not is_crowded:
        return small_frame(spark, [], FAN_OUT.ddl), small_frame(spark, [], FAN_OUT_MISSING.ddl)
    seen = _seen(records, dates)
    if not is_crowded:
        seen = seen.join(broadcast(spark, sources, _SOURCES), ["date", "src_authority"])
    usual = _usual(seen)
    today = seen.where(sf.col("made_on") == sf.col("date")).withColumn("hour", sf.hour("msg_ts"))
    made_us = sf.unix_micros("msg_ts")
    hours = today.groupBy(*_TOPIC, "hour").agg(
        sf.count_distinct("msg_id").alias("publishes"), sf.min(made_us).alias("from_us"), sf.max(made_us).alias("until_us")
    )
    had = today.groupBy(*_TOPIC, "hour", "streamer").agg(sf.count("*").alias("had"))
    spans = broadcast(spark, Spans(sightings, [], {date: {} for date in dates}).of_streamers(), _SPANS)
    keys = [*_TOPIC, "hour", "streamer"]
    if completeness is None:
        completeness = small_frame(spark, [], COMPLETENESS.ddl)
    known = completeness.select(
        "date", "hour", "streamer", sf.col("complete_until").isNull().alias("is_open"), "complete_until"
    )
    each = (
        hours.join(usual, list(_TOPIC))
        .join(had, keys, "left")
        .join(spans, ["date", "streamer"], "left")
        .join(known, ["date", "hour", "streamer"], "left")
        .withColumn("missing", sf.col("publishes") - sf.coalesce("had", sf.lit(0)))
        .withColumn("judged", (sf.col("missing") == 0) | sf.coalesce(_covered(), sf.lit(False)))
    )
    judged = each.where("judged")
    summed = each.groupBy(*_TOPIC, "hour").agg(
        sf.max("publishes").alias("publishes"),
        sf.count_if("judged").alias("gateways"),
        sf.count_if(~sf.col("judged")).alias("unknown"),
        _total("publishes").alias("expected"),
        _total("missing").alias("missing"),
        sf.count_if(sf.col("judged") & (sf.col("missing") > 0)).alias("lacking"),
    )
    table = summed.where(sf.col("gateways") > 0).withColumn("share", 1 - sf.col("missing") / sf.col("expected"))
    return table, judged.where("missing > 0")


def _total(column: str) -> Column:
    return sf.coalesce(sf.sum(sf.when(sf.col("judged"), sf.col(column))), sf.lit(0))


def _covered() -> Column:
    """Whether a gateway has all records from before the first Publish of an hour until long after the last one."""
    wanted_us = sf.col("until_us") + GRACE_US
    end_us = (sf.unix_date("date").cast("bigint") * 24 + sf.col("hour") + 1) * _HOUR_US
    until_us = sf.coalesce(sf.unix_micros("complete_until"), sf.when(sf.col("is_open"), sf.lit(0)), end_us)
    is_complete = until_us >= sf.least(wanted_us, end_us)
    return (sf.col("first_us") <= sf.col("from_us")) & (sf.col("last_us") >= wanted_us) & is_complete


def _seen(records: DataFrame, dates: Sequence[dt.date]) -> DataFrame:
    """Each Publish once for each streamer that has a record of it, as each date sees it."""
    publishes = records.where((sf.col("msg_type") == "publish") & sf.col("msg_ts").isNotNull())
    wanted = publishes.select("date", "streamer", *_TOPIC[1:], "msg_id", "msg_ts")
    near = seen_from(wanted, dates, -REACH_DAYS, REACH_DAYS).withColumn("made_on", sf.to_date("msg_ts"))
    near = near.where(sf.abs(sf.datediff("made_on", "date")) <= REACH_DAYS)
    return near.select(*_TOPIC, "made_on", "msg_id", "msg_ts", "streamer").distinct()


def _usual(seen: DataFrame) -> DataFrame:
    """The gateways that usually get each topic, if there are enough of them."""
    is_other = ~sf.col("streamer").eqNullSafe(sf.col("src_authority"))
    many = sf.count_distinct(sf.when(is_other, sf.col("streamer")))
    topics = seen.groupBy(*_TOPIC).agg(sf.count_distinct("msg_id").alias("all"), many.alias("many"))
    had = seen.where(is_other).groupBy(*_TOPIC, "streamer").agg(sf.count_distinct("msg_id").alias("some"))
    enough = topics.where(sf.col("many") >= LEAST)
    return had.join(enough, list(_TOPIC)).where(2 * sf.col("some") >= sf.col("all")).select(*_TOPIC, "streamer")


def _sources(sightings: Iterable[Sightings], dates: Sequence[dt.date]) -> tuple[list[tuple[dt.date, str]], bool]:
    """The sources whose Publishes enough streamers have, by the date that sees it. And whether some are not told apart."""
    streamers: dict[tuple[dt.date, str], set[str]] = defaultdict(set)
    is_crowded = False
    wanted = set(dates)
    for each in sightings:
        if not each.is_publish:
            continue
        if each.src_authority is None:
            is_crowded = True
            continue
        for date in wanted.intersection(days(each.date, -REACH_DAYS, REACH_DAYS)):
            streamers[date, each.src_authority].add(each.streamer)
    return sorted(source for source, names in streamers.items() if len(names) >= LEAST), is_crowded


JOB = job.Job(
    "fan_out",
    (FAN_OUT, FAN_OUT_MISSING),
    lambda batch: transform(batch.records(REACH_DAYS, REACH_DAYS), batch.sightings, batch.dates, batch.table(COMPLETENESS)),
    before=REACH_DAYS,
    after=REACH_DAYS,
    needs=(streamer_health.JOB,),
)
