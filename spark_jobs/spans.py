"""The period in which each streamer has records: only in this period can a message be called lost at that streamer."""

import datetime as dt
from collections.abc import Iterable, Mapping, Set
from typing import Any

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
Judged = tuple[int | None, int | None]
"""Time of the first and last hand-over that can be judged, µs of the day; None: any."""
ALWAYS: Judged = (None, None)


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

    def __init__(self, sightings: Iterable[Sightings], of_topics: Iterable[Any], skews_us: SkewsUs) -> None:
        self._spans: dict[tuple[dt.date, str, int | None], tuple[int, int]] = {}
        everything = [(each.date, each.streamer, None, each.first_us, each.last_us) for each in sightings]
        for day, name, topic, first_us, last_us in (*everything, *of_topics):
            for date in skews_us.keys() & set(days(day, -REACH_DAYS, REACH_DAYS)):
                skew_us = skews_us[date].get(name, 0)
                begin_us, end_us = first_us - skew_us, last_us - skew_us
                known = self._spans.get((date, name, topic), (begin_us, end_us))
                self._spans[date, name, topic] = min(begin_us, known[0]), max(end_us, known[1])

    def judged(self, date: dt.date, verdict: Verdict, topic: int, grace_us: int) -> Judged:
        """Time of the first and last hand-over that can be judged, µs of the day. A topic counts for a Publish only."""
        start_us = number_of(date) * DAY_MS * 1000
        every = [self._spans[date, name, None] for name in verdict.missing_at]
        of_topic = [self._spans[at] for name in verdict.missing_at if (at := (date, name, topic)) in self._spans]
        begins = [first_us + min(START_US, grace_us) - start_us for first_us, _ in of_topic or every]
        ends = [last_us - grace_us - start_us for _, last_us in every] + [last_us - start_us for _, last_us in of_topic]
        return max(begins), min(ends)
