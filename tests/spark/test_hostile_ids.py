"""Ids are input: their time may be any, and no job may stop at it."""

import datetime as dt

import pytest
from pyspark.sql import SparkSession

from spark_jobs import rollup
from spark_jobs.tables import MARGINS, TTL_MARGIN
from tests.spark.traces import DATE, frame, record

LATEST = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
DAYS = (DATE - dt.date(1970, 1, 1)).days
FAR_US = 300_000_000_000_000_000


@pytest.mark.parametrize("ttl_ms", [pytest.param(1000, id="usual"), pytest.param(2**32 - 1, id="longest")])
def test_an_id_of_any_year_has_a_margin(spark: SparkSession, ttl_ms: int) -> None:
    rows = [record(msg_ts=LATEST, age_us=age_us, ttl_ms=ttl_ms, latency_us=0) for age_us in (-FAR_US, FAR_US)]
    summed = rollup.transform(frame(spark, [*rows, record(age_us=FAR_US)])).collect()
    assert sorted(row.hour_of_message or 0 for row in summed) == [0, DAYS * 24 + 7]
    counted = {name: sum(row[name] for row in summed) for name in MARGINS}
    assert counted == {"late": 1, "under_10": 0, "under_25": 0, "under_50": 0, "over_50": 1}
    assert min(row.least_margin_us for row in summed if row.least_margin_us is not None) == ttl_ms * 1000 - FAR_US


def test_classes_begin_at_their_share_and_a_ttl_has_an_end(spark: SparkSession) -> None:
    left = {0: "late", 1: "under_10", 99_999: "under_10", 100_000: "under_25", 250_000: "under_50", 500_000: "over_50"}
    rows = [record(ttl_ms=1000, age_us=1_000_000 - us, latency_us=0, route=str(us)) for us in left]
    rows.append(record(ttl_ms=2**63 - 1, age_us=0, latency_us=0, route="no TTL of uProtocol's"))
    summed = rollup.transform(frame(spark, rows))
    found = {row.route: [name for name in MARGINS if row[name]] for row in summed.collect()}
    assert found == {str(us): [name] for us, name in left.items()} | {"no TTL of uProtocol's": ["over_50"]}
    assert rollup.view(TTL_MARGIN, rollup.published(summed)).count() == len(rows)
