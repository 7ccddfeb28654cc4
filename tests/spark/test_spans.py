"""From when until when a message can be called lost at a streamer, by records that are only times here."""

import datetime as dt
from typing import Any

import pytest

from spark_jobs.clocks import Sightings
from spark_jobs.spans import START_US, Spans
from spark_jobs.verdict import Verdict
from tests.spark.traces import DATE, at

TOPIC, OTHER = 7, 8
GRACE_US = 600_000_000
MINUTE_US = 60_000_000
Y_AHEAD = {DATE: {"Y": 90 * MINUTE_US}}


def us(clock: str, days: int = 0) -> int:
    return int(at(clock, DATE + dt.timedelta(days=days)).timestamp()) * 1_000_000


def into_day(clock: str) -> int:
    return us(clock) - us("00:00")


def seen(streamer: str, first: str, last: str, days: int = 0) -> Sightings:
    date = DATE + dt.timedelta(days=days)
    return Sightings(date, streamer, "a", None, True, "in", "out", None, 1, 0, us(first, days), us(last, days))


def judged(
    sightings: list[Sightings],
    *missing_at: str,
    topics: tuple[Any, ...] = (),
    skews_us: Any = None,
    grace_us: int = GRACE_US,
) -> tuple[int, int]:
    """From when until when a loss can be judged at each of these streamers, of hours that are complete."""
    lost = Verdict(0, "lost", (), tuple((name,) for name in missing_at))
    found = Spans(sightings, topics, skews_us or {DATE: {}}).judged(DATE, lost, TOPIC, grace_us)
    starts = [each for each in (found.from_us, found.topic_from_us) if each is not None]
    return max(starts), min(each for each in (found.until_us, found.topic_until_us) if each is not None)


def test_a_streamer_is_judged_from_its_first_record_to_ten_minutes_before_its_last() -> None:
    both = [seen("Y", "08:00", "09:00"), seen("Y", "08:30", "10:00"), seen("X", "00:00", "23:00")]
    assert judged(both, "Y") == (into_day("08:00") + START_US, into_day("09:50"))
    assert judged(both, "Y", grace_us=5) == (into_day("08:00") + 5, into_day("10:00") - 5)


def test_of_several_streamers_all_must_have_records() -> None:
    both = [seen("Y", "08:00", "20:00"), seen("X", "09:00", "10:00")]
    assert judged(both, "Y", "X") == judged(both, "X", "Y") == (into_day("09:00") + START_US, into_day("09:50"))


def test_times_are_by_the_corrected_clock() -> None:
    found = judged([seen("Y", "08:00", "10:00")], "Y", skews_us=Y_AHEAD)
    assert found == (into_day("06:30") + START_US, into_day("08:20"))


@pytest.mark.parametrize(("days", "counts"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_records_of_the_days_beside_the_date_count(days: int, counts: bool) -> None:
    begin_us, end_us = judged([seen("Y", "08:00", "10:00"), seen("Y", "07:00", "07:30", days)], "Y")
    day_us = days * 24 * 60 * MINUTE_US
    assert begin_us == (into_day("07:00") + day_us if counts and days < 0 else into_day("08:00")) + START_US
    assert end_us == (into_day("07:20") + day_us if counts and days > 0 else into_day("09:50"))


def test_a_topic_is_judged_between_its_own_first_and_last_message_and_within_the_grace() -> None:
    everything = [seen("Y", "08:00", "20:00")]
    topics = ((DATE, "Y", TOPIC, us("10:00"), us("12:00")), (DATE, "Y", OTHER, us("01:00"), us("19:55")))
    assert judged(everything, "Y", topics=topics) == (into_day("10:00") + START_US, into_day("12:00"))
    late = ((DATE, "Y", TOPIC, us("10:00"), us("19:55")),)
    assert judged(everything, "Y", topics=late) == (into_day("10:00") + START_US, into_day("19:50"))
    ahead = judged(everything, "Y", topics=topics, skews_us=Y_AHEAD)
    assert ahead == (into_day("08:30") + START_US, into_day("10:30"))
