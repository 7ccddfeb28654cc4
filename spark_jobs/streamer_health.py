"""Can the traces of each streamer be trusted, and until when are they complete?

`seq` counts outcomes, while folders go by ingress time: the record of a message that waited over midnight has a seq among
those of the next day. The records of `REACH_BEFORE` days before are therefore read, too (a longer wait looks like a gap),
and those of the day after, for the record that follows the last one. A gap belongs to the date of the outcome before it, or
of the start of the run. If that date has no records, or nothing that follows is read for it, the gap belongs to the date of
the records that follow. What is missing at the end of a run, or of more than one whole day, cannot be noticed.

One pass sums the records up to *buckets* of seq, few enough for the driver, which does the rest. Only buckets that lack a
record are looked at record by record.

An hour is complete if no gap reaches into it, by the times of the outcomes around the gap, and a later record is there, or
the streamer was stopped in order and has not begun again. A streamer that writes events says so of each run: where one ends
without, records may be missing until another run, which may be that of the other machine of a pair, shows a sign of life.
"""

import datetime as dt
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, groupby
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, events, job, quarantine
from spark_jobs.batch import Batch, around, days
from spark_jobs.clocks import Sightings
from spark_jobs.records import LeftOut
from spark_jobs.session import small_frame
from spark_jobs.tables import COMPLETENESS, STREAMER_HEALTH

REACH_BEFORE = 2
REACH_AFTER = 1
_BUCKET_BITS = 12
"""A bucket is 2 to that power seqs wide."""
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_FOR_EVER_US = 1 << 62
_EPOCH = dt.date(1970, 1, 1)
_RUN = ("streamer", "run_us")


class _Bucket(NamedTuple):
    """The records of one hour that are in a bucket of seq. `began_us`, `ended_us`: the first and the last outcome."""

    date: dt.date
    hour: int
    streamer: str
    run_us: int
    number: int
    records: int
    first: int
    last: int
    began_us: int
    ended_us: int
    first_us: int
    last_us: int


class _Stretch(NamedTuple):
    """The records of a bucket, of all hours together. `came`: the first of their dates."""

    records: int
    first: int
    last: int
    came: dt.date
    began_us: int
    ended_us: int

    @property
    def is_whole(self) -> bool:
        return self.records == self.last - self.first + 1


class _Gap(NamedTuple):
    """One gap in seq, or those inside of a bucket that begin in the same hour.

    `from_us`, `to_us`: the outcome before it, or the start of the run, and the one behind it. `follows`: the first date of
    the records behind it.
    """

    from_us: int
    to_us: int
    follows: dt.date
    gaps: int
    missing: int


_Runs = dict[int, bool]
"""The runs of a streamer that have events, by their beginnings: whether the last event is an orderly stop."""
_Seen = Mapping[tuple[dt.date, str], Sequence[_Bucket]]
_Stretches = Mapping[tuple[int, int], _Stretch]
"""By run and number of the bucket."""


def transform(
    records: DataFrame,
    sightings: Sequence[Sightings],
    dates: Sequence[dt.date],
    left_out: LeftOut | None = None,
    told: DataFrame | None = None,
) -> tuple[DataFrame, DataFrame]:
    """Records (`schema.PARTITIONED`) around some dates, their `clocks.sightings`, the files that were left out, and events
    (`schema.PARTITIONED_EVENT`), if there are any → `tables.STREAMER_HEALTH` and `tables.COMPLETENESS` of these dates.

    Runs a small query, one for events, and one if records are missing, and collects their results.
    """
    last = {} if told is None else _last_events(told)
    numbered = _numbered(records)
    seen = _seen([_Bucket(*row) for row in _buckets(numbered).collect()], dates)
    stretches = {key: _stretches(buckets) for key, buckets in seen.items()}
    inside = _gaps_inside(numbered, stretches)
    clock = {date: clocks.estimate(row for row in sightings if row.date == date) for date in dates}
    files = {date: quarantine.by_streamer((left_out or {}).get(date, ())) for date in dates}
    nowhere = [(date, name) for date, of_date in files.items() for name in of_date if (date, name) not in seen]
    health: list[tuple[Any, ...]] = []
    hours: list[tuple[Any, ...]] = []
    for date, streamer in [*nowhere, *seen]:
        buckets = seen.get((date, streamer), ())
        recorded = {each.date for each in buckets}
        gaps = [*_gaps_between(stretches.get((date, streamer), {})), *inside.get((date, streamer), ())]
        own = [each for each in gaps if date in recorded and _belongs(date, each, recorded)]
        without = files[date].get(streamer, Counter())
        runs = [last.get((day, streamer), {}) for day in days(date, -REACH_BEFORE, REACH_AFTER)]
        open_us = _ends(buckets, dict(ChainMap(*reversed(runs))))
        hours += _hours(date, streamer, buckets, open_us, gaps, own, without)
        if date not in recorded and not without:
            continue
        found = {
            **_volume(date, buckets),
            "gaps": sum(each.gaps for each in own),
            "records_missing": sum(each.missing for each in own),
            **_skew(clock[date].get(streamer)),
            "files_left_out": without.total(),
        }
        health.append((date, streamer, *(found[name] for name in list(STREAMER_HEALTH.columns)[2:])))
    spark = records.sparkSession
    return small_frame(spark, health, STREAMER_HEALTH.ddl), small_frame(spark, hours, COMPLETENESS.ddl)


def _numbered(records: DataFrame) -> DataFrame:
    """Run, seq, its bucket, and the time of the outcome, whose date ascends with seq. Times stay numbers, not dates: to ask
    Java's calendar takes long for each record."""
    ts_us = sf.unix_micros("ts")
    return records.select(
        "date",
        "hour",
        "streamer",
        sf.unix_micros("run_ts").alias("run_us"),
        sf.shiftright("seq", _BUCKET_BITS).alias("number"),
        "seq",
        (ts_us + sf.coalesce("latency_us", sf.lit(0))).alias("ended_us"),
        ts_us.alias("ts_us"),
    )


def _buckets(numbered: DataFrame) -> DataFrame:
    return numbered.groupBy("date", "hour", *_RUN, "number").agg(
        sf.count("*").alias("records"),
        sf.min("seq").alias("first"),
        sf.max("seq").alias("last"),
        sf.min("ended_us").alias("began_us"),
        sf.max("ended_us").alias("ended_us"),
        sf.min("ts_us").alias("first_us"),
        sf.max("ts_us").alias("last_us"),
    )


def _seen(buckets: Iterable[_Bucket], dates: Sequence[dt.date]) -> _Seen:
    """What each date sees of the streamers that have records on it or near it, unless their first run began later."""
    found: dict[tuple[dt.date, str], list[_Bucket]] = defaultdict(list)
    for each in buckets:
        for date in days(each.date, -REACH_AFTER, REACH_BEFORE):
            if date in dates:
                found[date, each.streamer].append(each)
    return {
        (date, streamer): near
        for (date, streamer), near in sorted(found.items())
        if any(each.date == date or _date(each.run_us) <= date for each in near)
    }


def _stretches(buckets: Iterable[_Bucket]) -> _Stretches:
    parts: dict[tuple[int, int], list[_Bucket]] = defaultdict(list)
    for each in buckets:
        parts[each.run_us, each.number].append(each)
    return {
        key: _Stretch(
            sum(each.records for each in found),
            min(each.first for each in found),
            max(each.last for each in found),
            min(each.date for each in found),
            min(each.began_us for each in found),
            max(each.ended_us for each in found),
        )
        for key, found in parts.items()
    }


def _volume(date: dt.date, buckets: Sequence[_Bucket]) -> dict[str, Any]:
    own = [each for each in buckets if each.date == date]
    if not own:  # nothing but files that are left out
        return {**dict.fromkeys(("records", "runs", "restarts"), 0), "missing_hours": "", "first_ts": None, "last_ts": None}
    hours = {each.hour for each in own}
    missing = [str(hour) for hour in range(min(hours), max(hours)) if hour not in hours]
    return {
        "records": sum(each.records for each in own),
        "runs": len({each.run_us for each in own}),
        "restarts": _restarts(date, buckets),
        "missing_hours": ",".join(missing),
        "first_ts": min(each.first_us for each in own),
        "last_ts": max(each.last_us for each in own),
    }


def _restarts(date: dt.date, buckets: Sequence[_Bucket]) -> int:
    """How many runs began on the date, after another run of which there are records."""
    runs = {each.run_us for each in buckets}
    return sum(_date(run_us) == date for run_us in runs - {min(runs)})


def _belongs(date: dt.date, gap: _Gap, recorded: Set[dt.date]) -> bool:
    """Whether a gap belongs to the date. `recorded`: the dates with records."""
    ended = _date(gap.from_us)
    if ended == date:
        return True
    away = (date - ended).days
    return gap.follows == date and 0 < away <= REACH_BEFORE and (ended not in recorded or away > REACH_AFTER)


def _gaps_between(stretches: _Stretches) -> list[_Gap]:
    """The gaps between stretches, and before the first one of each run."""
    gaps = []
    for run_us, of_run in groupby(sorted(stretches), key=lambda key: key[0]):
        ordered = [stretches[key] for key in of_run]
        follows = [*accumulate((each.came for each in reversed(ordered)), min)][::-1]
        before = [(-1, run_us), *((each.last, each.ended_us) for each in ordered[:-1])]
        for (last, ended_us), stretch, came in zip(before, ordered, follows, strict=True):
            if stretch.first > last + 1:
                gaps.append(_Gap(ended_us, stretch.began_us, came, 1, stretch.first - last - 1))
    return gaps


def _gaps_inside(
    numbered: DataFrame, stretches: Mapping[tuple[dt.date, str], _Stretches]
) -> dict[tuple[dt.date, str], list[_Gap]]:
    """The gaps inside of stretches, by date and streamer."""
    broken = [
        (date, streamer, *key)
        for (date, streamer), of_date in stretches.items()
        for key, stretch in of_date.items()
        if not stretch.is_whole
    ]
    if not broken:
        return {}
    wanted = small_frame(numbered.sparkSession, broken, "seen_from DATE, streamer STRING, run_us BIGINT, number BIGINT")
    single = numbered.join(sf.broadcast(wanted), [*_RUN, "number"])
    single = single.where(sf.datediff("date", "seen_from").between(-REACH_BEFORE, REACH_AFTER))
    in_order = Window.partitionBy("seen_from", *_RUN, "number").orderBy("seq")
    behind = in_order.rowsBetween(1, Window.unboundedFollowing)
    gaps = single.select(
        "seen_from",
        "streamer",
        "ended_us",
        sf.lead("ended_us").over(in_order).alias("to_us"),
        sf.min("date").over(behind).alias("follows"),
        (sf.lead("seq").over(in_order) - sf.col("seq") - 1).alias("gap"),
    ).where(sf.col("gap") > 0)
    counted = gaps.groupBy("seen_from", "streamer", "follows", sf.expr(f"ended_us div {_HOUR_US}")).agg(
        sf.min("ended_us").alias("from_us"),
        sf.max("to_us").alias("to_us"),
        sf.count("*").alias("gaps"),
        sf.sum("gap").alias("missing"),
    )
    found: dict[tuple[dt.date, str], list[_Gap]] = defaultdict(list)
    for row in counted.collect():
        found[row.seen_from, row.streamer].append(_Gap(row.from_us, row.to_us, row.follows, row.gaps, row.missing))
    return found


def _last_events(told: DataFrame) -> dict[tuple[dt.date, str], _Runs]:
    """The runs of each streamer and date."""
    by_run = told.groupBy("date", "streamer", sf.unix_micros("run_ts").alias("run_us"))
    found: dict[tuple[dt.date, str], _Runs] = defaultdict(dict)
    for row in by_run.agg((sf.max_by("event", "seq") == "stopped").alias("is_stop")).collect():
        found[row.date, row.streamer][row.run_us] = row.is_stop
    return found


def _ends(buckets: Sequence[_Bucket], runs: _Runs) -> list[tuple[int, int]]:
    """The times, in µs, for which it is not known which records there should be: from the end of each run that did not stop
    in order to the next sign of another one. Without events, only the newest run may go on."""
    ended_us = {each.run_us: each.ended_us for each in sorted(buckets, key=lambda each: each.ended_us)}
    if not runs or not buckets:
        return [(max(ended_us.values(), default=0), _FOR_EVER_US)]
    signs = [*((run_us, run_us) for run_us in (*runs, *ended_us)), *((each.run_us, each.began_us) for each in buckets)]
    found = []
    for run_us in {*ended_us, *(each for each in runs if each > max(ended_us))} - {each for each in runs if runs[each]}:
        last_us = ended_us.get(run_us, run_us)
        later = (at_us for run, at_us in signs if run != run_us and at_us > last_us)
        found.append((last_us, min(later, default=_FOR_EVER_US)))
    return found


def _hours(
    date: dt.date,
    streamer: str,
    buckets: Sequence[_Bucket],
    open_us: Iterable[tuple[int, int]],
    gaps: Iterable[_Gap],
    own: Iterable[_Gap],
    left_out: Mapping[int, int],
) -> Iterator[tuple[Any, ...]]:
    """The rows of `tables.COMPLETENESS`. `open_us`: see `_ends`.

    `own`: those of the gaps that belong to the date. `left_out`: files, by hour.
    """
    day_us = (date - _EPOCH).days * _DAY_US
    ends_us = [day_us + (hour + 1) * _HOUR_US for hour in range(24)]
    until_us = list(ends_us)
    for from_us, to_us in [*((each.from_us, each.to_us) for each in gaps), *open_us]:
        first = max((from_us - day_us) // _HOUR_US, 0)
        last = min((max(to_us - 1, from_us) - day_us) // _HOUR_US, 23)
        for hour in range(first, last + 1):
            until_us[hour] = min(until_us[hour], from_us)
    seen, missing = Counter[int](), Counter[int]()
    for each in buckets:
        seen[each.hour] += each.records if each.date == date else 0
    for gap in own:  # one that began before the date counts in its first hour
        missing[max((gap.from_us - day_us) // _HOUR_US, 0)] += gap.missing
    for hour in range(24):
        is_known = not left_out.get(hour) and until_us[hour] >= ends_us[hour] - _HOUR_US
        records, files = seen[hour], left_out.get(hour, 0)
        yield date, hour, streamer, records + missing[hour], records, files, until_us[hour] if is_known else None


def _skew(clock: clocks.ClockEstimate | None) -> dict[str, Any]:
    skew_us, against, messages = (clock.skew_us, clock.against, clock.messages) if clock else (None, None, 0)
    skew_ms = None if skew_us is None else skew_us / 1000
    return {"clock_skew_ms": skew_ms, "skew_against": against, "skew_messages": messages}


def _date(us: int) -> dt.date:
    return _EPOCH + dt.timedelta(days=us // _DAY_US)


def compute(batch: Batch) -> tuple[DataFrame, ...]:
    records = batch.records(REACH_BEFORE, REACH_AFTER)
    told = events.read(batch.spark, batch.input, around(batch.dates, -REACH_BEFORE, REACH_AFTER))
    return transform(records, batch.sightings, batch.dates, batch.left_out, told)


JOB = job.Job(
    "streamer_health",
    (STREAMER_HEALTH, COMPLETENESS),
    compute,
    before=REACH_BEFORE,
    after=REACH_AFTER,
)
