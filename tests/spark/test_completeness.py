"""Until when the traces of each streamer are complete, hour by hour, on hand-made records."""

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import streamer_health
from tests.spark.traces import DATE, Record, at, frame, record

BEFORE, AFTER = (DATE + dt.timedelta(days=days) for days in (-1, 1))
LONG_AGO = at("20:00", DATE - dt.timedelta(days=9))
NOON = at("12:00")
BITS = 3


def numbered(name: str, *seen: tuple[int, dt.datetime], run_ts: dt.datetime = LONG_AGO, waited_s: int = 0) -> list[Record]:
    latency_us = waited_s * 1_000_000
    return [record(ts, seq=seq, run_ts=run_ts, latency_us=latency_us, streamer=name) for seq, ts in seen]


def left_out(*paths: str) -> dict[dt.date, dict[str, str]]:
    return {DATE: dict.fromkeys(paths, "torn")}


Row = dict[str, Any]
Hours = dict[int, Row]


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> tuple[dict[str, Hours], dict[str, Row]]:
    """The rows of each streamer by hour, and those of `streamer_health`; one streamer per case."""
    records = [
        *numbered("whole", (20, at("23:00", BEFORE)), (21, at("00:30")), (22, at("19:10")), (23, at("00:10", AFTER))),
        # the record that came at 23:50 had its outcome after midnight, among those of the next day
        *numbered("waited", (0, at("01:00"))),
        *numbered("waited", (2, at("23:50")), waited_s=1_200),
        *numbered("waited", (1, at("00:05", AFTER)), (3, at("00:20", AFTER))),
        *numbered("waits from before", (1, at("23:50", BEFORE)), waited_s=12_000),
        *numbered("waits from before", (0, at("01:00")), (2, at("04:00")), (3, at("01:00", AFTER))),
        # two gaps that begin at 7, the second reaches to 10; and one over many buckets
        *numbered("gaps", (0, at("23:00", BEFORE)), (1, at("07:10")), (3, at("07:50")), (6, at("10:10")), (7, at("11:00"))),
        *numbered("gaps", (100, at("12:30")), (101, at("13:30")), (102, at("08:00", AFTER))),
        *numbered("over midnight", (0, at("22:00")), (5, at("02:00", AFTER))),
        *numbered("since the day before", (0, at("22:00", BEFORE)), (5, at("03:20")), (6, at("01:00", AFTER))),
        *numbered("restarted", (8, at("11:50"))),
        *numbered("restarted", (0, at("12:10")), (1, at("03:00", AFTER)), run_ts=NOON),
        *numbered("restarted badly", (8, at("23:00", BEFORE)), (9, at("11:50"))),
        *numbered("restarted badly", (2, at("12:10")), (3, at("03:00", AFTER)), run_ts=NOON),
        *numbered("went silent", (0, at("23:00", BEFORE)), (1, at("14:20"))),
        *numbered("silent all day", (0, at("23:00", BEFORE))),
        *numbered("silent for a day", (0, at("23:00", BEFORE)), (1, at("04:00", AFTER))),
        *numbered("came back", (5_000, at("05:30")), (5_001, at("02:00", AFTER))),
        *numbered("new", (0, at("12:10")), (1, at("01:00", AFTER)), run_ts=NOON),
        *numbered("of tomorrow", (0, at("12:10", AFTER)), run_ts=at("11:00", AFTER)),
        *numbered("left out", (0, at("23:00", BEFORE)), (1, at("04:00")), (3, at("06:00")), (4, at("01:00", AFTER))),
    ]
    files = left_out(
        "hour=5/streamer=left%20out/a.parquet", "hour=9/streamer=bad/b.parquet", "hour=9/streamer=bad/c.parquet"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamer_health, "_BUCKET_BITS", BITS)
        health, hours = streamer_health.transform(frame(spark, records).coalesce(1).cache(), [], [DATE], files)
        found: dict[str, Hours] = {}
        for row in hours.collect():
            found.setdefault(row.streamer, {})[row.hour] = row.asDict()
        return found, {row.streamer: row.asDict() for row in health.collect()}


def ends(hours: Hours) -> dict[int, str]:
    """The hours that are not complete to their ends, with the time until which they are."""
    found = {}
    for hour, row in sorted(hours.items()):
        until = row["complete_until"]
        end = at("00:00") + dt.timedelta(hours=hour + 1)
        if until is None or until.replace(tzinfo=dt.UTC) != end:
            found[hour] = "" if until is None else f"{until:%H:%M}"
    return found


def counts(hours: Hours) -> dict[int, tuple[int, int]]:
    found = {hour: (row["expected"], row["seen"]) for hour, row in hours.items()}
    return {hour: each for hour, each in found.items() if each != (0, 0)}


NOTHING = dict.fromkeys(range(24), "")


@pytest.mark.parametrize(
    ("streamer", "expected", "until"),
    [
        ("whole", {0: (1, 1), 19: (1, 1)}, {}),
        ("waited", {1: (1, 1), 23: (1, 1)}, {}),
        ("waits from before", {1: (1, 1), 4: (1, 1)}, {}),
        (
            "gaps",
            {7: (2 + 1 + 2, 2), 10: (1, 1), 11: (1 + 92, 1), 12: (1, 1), 13: (1, 1)},
            {7: "07:10", 8: "", 9: "", 10: "", 11: "11:00", 12: ""},
        ),
        ("over midnight", {22: (5, 1)}, {22: "22:00", 23: ""}),
        ("since the day before", {3: (1, 1)}, {0: "", 1: "", 2: "", 3: ""}),
        ("restarted", {11: (1, 1), 12: (1, 1)}, dict.fromkeys(range(11), "") | {11: ""}),
        ("restarted badly", {11: (1, 1), 12: (1 + 2, 1)}, {12: "12:00"}),
        ("went silent", {14: (1, 1)}, {14: "14:20"} | dict.fromkeys(range(15, 24), "")),
        ("silent all day", {}, NOTHING),
        ("silent for a day", {}, {}),
        ("came back", {5: (1, 1)}, dict.fromkeys(range(6), "")),
        ("new", {12: (1, 1)}, {}),
        ("left out", {4: (1 + 1, 1), 6: (1, 1)}, {4: "04:00", 5: ""}),
        ("bad", {}, NOTHING),
    ],
)
def test_each_hour_says_until_when_it_is_complete(
    made: tuple[dict[str, Hours], Any], streamer: str, expected: dict[int, tuple[int, int]], until: dict[int, str]
) -> None:
    hours = made[0][streamer]
    assert list(hours) == list(range(24))
    assert counts(hours) == expected
    assert ends(hours) == until


def test_a_streamer_that_began_later_has_no_rows(made: tuple[dict[str, Hours], Any]) -> None:
    assert "of tomorrow" not in made[0]


def test_files_that_are_left_out_are_those_of_the_hour(made: tuple[dict[str, Hours], Any]) -> None:
    files = {
        (name, hour): row["files_left_out"]
        for name, of in made[0].items()
        for hour, row in of.items()
        if row["files_left_out"]
    }
    assert files == {("left out", 5): 1, ("bad", 9): 2}


def test_what_is_missing_is_as_much_as_the_health_of_the_streamer_says(
    made: tuple[dict[str, Hours], dict[str, Row]],
) -> None:
    hours, health = made
    sums = {
        name: (sum(row["seen"] for row in of.values()), sum(row["expected"] - row["seen"] for row in of.values()))
        for name, of in hours.items()
    }
    without = {"silent all day", "silent for a day"}
    assert {name: sum_ for name, sum_ in sums.items() if name not in without} == {
        name: (row["records"], row["records_missing"]) for name, row in health.items()
    }
    assert {sums[name] for name in without} == {(0, 0)}
