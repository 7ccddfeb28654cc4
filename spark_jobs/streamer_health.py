"""Can the traces of each streamer be trusted, and until when are they complete?

`seq` counts outcomes, while folders go by ingress time: the record of a message that waited over midnight has a seq among
those of the next day. The records of `REACH_BEFORE` days before are therefore read, too (a longer wait looks like a gap),
and those of the day after, for the record that follows the last one. A gap belongs to the date of the outcome before it, or
of the start of the run. If that date has no records, or nothing that follows is read for it, the gap belongs to the date of
the records that follow. A gap that began before the dates that are read is none: what is missing of more than one whole day
cannot be noticed, nor what a run wrote before its clock was set.

One pass sums the records up to *buckets* of seq; only those that lack a record, or have one twice, are looked at record by
record. The driver gets no row of a streamer.

An hour is complete if no gap reaches into it, by the times of the outcomes around the gap, and a later record is there, or
the streamer was stopped in order and has not begun again. A streamer that writes events says so of each run: where one ends
without, records may be missing until another run has a record or a link. A run without either is the standby of a pair, and
says nothing of the others. What is missing at the end of a run shows only if other streamers have messages that the streamer
sent in an hour of which it has none: then its records may be missing until the next run, whatever it said.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, events, job, quarantine
from spark_jobs.batch import Batch, around, seen_from
from spark_jobs.clocks import Sightings
from spark_jobs.records import LeftOut
from spark_jobs.schema import OUTCOMES
from spark_jobs.session import small_frame
from spark_jobs.tables import COMPLETENESS, STREAMER_HEALTH

REACH_BEFORE = 2
REACH_AFTER = 1
_BUCKET_BITS = 12
"""A bucket is 2 to that power seqs wide."""
_BROADCAST_MAX = 1_000_000
"""So many broken buckets are sent to all executors; more of them are shuffled, with the records."""
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_FOR_EVER_US = 1 << 62
_KEY = ("date", "streamer")
_RUN = ("streamer", "run_us")


def transform(
    records: DataFrame,
    sightings: Sequence[Sightings],
    dates: Sequence[dt.date],
    left_out: LeftOut | None = None,
    told: DataFrame | None = None,
    alike: DataFrame | None = None,
    keep: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> tuple[DataFrame, DataFrame]:
    """Records (`schema.PARTITIONED`) around some dates, their `clocks.sightings`, the files that were left out, events
    (`schema.PARTITIONED_EVENT`), if there are any, and `clocks.alike` → `tables.STREAMER_HEALTH` and `tables.COMPLETENESS`.

    Runs a small query: whether buckets are broken.
    """
    spark = records.sparkSession
    numbered = _numbered(records)
    near = seen_from(keep(_buckets(numbered)), dates, -REACH_BEFORE, REACH_AFTER)
    streamers = _streamers(near)
    gaps = _gaps(numbered, near, streamers)
    files = _files(spark, left_out or {}, dates)
    open_ = _open(near, streamers, told, alike, dates)
    totals = gaps.groupBy(*_KEY).agg(*(sf.sum(f"own_{name}").alias(name) for name in ("gaps", "missing", "twice")))
    health = (
        streamers.join(files.groupBy(*_KEY).agg(sf.sum("files").alias("files_left_out")), list(_KEY), "full")
        .where(sf.col("files_left_out").isNotNull() | (sf.col("records") > 0))
        .join(totals, list(_KEY), "left")
        .join(_skews(spark, sightings, dates), list(_KEY), "left")
        .withColumns(
            {
                "records_missing": _or_0("missing"),
                "records_impossible": _or_0("impossible") + _or_0("twice"),
                "missing_hours": sf.coalesce("missing_hours", sf.lit("")),
            }
        )
        .fillna(0, ["records", "runs", "restarts", "gaps", "skew_messages", "files_left_out"])
    )
    return health, _hours(near, streamers, gaps, open_, files)


def _numbered(records: DataFrame) -> DataFrame:
    """Run, seq, its bucket, and the time of the outcome, whose date ascends with seq. Times stay numbers, not dates: to ask
    Java's calendar takes long for each record."""
    ts_us = sf.unix_micros("ts")
    is_known = sf.coalesce(sf.col("outcome").isin(*OUTCOMES), sf.lit(False))
    return records.select(
        "date",
        "hour",
        "streamer",
        sf.unix_micros("run_ts").alias("run_us"),
        sf.shiftright("seq", _BUCKET_BITS).alias("number"),
        "seq",
        (ts_us + sf.greatest(_or_0("latency_us"), sf.lit(0))).alias("ended_us"),
        ts_us.alias("ts_us"),
        (~is_known | sf.coalesce(sf.col("latency_us") < 0, sf.lit(False))).alias("impossible"),
    )


def _buckets(numbered: DataFrame) -> DataFrame:
    return numbered.groupBy("date", "hour", *_RUN, "number").agg(
        sf.count("*").alias("records"),
        sf.min("seq").alias("first"),
        sf.max("seq").alias("last"),
        sf.sum("seq").alias("total"),
        sf.min("ended_us").alias("began_us"),
        sf.max("ended_us").alias("ended_us"),
        sf.min("ts_us").alias("first_us"),
        sf.max("ts_us").alias("last_us"),
        sf.count_if("impossible").alias("impossible"),
    )


def _streamers(near: DataFrame) -> DataFrame:
    """What each date sees of the streamers that have records on it or near it, unless their first run began later."""

    def own(column: str) -> Column:
        return sf.when(sf.col("day") == sf.col("date"), sf.col(column))

    known = sf.bool_or((sf.col("day") == sf.col("date")) | (_date("run_us") <= sf.col("date")))
    later = sf.filter("every_run", lambda run: (_date(run) == sf.col("date")) & (run != sf.array_min("every_run")))
    every = sf.sequence(sf.array_min("hours"), sf.array_max("hours"))
    return (
        near.groupBy(*_KEY)
        .agg(
            _or_0(sf.sum(own("records"))).alias("records"),
            sf.size(sf.collect_set(own("run_us"))).alias("runs"),
            sf.collect_set("run_us").alias("every_run"),
            sf.collect_set(own("hour")).alias("hours"),
            sf.timestamp_micros(sf.min(own("first_us"))).alias("first_ts"),
            sf.timestamp_micros(sf.max(own("last_us"))).alias("last_ts"),
            sf.sum(own("impossible")).alias("impossible"),
            sf.collect_set("day").alias("recorded"),
            sf.max("ended_us").alias("ended_us"),
            known.alias("is_known"),
        )
        .where("is_known")
        .withColumns(
            {
                "restarts": sf.size(later),
                "missing_hours": sf.array_join(sf.array_except(every, sf.col("hours")), ","),
            }
        )
    )


def _gaps(numbered: DataFrame, near: DataFrame, streamers: DataFrame) -> DataFrame:
    """A row for each gap in seq. `from_us`, `to_us`: the outcome before it, or the start of the run, and the one behind it.

    `own_gaps`, `own_missing`, `own_twice`: what counts for the date.
    """
    stretches = near.groupBy(*_KEY, "run_us", "number").agg(
        sf.sum("records").alias("records"),
        sf.min("first").alias("first"),
        sf.max("last").alias("last"),
        sf.sum("total").alias("total"),
        sf.min("day").alias("came"),
        sf.min("began_us").alias("began_us"),
        sf.max("ended_us").alias("ended_us"),
    )
    in_order = Window.partitionBy(*_KEY, "run_us").orderBy("number")
    before = sf.coalesce(sf.lag("last").over(in_order), sf.lit(-1))
    found = stretches.select(
        *_KEY,
        sf.coalesce(sf.lag("ended_us").over(in_order), "run_us").alias("from_us"),
        sf.col("began_us").alias("to_us"),
        sf.min("came").over(in_order.rowsBetween(0, Window.unboundedFollowing)).alias("follows"),
        (sf.col("first") - before - 1).alias("missing"),
        sf.lit(False).alias("is_twice"),
    ).where("missing > 0")
    if inside := _gaps_inside(numbered, stretches):
        found = found.unionByName(inside)
    ended, date = _date("from_us"), sf.col("date")
    away = sf.datediff(date, ended)
    late = (sf.col("follows") == date) & away.between(1, REACH_BEFORE)
    late &= ~sf.array_contains("recorded", ended) | (away > REACH_AFTER)
    is_own = sf.array_contains("recorded", date) & ((ended == date) | late)
    counts = {
        "own_gaps": sf.when(is_own & ~sf.col("is_twice"), 1).otherwise(0),
        "own_missing": sf.when(is_own, sf.col("missing")).otherwise(0),
        "own_twice": sf.when((ended == date) & sf.col("is_twice"), 1).otherwise(0),
    }
    found = found.where(_us(date) - sf.col("from_us") <= REACH_BEFORE * _DAY_US)
    return found.join(streamers.select(*_KEY, "recorded"), list(_KEY)).withColumns(counts)


def _gaps_inside(numbered: DataFrame, stretches: DataFrame) -> DataFrame | None:
    """The gaps inside of stretches, and the records whose seq another one has; None if all are whole."""
    whole = (sf.col("records") == sf.col("last") - sf.col("first") + 1) & (
        sf.col("total") * 2 == sf.col("records") * (sf.col("first") + sf.col("last"))
    )
    broken = stretches.where(~whole).select(*_KEY, "run_us", "number")
    if not (many := broken.limit(_BROADCAST_MAX + 1).count()):
        return None
    few = sf.broadcast(broken) if many <= _BROADCAST_MAX else broken
    single = numbered.withColumnRenamed("date", "day").join(few, [*_RUN, "number"])
    single = single.where(sf.datediff("day", "date").between(-REACH_BEFORE, REACH_AFTER))
    in_order = Window.partitionBy("date", *_RUN, "number").orderBy("seq")
    apart = sf.lead("seq").over(in_order) - sf.col("seq")
    return single.select(
        *_KEY,
        sf.col("ended_us").alias("from_us"),
        sf.lead("ended_us").over(in_order).alias("to_us"),
        sf.min("day").over(in_order.rowsBetween(1, Window.unboundedFollowing)).alias("follows"),
        sf.greatest(apart - 1, sf.lit(0)).alias("missing"),
        (apart == 0).alias("is_twice"),
    ).where("missing > 0 OR is_twice")


def _open(
    near: DataFrame, streamers: DataFrame, told: DataFrame | None, alike: DataFrame | None, dates: Sequence[dt.date]
) -> DataFrame:
    """The times, in µs, for which it is not known which records there should be: from the end of a run to the next sign of
    another one. Without events, only the newest run may go on, and one that others have later messages of."""
    ended = near.groupBy(*_KEY, "run_us").agg(sf.max("ended_us").alias("ended_us"))
    signs = near.select(*_KEY, sf.col("run_us").alias("other_us"), sf.col("began_us").alias("at_us"))
    runs = ended.withColumns({"linked_us": sf.lit(None).cast("bigint"), "is_stop": sf.lit(None).cast("boolean")})
    if told is not None:
        of_run = seen_from(told, dates, -REACH_BEFORE, REACH_AFTER).groupBy(*_KEY, sf.unix_micros("run_ts").alias("run_us"))
        linked = sf.min(sf.when(sf.col("event").isin("up", "down"), sf.unix_micros("ts")))
        last = of_run.agg(linked.alias("linked_us"), (sf.max_by("event", "seq") == "stopped").alias("is_stop"))
        runs = ended.join(last, [*_KEY, "run_us"], "full")
        links = last.where("linked_us IS NOT NULL").select(*_KEY, sf.col("run_us").alias("other_us"), "linked_us")
        signs = signs.unionByName(links.withColumnRenamed("linked_us", "at_us"))
    of_streamer = Window.partitionBy(*_KEY)
    newest = sf.max(sf.when(sf.col("ended_us").isNotNull(), sf.col("run_us"))).over(of_streamer)
    says = sf.coalesce(~sf.col("is_stop"), sf.lit(True))
    is_last = sf.col("ended_us") == sf.max("ended_us").over(of_streamer)
    runs = runs.withColumns(
        {
            "goes_on": sf.when(sf.bool_or(sf.col("is_stop").isNotNull()).over(of_streamer), says).otherwise(is_last),
            "is_newest": sf.col("ended_us").isNotNull() | (sf.col("run_us") > newest),
            "from_us": sf.coalesce("ended_us", "linked_us"),
        }
    ).where("is_newest AND from_us IS NOT NULL")
    later = (sf.col("other_us") != sf.col("run_us")) & (sf.col("at_us") > sf.col("from_us"))
    next_ = sf.coalesce(sf.min(sf.when(later, sf.col("at_us"))), sf.lit(_FOR_EVER_US)).alias("to_us")
    found = runs.join(signs, list(_KEY)).groupBy(*_KEY, "run_us", "from_us", "goes_on").agg(next_)
    if alike is not None:
        silent = _silent(alike, dates)
        is_inside = (sf.col("silent_us") > sf.col("from_us")) & (sf.col("silent_us") < sf.col("to_us"))
        found = (
            found.join(silent, list(_KEY), "left")
            .groupBy(*_KEY, "run_us", "from_us", "to_us")
            .agg((sf.bool_or("goes_on") | sf.coalesce(sf.bool_or(is_inside), sf.lit(False))).alias("goes_on"))
        )
    return found.where("goes_on").join(streamers.select(*_KEY), list(_KEY), "left_semi")


def _silent(alike: DataFrame, dates: Sequence[dt.date]) -> DataFrame:
    """The hours, by their beginnings in µs, in which a streamer made messages that others have, and has none itself."""
    is_own = sf.col("streamer") == sf.col("src_authority")
    near = seen_from(alike.where("hour_of_message IS NOT NULL"), dates, -REACH_AFTER, REACH_AFTER)
    hours = near.groupBy("date", sf.col("src_authority").alias("name"), "hour_of_message").agg(
        sf.bool_or(is_own).alias("own")
    )
    return hours.where("NOT own").select(
        "date", sf.col("name").alias("streamer"), (sf.col("hour_of_message") * _HOUR_US).alias("silent_us")
    )


def _hours(near: DataFrame, streamers: DataFrame, gaps: DataFrame, open_: DataFrame, files: DataFrame) -> DataFrame:
    """The rows of `tables.COMPLETENESS`. `open_`: see `_open`."""
    hour_us = (sf.col("from_us") - _us("date")) / _HOUR_US
    first = sf.greatest(sf.floor(hour_us), sf.lit(0)).cast("int")
    last_us = sf.greatest(sf.col("to_us") - 1, sf.col("from_us"))
    last = sf.least(sf.floor((last_us - _us("date")) / _HOUR_US), sf.lit(23)).cast("int")
    times = gaps.select(*_KEY, "from_us", "to_us").unionByName(open_.select(*_KEY, "from_us", "to_us"))
    names = streamers.select(*_KEY).unionByName(files.select(*_KEY)).distinct()
    nowhere = files.join(streamers, list(_KEY), "left_anti").select(*_KEY, sf.lit(0).alias("until_us"))
    every = sf.explode(sf.sequence(sf.lit(0), sf.lit(23))).alias("hour")
    parts = [
        names.select(*_KEY, every),
        nowhere.select("*", every),
        near.where("day = date").join(names, list(_KEY), "left_semi").select(*_KEY, "hour", sf.col("records").alias("seen")),
        gaps.where("own_missing > 0").select(*_KEY, first.alias("hour"), sf.col("own_missing").alias("missing")),
        times.where(first <= last).select(
            *_KEY, sf.explode(sf.sequence(first, last)).alias("hour"), sf.col("from_us").alias("until_us")
        ),
        files,
    ]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    end_us = _us("date") + (sf.col("hour") + 1) * sf.lit(_HOUR_US)
    until_us = sf.least("until_us", end_us)
    known = (sf.col("files_left_out") == 0) & (until_us >= end_us - _HOUR_US)
    counts = {"seen": "seen", "missing": "missing", "files": "files_left_out"}
    return (
        rows.groupBy(*_KEY, "hour")
        .agg(
            sf.min("until_us").alias("until_us"),
            *(_or_0(sf.sum(name)).alias(shown) for name, shown in counts.items()),
        )
        .withColumns(
            {
                "expected": sf.col("seen") + sf.col("missing"),
                "complete_until": sf.when(known, sf.timestamp_micros(until_us)),
            }
        )
    )


def _files(spark: SparkSession, left_out: LeftOut, dates: Iterable[dt.date]) -> DataFrame:
    rows = [
        (date, streamer, hour, files)
        for date in dates
        for streamer, of_hours in quarantine.by_streamer(left_out.get(date, ())).items()
        for hour, files in of_hours.items()
    ]
    return small_frame(spark, rows, "date DATE, streamer STRING, hour INT, files BIGINT")


def _skews(spark: SparkSession, sightings: Sequence[Sightings], dates: Iterable[dt.date]) -> DataFrame:
    rows: list[tuple[Any, ...]] = []
    for date in dates:
        for name, clock in clocks.estimate(row for row in sightings if row.date == date).items():
            skew_ms = None if clock.skew_us is None else clock.skew_us / 1000
            rows.append((date, name, skew_ms, clock.against, clock.messages))
    kinds = "clock_skew_ms DOUBLE, skew_against STRING, skew_messages BIGINT"
    return small_frame(spark, rows, f"date DATE, streamer STRING, {kinds}")


def _or_0(value: str | Column) -> Column:
    return sf.coalesce(value, sf.lit(0))


def _date(us: str | Column) -> Column:
    return sf.date_from_unix_date(sf.floor((sf.col(us) if isinstance(us, str) else us) / _DAY_US).cast("int"))


def _us(date: str | Column) -> Column:
    """When a date begins."""
    return sf.unix_date(date).cast("bigint") * _DAY_US


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    records = batch.records(REACH_BEFORE, REACH_AFTER)
    told = events.read(batch.spark, batch.input, around(batch.dates, -REACH_BEFORE, REACH_AFTER))
    return transform(records, batch.sightings, batch.dates, batch.left_out, told, batch.alike, batch.keep)


JOB = job.Job(
    "streamer_health",
    (STREAMER_HEALTH, COMPLETENESS),
    compute,
    before=REACH_BEFORE,
    after=REACH_AFTER,
)
