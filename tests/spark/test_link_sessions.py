"""Which links were down: over midnight, over restarts, and what had piled up meanwhile."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import link_sessions
from spark_jobs.batch import Batch
from tests.spark.traces import DATE, Record, at, record, write, write_events

pytestmark = pytest.mark.long

BEFORE, AFTER = DATE - dt.timedelta(days=1), DATE + dt.timedelta(days=1)
DATES = (BEFORE, DATE, AFTER)
HOSTILE = "a'); DROP TABLE x;--\n\"%/../é"


def sessions(spark: SparkSession, traces: Path, *dates: dt.date) -> dict[dt.date, list[dict[str, Any]]]:
    """The rows of each date, all dates computed together."""
    batch = Batch(spark, str(traces), str(traces / "tables"), dates or (DATE,), reach=(2, 1))
    (rows,) = link_sessions.compute(batch)
    found: dict[dt.date, list[dict[str, Any]]] = {date: [] for date in batch.dates}
    for row in rows.orderBy("streamer", "endpoint", "down_ts").collect():
        found[row.date].append(row.asDict())
    batch.release()
    return found


def times(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str | None, float]]:
    """When each link was down and up, and for how long on that date."""
    return [(_clock(row["down_ts"]), row["up_ts"] and _clock(row["up_ts"]), row["offline_s"]) for row in rows]


def piles(rows: Sequence[dict[str, Any]]) -> list[tuple[int | None, int | None, float | None]]:
    return [(row["piled_up"], row["piled_up_bytes"], row["drain_s"]) for row in rows]


def _clock(ts: dt.datetime) -> str:
    return f"{ts:%d %H:%M}"


def waited(since: dt.datetime, until: dt.datetime, **given: Any) -> Record:
    return record(since, latency_us=(until - since) // dt.timedelta(microseconds=1), **given)


def test_a_link_that_is_down_over_midnight_has_a_row_on_each_date(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, "gateway", (at("22:00", BEFORE), "up", "cloud"), (at("23:00", BEFORE), "down", "cloud"))
    write_events(tmp_path, "gateway", (at("01:00", AFTER), "up", "cloud"), run=0 + 1)
    write(
        tmp_path,
        [
            waited(at("23:30", BEFORE), at("01:00:30", AFTER)),
            waited(at("12:00"), at("01:01", AFTER)),
            waited(at("00:30", AFTER), at("01:00:10", AFTER)),
            waited(at("12:00"), at("12:05"), outcome="expired"),  # no longer there when the link was up
            waited(at("12:00"), at("01:02", AFTER), egress="vehicle"),
            waited(at("12:00"), at("01:02", AFTER), streamer="other"),
            waited(at("01:00:01", AFTER), at("01:02", AFTER)),
        ],
    )
    together = sessions(spark, tmp_path, *DATES)
    assert [times(together[date]) for date in DATES] == [
        [("19 23:00", None, 3600.0)],
        [("19 23:00", None, 86_400.0)],
        [("19 23:00", "21 01:00", 3600.0)],
    ]
    assert [piles(together[date]) for date in DATES] == [[(None, None, None)], [(None, None, None)], [(3, 300, 60.0)]]
    assert {date: sessions(spark, tmp_path, date)[date] for date in DATES} == together


def test_every_message_counts_for_the_first_end_that_it_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    ups = [at(f"10:{minute:02}:30") for minute in range(0, 20, 2)]
    told = [(at("09:00"), "down", "cloud")]
    for number, up in enumerate(ups):
        told += [(up, "up", "cloud"), (up + dt.timedelta(seconds=30), "down", "cloud")]
        assert number < len(ups)
    write_events(tmp_path, "gateway", *told)
    write(
        tmp_path,
        [
            waited(at("09:30"), ups[0] + dt.timedelta(seconds=1)),
            waited(at("09:30"), ups[9] + dt.timedelta(seconds=1)),  # it waited for all of them
            waited(ups[0], ups[0] + dt.timedelta(seconds=2)),  # at the moment itself
            waited(ups[0] + dt.timedelta(microseconds=1), ups[0] + dt.timedelta(seconds=9)),  # the link was up
            waited(ups[1] - dt.timedelta(seconds=1), ups[1]),  # gone at the moment itself
            waited(ups[4] - dt.timedelta(seconds=1), ups[4] + dt.timedelta(seconds=1)),
        ],
    )
    found = sessions(spark, tmp_path)[DATE]
    assert [(row["piled_up"], row["drain_s"]) for row in found] == [
        (3, 1081.0),
        *[(0, None)] * 3,
        (1, 1.0),
        *[(0, None)] * 5,
        (None, None),
    ]
    assert found[-1]["up_ts"] is None


def test_a_restart_goes_on_with_what_was_down_and_a_clock_that_is_set_back_does_no_harm(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = [(at("08:00"), "started", ""), (at("08:00"), "down", "cloud"), (at("08:01"), "up", "cloud")]
    write_events(tmp_path, "gateway", *first, (at("09:00"), "down", "cloud"))
    write_events(tmp_path, "gateway", (at("08:59"), "started", ""), (at("08:59"), "down", "cloud"), run=1)
    write_events(tmp_path, "gateway", (at("11:00"), "started", ""), (at("11:00"), "down", "cloud"), run=2)
    write_events(tmp_path, "gateway", (at("11:30"), "configured", ""), (at("12:00"), "up", "cloud"), run=3)
    write_events(tmp_path, "back", (at("09:00"), "down", "cloud"), (at("08:00"), "up", "cloud"))
    back, *found = sessions(spark, tmp_path)[DATE]
    assert times(found) == [("20 08:00", "20 08:01", 60.0), ("20 09:00", "20 12:00", 3 * 3600.0)]
    assert times([back]) == [("20 09:00", "20 08:00", 0.0)]


def test_without_events_there_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [record()])
    assert sessions(spark, tmp_path) == {DATE: []}
    write_events(tmp_path, "gateway", (at("08:00", AFTER), "down", "cloud"))
    assert sessions(spark, tmp_path) == {DATE: []}


def test_whatever_an_endpoint_is_called(spark: SparkSession, tmp_path: Path) -> None:
    write_events(tmp_path, "gateway", (at("08:00"), "down", HOSTILE), (at("09:00"), "up", HOSTILE))
    write(tmp_path, [waited(at("08:30"), at("09:00:01"), egress=HOSTILE)])
    (found,) = sessions(spark, tmp_path)[DATE]
    assert (found["endpoint"], found["piled_up"]) == (HOSTILE, 1)


@pytest.mark.parametrize("name", ["events-broken.parquet", "events-01234567-0123-0123-0123-0123456789ab.parquet"])
def test_events_that_cannot_be_read_cost_no_other_streamer_its_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    good = write_events(tmp_path, "gateway", (at("08:00"), "down", "cloud"))
    bad = good.parents[1] / "streamer=broken" / name
    bad.parent.mkdir()
    bad.write_bytes(b"PAR1 torn")
    newer = good.with_suffix(".v2.parquet")
    newer.write_bytes(good.read_bytes())
    assert times(sessions(spark, tmp_path)[DATE]) == [("20 08:00", None, 16 * 3600.0)]
