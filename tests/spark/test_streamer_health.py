"""Holes in seq, restarts and missing hours, on hand-made records."""

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import clocks, streamer_health
from tests.spark.traces import DATE, Record, at, frame, record

BEFORE, AFTER = (DATE + dt.timedelta(days=days) for days in (-1, 1))
BITS = 3
LONG_AGO = at("20:00", DATE - dt.timedelta(days=9))
FIRST_RUN, SECOND_RUN = at("20:00", BEFORE), at("12:00")


def numbered(seq: int, ts: dt.datetime, run_ts: dt.datetime = FIRST_RUN, waited_s: int = 0, name: str = "gateway") -> Record:
    return record(ts, seq=seq, run_ts=run_ts, latency_us=waited_s * 1_000_000, streamer=name)


@pytest.fixture(scope="module")
def health(spark: SparkSession) -> dict[str, Any]:
    """One streamer per case, all in one run of the job, with buckets so small that a few records fill one."""
    size = 1 << BITS
    records = [
        # whole: over two midnights, with a record that waited from one day into the next
        *(numbered(seq, at(f"{seq:02}:00", BEFORE), name="whole") for seq in range(20, 23)),
        numbered(24, at("23:00", BEFORE), waited_s=7_300, name="whole"),
        numbered(23, at("00:30"), name="whole"),
        numbered(25, at("01:10"), name="whole"),
        numbered(26, at("02:00"), name="whole"),
        numbered(27, at("02:00", AFTER), name="whole"),
        # holes: of two and of one, one before the date and one after it
        numbered(0, at("21:00", BEFORE), name="holes"),
        numbered(5, at("22:00", BEFORE), name="holes"),
        numbered(6, at("01:00"), name="holes"),
        numbered(9, at("02:00"), name="holes"),
        numbered(11, at("05:00"), name="holes"),
        numbered(12, at("01:00", AFTER), name="holes"),
        numbered(20, at("02:00", AFTER), name="holes"),
        # over midnight: between the last of the date and the first of the next
        numbered(3, at("22:00"), LONG_AGO, name="midnight"),
        numbered(6, at("01:00", AFTER), LONG_AGO, name="midnight"),
        # restarts: the second run lacks its first two records
        numbered(7, at("11:00"), LONG_AGO, name="restarted"),
        numbered(2, at("12:10"), SECOND_RUN, name="restarted"),
        numbered(3, at("12:20"), SECOND_RUN, name="restarted"),
        # a first run that begins on the date is no restart
        numbered(0, at("12:10"), SECOND_RUN, name="new"),
        # a hole of one record amid five buckets, and one of a whole bucket
        *(numbered(seq, at("07:00"), name="buckets") for seq in range(5 * size) if seq != size + 5 and seq // size != 3),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamer_health, "_BUCKET_BITS", BITS)
        rows = frame(spark, records).coalesce(1).cache()
        made, _ = streamer_health.transform(rows, clocks.sightings(clocks.alike(rows)), [DATE])
    return {row.streamer: row for row in made.collect()}


def gaps(row: Any) -> tuple[int, int]:
    return row.gaps, row.records_missing


def test_a_record_that_waited_over_midnight_is_not_a_hole(health: dict[str, Any]) -> None:
    assert gaps(health["whole"]) == (0, 0)


def test_holes_belong_to_the_date_of_the_outcome_before_them(health: dict[str, Any]) -> None:
    assert gaps(health["holes"]) == (2, 3)
    assert gaps(health["midnight"]) == (1, 2)


def test_seq_begins_again_with_a_run_and_its_first_records_may_be_missing(health: dict[str, Any]) -> None:
    assert gaps(health["restarted"]) == (1, 2)


def test_a_restart_is_a_run_that_began_on_the_date_after_another(health: dict[str, Any]) -> None:
    found = {name: (row.runs, row.restarts) for name, row in health.items()}
    assert found == {
        "whole": (1, 0),
        "holes": (1, 0),
        "midnight": (1, 0),
        "restarted": (2, 1),
        "new": (1, 0),
        "buckets": (1, 0),
    }


def test_hours_without_a_record_between_hours_with_some(health: dict[str, Any]) -> None:
    missing = {name: row.missing_hours for name, row in health.items()}
    assert missing == {"whole": "", "holes": "3,4", "midnight": "", "restarted": "", "new": "", "buckets": ""}


def test_records_and_times_are_those_of_the_date(health: dict[str, Any]) -> None:
    row = health["holes"]
    times = [ts.replace(tzinfo=dt.UTC) for ts in (row.first_ts, row.last_ts)]
    assert (row.records, *times) == (3, at("01:00"), at("05:00"))


def test_complete_stretches_need_no_look_at_each_record(health: dict[str, Any]) -> None:
    assert gaps(health["buckets"]) == (2, 1 + (1 << BITS))


def test_dates_together_give_what_each_gives_alone(spark: SparkSession) -> None:
    """Each date sees two days before it and one after it, and no more."""
    dates = [BEFORE, DATE, AFTER]
    records = [
        numbered(seq, at("12:00") + dt.timedelta(hours=11 * step), name="gateway")
        for step, seq in zip(range(-8, 9), (0, 1, 3, 4, 5, 9, 10, 11, 14, 15, 16, 17, 20, 21, 25, 26, 27), strict=True)
    ]
    records.append(numbered(12, at("01:00"), waited_s=90_000))

    def made(*wanted: dt.date) -> list[str]:
        reach = {date + dt.timedelta(days=days) for date in wanted for days in range(-2, 2)}
        rows = frame(spark, [each for each in records if each["ts"].date() in reach]).coalesce(1).cache()
        return sorted(
            str(row.asDict())
            for row in streamer_health.transform(rows, clocks.sightings(clocks.alike(rows)), wanted)[0].collect()
        )

    assert made(*dates) == sorted(row for date in dates for row in made(date))


def found_on(spark: SparkSession, records: list[Record]) -> dict[str, tuple[int, int]]:
    """Gaps and missing records of each of the dates with some, each date by itself."""
    found = {}
    for date in sorted({each["ts"].date() for each in records}):
        seen = [each for each in records if -2 <= (each["ts"].date() - date).days <= 1]
        rows = frame(spark, seen).coalesce(1).cache()
        (row,) = streamer_health.transform(rows, clocks.sightings(clocks.alike(rows)), [date])[0].collect()
        if row.gaps:
            found[str(date)] = gaps(row)
    return found


@pytest.mark.parametrize("after", [pytest.param(9, id="same bucket"), pytest.param(9_000, id="another bucket")])
def test_what_is_missing_of_a_whole_day_belongs_to_the_day_after(spark: SparkSession, after: int) -> None:
    records = [numbered(seq, at(f"2{seq}:00", BEFORE), LONG_AGO) for seq in range(3)]
    records += [numbered(after + seq, at(f"0{seq}:00", AFTER), LONG_AGO) for seq in range(3)]
    assert found_on(spark, records) == {str(AFTER): (1, after - 3)}


@pytest.mark.parametrize("follows", [pytest.param(DATE, id="the next day"), pytest.param(AFTER, id="the one after it")])
def test_what_is_missing_of_the_day_on_which_a_run_began_belongs_to_its_first_records(
    spark: SparkSession, follows: dt.date
) -> None:
    assert found_on(spark, [numbered(7, at("01:00", follows))]) == {str(follows): (1, 7)}


def test_an_outcome_on_a_day_without_records_leaves_the_gap_to_the_day_after(spark: SparkSession) -> None:
    records = [numbered(0, at("23:00", BEFORE), LONG_AGO, waited_s=7_200), numbered(5, at("01:00", AFTER), LONG_AGO)]
    assert found_on(spark, records) == {str(AFTER): (1, 4)}


def test_a_gap_is_counted_once_whatever_days_are_between(spark: SparkSession) -> None:
    records = [numbered(seq, at("12:00", DATE + dt.timedelta(days=day))) for day, seq in ((0, 2), (1, 4), (3, 7), (4, 11))]
    assert found_on(spark, records) == {str(DATE): (2, 2 + 1), str(DATE + dt.timedelta(days=3)): (2, 2 + 3)}


@pytest.mark.parametrize("after", [pytest.param(5, id="same bucket"), pytest.param(9_000, id="another bucket")])
def test_a_gap_behind_what_waited_over_midnight_belongs_to_the_day_of_that_outcome(spark: SparkSession, after: int) -> None:
    records = [
        numbered(0, at("23:00", BEFORE), LONG_AGO),
        numbered(1, at("23:30", BEFORE), LONG_AGO, waited_s=5_400),
        numbered(after, at("03:00"), LONG_AGO) | {"latency_us": None},
        numbered(after + 2, at("04:00"), LONG_AGO),
    ]
    assert found_on(spark, records) == {str(DATE): (2, after - 2 + 1)}


def test_a_single_record_between_two_buckets_is_missed(spark: SparkSession) -> None:
    edge = 1 << streamer_health._BUCKET_BITS
    records = [numbered(seq, at("07:00"), LONG_AGO) for seq in (edge - 2, edge, 2 * edge - 1, 2 * edge + 1)]
    assert found_on(spark, records) == {str(DATE): (3, 1 + (edge - 2) + 1)}


def test_first_and_last_are_those_of_all_records_of_an_hour(spark: SparkSession) -> None:
    clocked = ("01:20", "01:10", "05:50", "05:30", "03:00")
    rows = frame(spark, [numbered(seq, at(clock)) for seq, clock in enumerate(clocked)]).coalesce(1).cache()
    (row,) = streamer_health.transform(rows, [], [DATE])[0].collect()
    assert [ts.replace(tzinfo=dt.UTC) for ts in (row.first_ts, row.last_ts)] == [at("01:10"), at("05:50")]


def test_a_skew_is_that_of_the_messages_of_the_date(spark: SparkSession) -> None:
    records = [
        record(at("07:00", date), streamer=name, age_us=age_us, seq=seq)
        for date, ahead_us in ((BEFORE, 5_000_000), (DATE, 60_250_000), (AFTER, 9_000_000))
        for name, age_us in (("hub", 0), ("veh", ahead_us))
        for seq in range(3)
    ]
    rows = frame(spark, records).coalesce(1).cache()
    made = streamer_health.transform(rows, clocks.sightings(clocks.alike(rows)), [BEFORE, DATE])[0].collect()
    found = {(row.date, row.streamer): (row.clock_skew_ms, row.skew_against, row.skew_messages) for row in made}
    assert found == {
        (BEFORE, "hub"): (0.0, None, 0),
        (BEFORE, "veh"): (5_000.0, "hub", 3),
        (DATE, "hub"): (0.0, None, 0),
        (DATE, "veh"): (60_250.0, "hub", 3),
    }
