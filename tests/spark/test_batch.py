"""What jobs of some dates share, whatever the size of the input: the sightings, and which queries are light."""

import datetime as dt
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_jobs import batch as batches
from spark_jobs import clocks, rollup
from spark_jobs.batch import Batch
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.report.reading import ReportTables
from spark_jobs.session import light, small_frame
from spark_jobs.tables import ROLLUP, ROUTE_HOURLY, Table
from tests.spark.traces import DATE, at, configured, frame, record, write

pytestmark = pytest.mark.long

BEFORE, AFTER = DATE - dt.timedelta(days=1), DATE + dt.timedelta(days=1)
VOLUME = Table("volume", "How many?", {"date": "DATE", "messages": "BIGINT"})
_AS_IF_LARGE = {"spark.ustreamer.small": "false"}


@pytest.fixture(params=["small", "large"])
def sized(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """The session as for small, and as for large input."""
    with configured(spark, _AS_IF_LARGE if request.param == "large" else {}):
        yield spark


@pytest.mark.parametrize("reach", [(0, 0), (1, 0), (2, 1)])
def test_sightings_are_those_of_the_records_of_the_dates_and_their_neighbours(
    sized: SparkSession, tmp_path: Path, reach: tuple[int, int]
) -> None:
    of_days = [
        each
        for date in (BEFORE - dt.timedelta(days=1), BEFORE, DATE, AFTER)
        for each in (
            record(at("07:00", date), age_us=5),
            record(at("07:30", date), age_us=2, sink_authority=None, msg_type="publish"),
            record(at("07:40", date), age_us=7, outcome="duplicate"),
            record(at("07:50", date), age_us=None, msg_ts=None, msg_id=uuid.uuid4().bytes),
            record(at("07:00", date), age_us=9, msg_ts=at("06:59", date), outcome="expired", ucode="DEADLINE_EXCEEDED"),
            record(at("07:00", date), age_us=4, msg_ts=at("10:00", DATE) - dt.timedelta(days=100)),
        )
    ]
    write(tmp_path, of_days)
    batch = Batch(sized, str(tmp_path), str(tmp_path / "tables"), (DATE,), reach=reach)
    expected = clocks.sightings(clocks.alike(batch.records(min(1, reach[0]), min(1, reach[1]))))
    assert Counter(batch.sightings) == Counter(expected)
    assert {each.date for each in expected} == {DATE, *[BEFORE][: reach[0]], *[AFTER][: reach[1]]}
    assert batch.rollup.agg(sf.sum("messages")).collect()[0][0] == 6
    batch.release()


def test_the_rollup_of_large_input_is_queried_as_few_rows_if_it_is_few(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [record(route=str(number)) for number in range(3)])
    with configured(spark, _AS_IF_LARGE):
        for most, session in ((3, light(spark)), (2, spark)):
            monkeypatch.setattr(batches, "_LIGHT_ROWS", most)
            batch = Batch(spark, str(tmp_path), str(tmp_path / "tables"), (DATE,))
            assert batch.rollup.sparkSession is session
            assert {(row.route, row.messages) for row in batch.rollup.collect()} == {("0", 1), ("1", 1), ("2", 1)}
            batch.release()


@pytest.mark.parametrize("largest", ["none", "that of one date", "all"])
def test_light_and_other_queries_go_together(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: str
) -> None:
    output, dates = str(tmp_path), (BEFORE - dt.timedelta(days=1), BEFORE, DATE)
    rows = [(date, number) for number, date in enumerate(dates, 1)]
    tables = ParquetTables(spark, output)
    tables.publish(small_frame(spark, rows, VOLUME.ddl), VOLUME, dates)
    one, two = (tables.size_bytes(VOLUME, dates[-count:]) for count in (1, 2))
    assert 0 < one < two
    monkeypatch.setattr(batches, "_LIGHT_BYTES", {"none": 0, "that of one date": one, "all": 10 * two}[largest])
    with configured(spark, _AS_IF_LARGE):
        batch = Batch(spark, str(tmp_path / "traces"), output, (DATE,))
        today, past = batch.table(VOLUME), batch.past(VOLUME)
        sessions = {"none": (spark, spark), "that of one date": (light(spark), spark), "all": (light(spark), light(spark))}
        assert (today.sparkSession, past.sparkSession) == sessions[largest]
        joined = today.join(past.groupBy("date").agg(sf.sum("messages").alias("before")), "date")
        assert [tuple(row) for row in joined.collect()] == [(DATE, 3, 3)]
        both = past.select("date", "messages").unionByName(today)
        assert both.agg(sf.sum("messages")).collect()[0][0] == 6
        batch.release()


def test_what_an_earlier_version_made_stands_for_dates_that_have_no_rollup(spark: SparkSession, tmp_path: Path) -> None:
    store = ParquetTables(spark, str(tmp_path))
    older = BEFORE - dt.timedelta(days=1)
    hours = [
        (date, *(None if kind == "STRING" else 7 for kind in [*ROUTE_HOURLY.columns.values()][1:]))
        for date in (older, BEFORE)
    ]
    store.publish(small_frame(spark, hours, ROUTE_HOURLY.ddl), ROUTE_HOURLY, [older, BEFORE])
    rows = rollup.published(rollup.transform(frame(spark, [record(at("07:00", BEFORE)), record("07:00")])))
    store.publish(rows, ROLLUP, [BEFORE, DATE])
    batch = Batch(spark, str(tmp_path / "traces"), str(tmp_path), (DATE,))
    assert {(row.day, row.messages) for row in batch.past(ROUTE_HOURLY).collect()} == {(older, 7), (BEFORE, 1)}
    assert [row.messages for row in batch.table(ROUTE_HOURLY).collect()] == [1]
    with ReportTables(store, DATE) as report:
        found = report.rows("SELECT date, sum(messages) AS messages FROM route_hourly GROUP BY date ORDER BY date")
        assert [(row["date"], row["messages"]) for row in found] == [(older, 7), (BEFORE, 1), (DATE, 1)]
        assert report.has(ROUTE_HOURLY)
    batch.release()
