"""Can the traces of each streamer be trusted?

`seq` counts outcomes, while folders go by ingress time: the record of a message that waited over midnight has a seq among
those of the next day. The records of `REACH_BEFORE` days before are therefore read, too (a longer wait looks like a gap),
and those of the day after, for the record that follows the last one. A gap belongs to the date of the outcome before it, or
of the start of the run. If that date has no records, or nothing that follows is read for it, the gap belongs to the date of
the records that follow. What is missing at the end of a run, or of more than one whole day, cannot be noticed.

One pass sums the records up to *buckets* of seq, few enough for the driver, which does the rest. Only buckets that lack a
record are looked at record by record.
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import accumulate, groupby
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from spark_jobs import clocks, job, quarantine
from spark_jobs.batch import days
from spark_jobs.clocks import Sightings
from spark_jobs.records import LeftOut
from spark_jobs.session import small_frame
from spark_jobs.tables import STREAMER_HEALTH

REACH_BEFORE = 2
REACH_AFTER = 1
_BUCKET_BITS = 12
"""A bucket is 2 to that power seqs wide."""
_DAY_US = 86_400_000_000
_EPOCH = dt.date(1970, 1, 1)
_RUN = ("streamer", "run_us")
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("records", "runs", "restarts", "gaps", "records_missing", "skew_messages"), 0),
    "missing_hours": "",
}
"""The figures of a streamer that has nothing but files that are left out."""


class _Bucket(NamedTuple):
    """The records of one hour that are in a bucket of seq. Times are in µs; `ended` is the date of the last outcome."""

    date: dt.date
    hour: int
    streamer: str
    run_us: int
    number: int
    records: int
    first: int
    last: int
    ended: dt.date
    first_us: int
    last_us: int


class _Stretch(NamedTuple):
    """The records of a bucket, of all hours together. `came`: the first of their dates."""

    records: int
    first: int
    last: int
    came: dt.date
    ended: dt.date

    @property
    def is_whole(self) -> bool:
        return self.records == self.last - self.first + 1


_Seen = Mapping[tuple[dt.date, str], Sequence[_Bucket]]
_Stretches = Mapping[tuple[int, int], _Stretch]
"""By run and number of the bucket."""


def transform(
    records: DataFrame, sightings: Sequence[Sightings], dates: Sequence[dt.date], left_out: LeftOut | None = None
) -> DataFrame:
    """Records (`schema.PARTITIONED`) around some dates, their `clocks.sightings`, and the files that were left out →
    `tables.STREAMER_HEALTH` of these dates.

    Runs a small query, and a second one if records are missing, and collects their results.
    """
    numbered = _numbered(records)
    seen = _seen([_Bucket(*row) for row in _buckets(numbered).collect()], dates)
    stretches = {key: _stretches(buckets) for key, buckets in seen.items()}
    recorded = {key: {each.date for each in buckets} for key, buckets in seen.items()}
    inside = _gaps_inside(numbered, stretches, recorded)
    clock = {date: clocks.estimate(row for row in sightings if row.date == date) for date in dates}
    files = {date: quarantine.by_streamer((left_out or {}).get(date, ())) for date in dates}
    rows = [
        (date, streamer, *(_NOTHING.get(name) for name in list(STREAMER_HEALTH.columns)[2:-1]), number)
        for date, of_date in files.items()
        for streamer, number in of_date.items()
        if (date, streamer) not in seen
    ]
    for (date, streamer), buckets in seen.items():
        gaps, missing = inside.get((date, streamer), (0, 0))
        between = _gaps_between(date, stretches[date, streamer], recorded[date, streamer])
        found = {
            **_volume([each for each in buckets if each.date == date]),
            "restarts": _restarts(date, buckets),
            "gaps": gaps + len(between),
            "records_missing": missing + sum(between),
            **_skew(clock[date].get(streamer)),
            "files_left_out": files[date].get(streamer, 0),
        }
        rows.append((date, streamer, *(found[name] for name in list(STREAMER_HEALTH.columns)[2:])))
    return small_frame(records.sparkSession, rows, STREAMER_HEALTH.ddl)


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
        _on(sf.max("ended_us")).alias("ended"),
        sf.min("ts_us").alias("first_us"),
        sf.max("ts_us").alias("last_us"),
    )


def _seen(buckets: Iterable[_Bucket], dates: Sequence[dt.date]) -> _Seen:
    """What each date sees of the streamers that have records on it."""
    of_day: dict[tuple[dt.date, str], list[_Bucket]] = defaultdict(list)
    for each in buckets:
        of_day[each.date, each.streamer].append(each)
    return {
        (date, streamer): [
            each for near in days(date, -REACH_BEFORE, REACH_AFTER) for each in of_day.get((near, streamer), ())
        ]
        for date, streamer in sorted(of_day)
        if date in dates
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
            max(each.ended for each in found),
        )
        for key, found in parts.items()
    }


def _volume(own: Sequence[_Bucket]) -> dict[str, Any]:
    hours = {each.hour for each in own}
    missing = [str(hour) for hour in range(min(hours), max(hours)) if hour not in hours]
    return {
        "records": sum(each.records for each in own),
        "runs": len({each.run_us for each in own}),
        "missing_hours": ",".join(missing),
        "first_ts": min(each.first_us for each in own),
        "last_ts": max(each.last_us for each in own),
    }


def _restarts(date: dt.date, buckets: Sequence[_Bucket]) -> int:
    """How many runs began on the date, after another run of which there are records."""
    runs = {each.run_us for each in buckets}
    return sum(_date(run_us) == date for run_us in runs - {min(runs)})


def _belongs(date: dt.date, ended: dt.date, follows: dt.date, recorded: Set[dt.date]) -> bool:
    """Whether a gap belongs to the date. `ended`: that of the outcome before it. `follows`: the first one of what follows.
    `recorded`: the dates with records."""
    if ended == date:
        return True
    away = (date - ended).days
    return follows == date and 0 < away <= REACH_BEFORE and (ended not in recorded or away > REACH_AFTER)


def _gaps_between(date: dt.date, stretches: _Stretches, recorded: Set[dt.date]) -> list[int]:
    """The sizes of the gaps between stretches, and before the first one of each run."""
    gaps = []
    for run_us, of_run in groupby(sorted(stretches), key=lambda key: key[0]):
        ordered = [stretches[key] for key in of_run]
        follows = [*accumulate((each.came for each in reversed(ordered)), min)][::-1]
        before = [(-1, _date(run_us)), *((each.last, each.ended) for each in ordered[:-1])]
        for (last, ended), stretch, came in zip(before, ordered, follows, strict=True):
            if stretch.first > last + 1 and _belongs(date, ended, came, recorded):
                gaps.append(stretch.first - last - 1)
    return gaps


def _gaps_inside(
    numbered: DataFrame,
    stretches: Mapping[tuple[dt.date, str], _Stretches],
    recorded: Mapping[tuple[dt.date, str], Set[dt.date]],
) -> dict[tuple[dt.date, str], tuple[int, int]]:
    """Number and size of the gaps inside of stretches, by date and streamer."""
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
        _on("ended_us").alias("ended"),
        sf.min("date").over(behind).alias("follows"),
        (sf.lead("seq").over(in_order) - sf.col("seq") - 1).alias("gap"),
    ).where(sf.col("gap") > 0)
    counted = gaps.groupBy("seen_from", "streamer", "ended", "follows").agg(
        sf.count("*").alias("gaps"), sf.sum("gap").alias("missing")
    )
    found: dict[tuple[dt.date, str], tuple[int, int]] = {}
    for row in counted.collect():
        key = row.seen_from, row.streamer
        if _belongs(row.seen_from, row.ended, row.follows, recorded[key]):
            number, missing = found.get(key, (0, 0))
            found[key] = number + row.gaps, missing + row.missing
    return found


def _skew(clock: clocks.ClockEstimate | None) -> dict[str, Any]:
    skew_us, against, messages = (clock.skew_us, clock.against, clock.messages) if clock else (None, None, 0)
    skew_ms = None if skew_us is None else skew_us / 1000
    return {"clock_skew_ms": skew_ms, "skew_against": against, "skew_messages": messages}


def _on(us: Column | str) -> Column:
    """The date of a time in µs."""
    return sf.to_date(sf.timestamp_micros(us))


def _date(us: int) -> dt.date:
    return _EPOCH + dt.timedelta(days=us // _DAY_US)


JOB = job.Job(
    "streamer_health",
    (STREAMER_HEALTH,),
    lambda batch: (transform(batch.records(REACH_BEFORE, REACH_AFTER), batch.sightings, batch.dates, batch.left_out),),
    before=REACH_BEFORE,
    after=REACH_AFTER,
)


def main(argv: Sequence[str] | None = None) -> int:
    return job.main(JOB, argv)


if __name__ == "__main__":
    raise SystemExit(main())
