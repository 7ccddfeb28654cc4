"""Strangers choose how many flows there are: beyond a bound, their flows are judged together, and the others as ever."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import clocks, delivery_audit
from spark_jobs.tables import DELIVERY_AUDIT_DETAIL
from tests.spark.sightings import chain, kept, seen
from tests.spark.traces import DATE, Record, at, frame

pytestmark = pytest.mark.long

STRANGERS = 400
MOST = 300
NOBODY: dict[str, Any] = {"msg_type": "notification", "sink_ue_id": 1, "sink_ue_version": 1, "sink_resource_id": 0}
TURNED_AWAY: dict[str, Any] = {"outcome": "rejected", "ucode": "PERMISSION_DENIED", "route": "none", "egress": None}
HEALTHY = 50
"""More messages than any stranger's flow has; one is lost between the streamers."""


def healthy() -> list[Record]:
    records = [each for number in range(HEALTHY) for each in chain(at("10:00") + dt.timedelta(minutes=number), number)]
    late = [seen(name, at("23:59"), number, src_authority="late") for number in (901, 902) for name in "ab"]
    return [*records, seen("a", at("10:30"), 900), *late]


def counted(spark: SparkSession, records: Iterable[Record], most: int) -> tuple[dict[Any, int], list[Any]]:
    """Messages by source, sink and status; and the findings."""
    rows = frame(spark, records).coalesce(1).cache()
    audit, detail = delivery_audit.transform(rows, clocks.sightings(clocks.alike(rows)), [DATE], kept, most=most)
    found = {(row.src_authority, row.sink_authority, row.status): row.messages for row in audit.collect()}
    return found, detail.select(*DELIVERY_AUDIT_DETAIL.columns).collect()


def test_flows_of_strangers_are_judged_together_and_none_of_their_messages_is_left_out(spark: SparkSession) -> None:
    about = NOBODY | TURNED_AWAY
    strange = [
        seen("a", at("12:00") + dt.timedelta(seconds=number), 1000 + number, sink_authority=f"x{number}", **about)
        for number in range(STRANGERS)
    ]
    before, findings_before = counted(spark, [*healthy(), *strange], 10 * MOST)
    after, findings = counted(spark, [*healthy(), *strange], MOST)
    strangers = {key for key in before if key[2] == "rejected"}
    assert sum(before[key] for key in strangers) == len(strangers) == STRANGERS
    apart = {key: messages for key, messages in after.items() if key[0] is not None}
    assert len(apart.keys() & strangers) < MOST
    assert {key: before[key] for key in apart} == apart
    assert after == apart | {(None, None, "rejected"): STRANGERS - len(apart.keys() & strangers)}
    assert after["veh1", None, "lost"] == 1
    assert sorted(map(str, findings)) == sorted(map(str, findings_before))  # who sent what to whom is told all the same


def test_a_flow_whose_sender_makes_up_ways_keeps_no_other_from_being_judged(spark: SparkSession) -> None:
    """One message to each of many addresses, and others that come again in another number of times each."""
    addressed = [
        seen("a", at("12:00"), 1000 + number, src_authority="many", sink_authority=f"x{number}", **TURNED_AWAY)
        for number in range(STRANGERS)
    ]
    again = [
        seen("a", at("13:00"), 2000 + number, src_authority="again", outcome=outcome)
        for number in range(30)
        for outcome in ("delivered", *["duplicate"] * number)
    ]
    after, _ = counted(spark, [*healthy(), *addressed, *again], MOST)
    assert after == {
        ("veh1", None, "delivered"): HEALTHY,
        ("veh1", None, "lost"): 1,
        ("late", None, "delivered"): 2,
        (None, None, "rejected"): STRANGERS,
        (None, None, "delivered"): 30,
    }


def test_pairs_of_strangers_say_nothing_about_clocks_beyond_a_bound(spark: SparkSession) -> None:
    """B's clock is 3 s ahead, as messages in both directions tell. Strangers claim that it is a minute."""
    true = [
        seen(
            name,
            at("10:00") + dt.timedelta(minutes=number),
            number,
            age_us,
            src_authority=source,
            ingress=ingress,
            egress=egress,
        )
        for number in range(10, 30)
        for name, age_us, source, ingress, egress in (
            ("a", 1_000, "veh1", "vehicle", "cloud"),
            ("b", 3_004_000, "veh1", "cloud", "fleet"),
            ("b", 3_001_000, "fleet", "fleet", "cloud"),
            ("a", 4_000, "fleet", "cloud", "vehicle"),
        )
    ]
    strange = [
        seen(name, at("10:00"), 1000 + number, age_us, src_authority=f"x{number}")
        for number in range(200)
        for name, age_us in (("a", 1_000), ("b", 60_000_000))
    ]
    alone, both = (frame(spark, records).coalesce(1).cache() for records in (true, [*true, *strange]))
    expected = clocks.estimate(clocks.sightings(clocks.alike(alone)))
    assert expected["b"].skew_us == 3_000_000
    few = clocks.sightings(clocks.alike(both), 200)
    assert len(few) < 20
    assert sum(each.messages for each in few) == len(true) + len(strange)
    assert clocks.estimate(few)["b"] == expected["b"]


def test_messages_of_other_days_are_no_hours_of_their_own(spark: SparkSession) -> None:
    records = [seen("a", at("10:00") - dt.timedelta(hours=number), number, number * 3_600_000_000) for number in range(1000)]
    found = clocks.sightings(clocks.alike(frame(spark, records).coalesce(1)))
    assert sum(each.messages for each in found) == 1000
    assert len(found) == 35 + 1  # 11 hours of the day, 24 of the day before, and all others together
