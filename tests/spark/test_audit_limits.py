"""What the audit cannot judge: where the next streamer may not have listened; and a message that comes again without end."""

import datetime as dt
from collections.abc import Set
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_jobs import clocks, delivery_audit
from tests.spark.sightings import audited, kept, seen
from tests.spark.traces import Record, at, configured, frame

pytestmark = pytest.mark.long

MANY = 50_000
"""A sum of so many hashes need not fit a long."""
GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Code is generated: for so many rows, that takes less time than to interpret."""
TO_CLOUD: dict[str, Any] = {
    "msg_type": "notification",
    "sink_authority": "cloud",
    "sink_ue_id": 1,
    "sink_ue_version": 1,
    "sink_resource_id": 0,
}


def flow(source: str, at_next: Set[int], way: str = "ab", **given: Any) -> list[Record]:
    """A message every ten minutes from 06:00 on at the first streamer, and those of these numbers at the next one.

    No two sources may be equally long: that tells their messages apart.
    """
    records = []
    for number in range(96):
        made = at(f"{6 + number // 6:02}:{number % 6}0") + dt.timedelta(milliseconds=len(source))
        about = {"src_authority": source} | given
        records.append(seen(way[0], made, number, **about))
        if number in at_next:
            records.append(seen(way[1], made, number, 4_000, **about))
    return records


@pytest.fixture(scope="module")
def lost(spark: SparkSession) -> dict[str, set[int]]:
    """Numbers of the lost messages by source."""
    all_day = set(range(96))
    records = [
        *flow("all day", all_day - {0, 40, 95}),
        *flow("begins", all_day - set(range(20)) - {50}),
        *flow("stops", set(range(76)) - {50}),
        *flow("side by side", set(range(30)), ingress_transport="zenoh", **TO_CLOUD),
        *flow("to d", set(range(20, 96)) - {50}, way="cd", **TO_CLOUD),
        *flow("late to d", set(range(30, 96)) - {50}, way="cd", **TO_CLOUD),
        *(seen(name, at("23:59"), 99, src_authority="other") for name in "abcd"),
    ]
    audit, detail = audited(spark, records)
    found: dict[str, set[int]] = {}
    for row in detail.where("finding = 'lost'").collect():
        found.setdefault(row.src_authority, set()).add(int.from_bytes(row.msg_id[9:]))
    counts = {row.src_authority: row.messages for row in audit.where("status = 'lost'").collect()}
    assert counts == {source: len(numbers) for source, numbers in found.items()}
    return found


def test_a_topic_is_judged_from_the_first_to_the_last_that_the_next_streamer_had_of_it(lost: dict[str, set[int]]) -> None:
    assert (lost["all day"], lost["begins"], lost["stops"]) == ({40}, {50}, {50})


def test_what_has_a_sink_is_judged_once_the_next_streamer_writes_anything(lost: dict[str, set[int]]) -> None:
    """It writes from number 20 on: that one may have been on its way when it began."""
    assert lost["to d"] == {50}
    assert lost["late to d"] == {*range(21, 30), 50}


def test_an_hour_without_one_of_two_side_by_side_loses_nothing(lost: dict[str, set[int]]) -> None:
    assert "side by side" not in lost


def test_a_message_that_comes_again_without_end_is_judged_as_one_that_comes_twice(spark: SparkSession) -> None:
    first = [seen("a", at("10:00"), number, **TO_CLOUD) for number in range(4)]
    aside = [seen("a", at("10:00"), number, outcome="duplicate", egress=None, **TO_CLOUD) for number in range(4)]
    number = sf.expr("CAST(conv(hex(substr(msg_id, 10)), 16, 10) AS INT)")
    is_aside = sf.col("outcome") == "duplicate"
    times = sf.when(is_aside, sf.when(number == 0, MANY).otherwise(number)).when(number == 3, 2).otherwise(1)
    once = frame(spark, [*first, *aside]).withColumn("n", sf.explode(sf.sequence(sf.lit(1), times))).drop("n")
    with configured(spark, GENERATED):
        rows = once.coalesce(1).cache()
        audit, detail = delivery_audit.transform(rows, clocks.sightings(clocks.alike(rows)), [at("10:00").date()], kept)
        (row,) = audit.collect()
        found = {(int.from_bytes(row.msg_id[9:]), row.finding, row.copies) for row in detail.collect()}
    assert (row.status, row.messages, row.copies) == ("delivered", 4, MANY + 1 + 2 + 3 + 1)
    assert found == {*((each, "duplicate", each or MANY) for each in range(4)), (3, "delivered_twice", 1)}
