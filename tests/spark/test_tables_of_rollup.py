"""The views of the rollup, on a handful of records whose sums are easy to do by hand."""

import datetime as dt
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import rollup, tables
from spark_jobs.schema import OUTCOMES
from spark_jobs.tables import Table
from tests.spark.traces import Record, at, frame, record

SINK = {"sink_authority": "cloud", "sink_ue_id": 9}

RECORDS: list[Record] = [
    record("07:00:01", payload_bytes=10, ttl_ms=100, age_us=10_000, latency_us=80_000),  # 10 of 100 ms left
    record("07:00:02", payload_bytes=20, ttl_ms=100, age_us=0, latency_us=50_000, retries=1, redelivered=True),  # half
    record("07:59:59", payload_bytes=30, ttl_ms=100, age_us=60_000, latency_us=40_001, retries=3),  # late by 1 µs
    record("08:00:00", payload_bytes=40, src_ue_id=2, ttl_ms=50, age_us=-1000, latency_us=1000),  # all of it left
    record("08:00:01", payload_bytes=50, outcome="expired", ucode="DEADLINE_EXCEEDED", ttl_ms=5, age_us=9000, **SINK),
    record("08:00:02", payload_bytes=60, outcome="expired", ucode="DEADLINE_EXCEEDED", ttl_ms=5, age_us=9000, **SINK),
    record(
        "08:00:03",
        payload_bytes=70,
        outcome="rejected",
        ucode="UNAVAILABLE",
        src_ue_id=2,
        sink_authority="cloud",
        sink_ue_id=8,
    ),
    record("08:00:04", payload_bytes=80, outcome="duplicate", ucode="ALREADY_EXISTS", egress=None, **SINK),
    record("08:00:05", payload_bytes=90, route="down", ingress="cloud", egress="vehicle", src_authority="cloud", **SINK),
    record("08:00:06", payload_bytes=5, route="dead-letter", ingress=None, src_authority="gateway"),
    record("08:00:07", payload_bytes=0, streamer="hub", route="r", src_authority="veh2"),
]


@pytest.fixture(scope="module")
def rolled(spark: SparkSession) -> DataFrame:
    rows = rollup.transform(frame(spark, RECORDS)).cache()
    rows.count()
    return rows


@pytest.fixture(scope="module")
def nothing(spark: SparkSession) -> DataFrame:
    return rollup.transform(frame(spark, [])).cache()


def seen(rolled: DataFrame, table: Table) -> DataFrame:
    return rollup.view(table, rollup.published(rolled))


def rows(rolled: DataFrame, table: Table) -> set[tuple[Any, ...]]:
    """What Spark and DuckDB see alike: the rows of a view with its columns, but for the date."""
    columns = [name for name in table.columns if name != "date"]
    found = [tuple(row) for row in seen(rolled, table).select(columns).collect()]
    assert len(found) == len(set(found))
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'").register("rollup", rollup.published(rolled).toArrow())
        plain = ", ".join(f"{name}::TIMESTAMP" if table.columns[name] == "TIMESTAMP" else name for name in columns)
        assert set(database.execute(f"SELECT {plain} FROM ({table.query.format(rollup='rollup')})").fetchall()) == set(found)
    return set(found)


def by_outcome(**given: int) -> tuple[int, ...]:
    return tuple(given.get(outcome, 0) for outcome in OUTCOMES)


def test_the_rollup_loses_nothing_and_keeps_sinks_of_failures_only(rolled: DataFrame) -> None:
    found = rolled.collect()
    assert sum(row.messages for row in found) == len(RECORDS)
    assert sum(row.bytes for row in found) == sum(each["payload_bytes"] for each in RECORDS)
    assert {(row.outcome, row.sink_ue_id) for row in found if row.sink_ue_id is not None} == {
        ("expired", 9),
        ("rejected", 8),
    }


def test_route_hourly(rolled: DataFrame) -> None:
    assert rows(rolled, tables.ROUTE_HOURLY) == {
        (7, "gateway", "up", "vehicle", "cloud", 3, 60, *by_outcome(delivered=3), 4, 1),
        (8, "gateway", "up", "vehicle", "cloud", 4, 220, *by_outcome(delivered=1, expired=2, rejected=1), 0, 0),
        (8, "gateway", "up", "vehicle", None, 1, 80, *by_outcome(duplicate=1), 0, 0),
        (8, "gateway", "down", "cloud", "vehicle", 1, 90, *by_outcome(delivered=1), 0, 0),
        (8, "gateway", "dead-letter", None, "cloud", 1, 5, *by_outcome(delivered=1), 0, 0),
        (8, "hub", "r", "vehicle", "cloud", 1, 0, *by_outcome(delivered=1), 0, 0),
    }


def test_ttl_margin(rolled: DataFrame) -> None:
    # messages, expired, then late, under 10, 25, 50, over 50 %; −0.001 ms is rounded down
    assert rows(rolled, tables.TTL_MARGIN) == {("gateway", "up", 4, 2, 1, 0, 1, 0, 2, -1)}


def test_margin_classes_have_exact_bounds_and_without_ttl_or_age_there_is_none(spark: SparkSession) -> None:
    left_us = {
        0: "late",
        1: "under_10",
        9_999: "under_10",
        10_000: "under_25",
        24_999: "under_25",
        25_000: "under_50",
        49_999: "under_50",
        50_000: "over_50",
        100_000: "over_50",
    }
    made = [record(route=str(left), ttl_ms=100, age_us=0, latency_us=100_000 - left) for left in left_us]
    made += [record(route="no ttl", ttl_ms=None), record(route="no age", ttl_ms=100, age_us=None, msg_ts=None)]
    found = seen(rollup.transform(frame(spark, made)), tables.TTL_MARGIN).collect()
    assert {row.route: [name for name in tables.MARGINS if row[name]] for row in found} == {
        str(left): [name] for left, name in left_us.items()
    }


def test_a_message_whose_ttl_is_0_never_expires_and_has_no_margin(spark: SparkSession) -> None:
    made = [record(ttl_ms=0, latency_us=5_000), record("08:00", ttl_ms=0, age_us=-1, latency_us=0)]
    assert rows(rollup.transform(frame(spark, made)), tables.TTL_MARGIN) == set()


def test_a_ttl_of_0_says_nothing_about_the_other_messages_of_its_route(spark: SparkSession) -> None:
    made = [record(ttl_ms=ttl_ms, age_us=0, latency_us=60_000) for ttl_ms in (0, 100)]
    found = rows(rollup.transform(frame(spark, made)), tables.TTL_MARGIN)
    assert found == {("gateway", "up", 1, 0, 0, 0, 0, 1, 0, 40)}


def test_a_route_on_which_all_messages_expired_has_a_margin_row(spark: SparkSession) -> None:
    made = [record(outcome="expired", ttl_ms=5, age_us=9_000, latency_us=0)]
    found = rows(rollup.transform(frame(spark, made)), tables.TTL_MARGIN)
    assert found == {("gateway", "up", 0, 1, 0, 0, 0, 0, 0, None)}


def test_dead_letters(rolled: DataFrame) -> None:
    def clock(second: int) -> Any:
        return at(f"08:00:0{second}").replace(tzinfo=None)

    assert rows(rolled, tables.DEAD_LETTERS) == {
        ("gateway", "up", "expired", "DEADLINE_EXCEEDED", "veh1", 1, "cloud", 9, 2, 110, clock(1), clock(2)),
        ("gateway", "up", "rejected", "UNAVAILABLE", "veh1", 2, "cloud", 8, 1, 70, clock(3), clock(3)),
    }


def test_dead_letters_of_several_hours_have_the_times_of_the_first_and_the_last(spark: SparkSession) -> None:
    times = ("21:00", "08:20", "08:10", "21:30", "14:00")
    made = rollup.transform(frame(spark, [record(ts, outcome="expired") for ts in times]))
    (row,) = seen(made, tables.DEAD_LETTERS).collect()
    found = [ts.replace(tzinfo=dt.UTC) for ts in (row.first_ts, row.last_ts)]
    assert (row.messages, *found) == (5, at("08:10"), at("21:30"))


@pytest.mark.parametrize("table", tables.VIEWS.values(), ids=tables.VIEWS)
def test_no_records_no_rows(nothing: DataFrame, table: Table) -> None:
    assert rows(nothing, table) == set()
