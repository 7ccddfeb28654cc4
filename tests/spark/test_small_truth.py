"""A small day of three streamers with planted faults: the audit finds these, no more and no fewer.

`make test` runs this one. `test_ground_truth` has two days, restarts, outages and late files.
"""

import datetime as dt
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import delivery_audit, job, streamer_health
from spark_jobs.batch import Batch
from spark_jobs.generate import Faults, Plan, generate

DATE = dt.date(2026, 11, 20)
STREAMERS = ("gateway.cloud", "gateway.edge", "gateway.veh1")
FAULTS = Faults(
    lost=3,
    duplicate=3,
    delivered_twice=2,
    expired=3,
    dead_lettered=2,
    rejected=2,
    untraced=2,
    skew_ms={"gateway.cloud": -45_000, "gateway.veh1": 90_000},
)


@pytest.fixture(scope="module")
def day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What was planted, and the folder of the tables."""
    folder = tmp_path_factory.mktemp("day")
    truth = generate(Plan(DATE, (1_000,), STREAMERS, seed=7, faults=FAULTS), folder / "traces")
    batch = Batch(spark, str(folder / "traces"), str(folder / "tables"), (DATE,), reach=(2, 1))
    for each in (streamer_health.JOB, delivery_audit.JOB):
        list(job.run(each, batch))
    batch.release()
    return truth, folder / "tables"


def rows(tables: Path, name: str) -> list[dict[str, Any]]:
    return list(pq.read_table(tables / name / f"date={DATE}").to_pylist())


def test_findings_are_the_planted_ones(day: tuple[dict[str, Any], Path]) -> None:
    truth, tables = day
    found = defaultdict(set)
    for row in rows(tables, "delivery_audit_detail"):
        found[row["finding"]].add(row["msg_id"].hex())
        assert row["finding"] != "lost" or row["missing_at"] == truth["missing_at"][row["msg_id"].hex()]
    assert found == {finding: {message for _, message in of_day} for finding, of_day in truth["findings"].items() if of_day}
    assert found.keys() == {"lost", "duplicate", "delivered_twice", "expired", "dead_lettered", "rejected", "untraced"}


def test_each_message_has_the_status_it_came_to(day: tuple[dict[str, Any], Path]) -> None:
    truth, tables = day
    counts = Counter[str]()
    for row in rows(tables, "delivery_audit"):
        counts[row["status"]] += row["messages"]
    assert counts == truth["statuses"][str(DATE)]


def test_records_that_are_missing_and_skews_are_the_planted_ones(day: tuple[dict[str, Any], Path]) -> None:
    truth, tables = day
    health = {row["streamer"]: row for row in rows(tables, "streamer_health")}
    assert health.keys() == set(STREAMERS)
    (against,) = {row["skew_against"] for row in health.values()} - {None}
    for name, row in health.items():
        planted = truth["health"][name][str(DATE)]
        assert {each: row[each] for each in ("records", "records_missing")} == {
            each: planted[each] for each in ("records", "records_missing")
        }
        skew_ms = FAULTS.skew_ms.get(name, 0) - FAULTS.skew_ms.get(against, 0)
        assert abs(row["clock_skew_ms"] - skew_ms) < 5
