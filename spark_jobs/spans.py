"""When the records of each streamer are there: only then can a message be called lost at that streamer."""

import datetime as dt
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from spark_jobs.batch import days
from spark_jobs.clocks import Sightings, number_of
from spark_jobs.flows import flow_hash, told_apart
from spark_jobs.session import broadcast
from spark_jobs.verdict import Verdict

REACH_DAYS = 1
"""How far from the date of a message its records are looked for."""
START_US = 10_000_000
"""A message is lost only if the next streamer's records begin so long before the time of the hand-over: what is recorded is
its confirmation, and it began earlier."""
DAY_MS = 86_400_000

SkewsUs = Mapping[dt.date, Mapping[str, int]]
"""By the date of the messages and the streamer."""
HOURS = 48
"""A hand-over is looked at from the beginning of the date of its message to the end of the next one."""
_HOUR_US = 3_600_000_000
Holes = Mapping[tuple[dt.date, str], Mapping[int, int]]
"""The hours of a date in which not all records of a streamer are there, each with the time, in µs, until which they are."""


class Judged(NamedTuple):
    """When a hand-over can be judged, by µs of the day; None: always.

    `hours`: for each of `HOURS` a 1 if all records that are expected are there. Outside of them, and of `from_us` to
    `until_us`, it is unknown what became of the message; outside of the times of its topic, nobody may have subscribed.
    """

    hours: str | None = None
    from_us: int | None = None
    until_us: int | None = None
    topic_from_us: int | None = None
    topic_until_us: int | None = None


ALWAYS = Judged()


def topic_spans(records: DataFrame, topics: Set[int]) -> list[Any]:
    """First and last time, in µs, in each streamer's records of each date of these flows."""
    if not topics:
        return []
    known = broadcast(records.sparkSession, [(each,) for each in sorted(topics)], "topic BIGINT")
    of_topics = told_apart(records).withColumn("topic", flow_hash()).join(known, "topic")
    ts_us = sf.unix_micros("ts")
    spans = of_topics.groupBy("date", "streamer", "topic").agg(
        sf.min(ts_us).alias("first_us"), sf.max(ts_us).alias("last_us")
    )
    return spans.collect()


class Spans:
    """From when until when each streamer has records around a date, by its corrected clock in µs: of all, and of topics.

    Later records may be in files that are still to come.
    """

    def __init__(
        self, sightings: Iterable[Sightings], of_topics: Iterable[Any], skews_us: SkewsUs, holes: Holes | None = None
    ) -> None:
        self._spans: dict[tuple[dt.date, str, int | None], tuple[int, int]] = {}
        self._skews_us, self._holes = skews_us, holes or {}
        everything = [(each.date, each.streamer, None, each.first_us, each.last_us) for each in sightings]
        for day, name, topic, first_us, last_us in (*everything, *of_topics):
            for date in skews_us.keys() & set(days(day, -REACH_DAYS, REACH_DAYS)):
                away_us = skews_us[date].get(name, 0) + number_of(date) * DAY_MS * 1000
                begin_us, end_us = first_us - away_us, last_us - away_us
                known = self._spans.get((date, name, topic), (begin_us, end_us))
                self._spans[date, name, topic] = min(begin_us, known[0]), max(end_us, known[1])

    def of_streamers(self) -> list[tuple[dt.date, str, int, int]]:
        """The date that sees it, the streamer, and the times of its first and last record in µs."""
        of_all = [(date, name, span) for (date, name, topic), span in self._spans.items() if topic is None]
        starts_us = {date: number_of(date) * DAY_MS * 1000 for date, _, _ in of_all}
        return [(date, name, first + starts_us[date], last + starts_us[date]) for date, name, (first, last) in of_all]

    def judged(self, date: dt.date, verdict: Verdict, topic: int, grace_us: int) -> Judged:
        """When a hand-over can be judged whose message no streamer behind it has. A topic counts for a Publish only."""
        start_us = min(START_US, grace_us)
        ways = [self._of_way(date, names, start_us, grace_us) for names in verdict.missing_at]
        topics = [at for names in verdict.missing_at for name in names if (at := self._spans.get((date, name, topic)))]
        return Judged(
            "".join(min(marks) for marks in zip(*(hours for hours, _, _ in ways), strict=True)),
            max(from_us for _, from_us, _ in ways),
            min(until_us for _, _, until_us in ways),
            min(first_us for first_us, _ in topics) + start_us if topics else None,
            max(last_us for _, last_us in topics) if topics else None,
        )

    def _of_way(self, date: dt.date, names: Iterable[str], start_us: int, grace_us: int) -> tuple[str, int, int]:
        """The hours that can be judged, and from when until when, of the streamers behind one hand-over."""
        spans = {name: self._spans[date, name, None] for name in names}
        reach = {name: (first_us + start_us, last_us - grace_us) for name, (first_us, last_us) in spans.items()}
        from_us, until_us = min(first for first, _ in reach.values()), max(last for _, last in reach.values())

        def mark(hour: int) -> str:
            begins_us, ends_us = hour * _HOUR_US, (hour + 1) * _HOUR_US
            wrote = [name for name, (first_us, last_us) in spans.items() if first_us < ends_us and last_us >= begins_us]
            least = max(begins_us, from_us), min(ends_us, until_us)
            throughout = any(reach[name][0] <= least[0] and reach[name][1] >= least[1] for name in wrote)
            return "1" if throughout and not any(self._lacks(date, name, hour, spans[name][1]) for name in wrote) else "0"

        return "".join(map(mark, range(HOURS))), from_us, until_us

    def _lacks(self, date: dt.date, name: str, hour: int, last_us: int) -> bool:
        """Whether records of the hour are missing up to the streamer's last one. Its hours are by its own clock."""
        skew_us = self._skews_us[date].get(name, 0)
        own = range((hour * _HOUR_US + skew_us) // _HOUR_US, ((hour + 1) * _HOUR_US - 1 + skew_us) // _HOUR_US + 1)
        day_us = number_of(date) * DAY_MS * 1000
        for each in own:
            day, at = date + dt.timedelta(days=each // 24), each % 24
            until_us = self._holes.get((day, name), {}).get(at)
            if until_us is not None and until_us - day_us - skew_us < last_us:
                return True
        return False
