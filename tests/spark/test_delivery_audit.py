"""The audit's tables from hand-made records: dates, latencies, late hand-overs, empty days. The rules: test_verdict."""

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import delivery_audit, spans
from spark_jobs.tables import DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL
from tests.spark.sightings import audited, chain, msg_id, seen
from tests.spark.traces import DATE, Record, at, configured, read, write

pytestmark = pytest.mark.long

BEFORE, AFTER = (DATE + dt.timedelta(days=days) for days in (-1, 1))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> tuple[list[Any], list[Any]]:
    """Both tables of one date."""
    records = [
        *(each for number in range(100) for each in chain(at("10:00") + dt.timedelta(minutes=number), number)),
        # of other dates: the first by its time, though it came in on the date; the second by both
        seen("a", at("23:59:59", BEFORE), 200, 5_000_000),
        seen("a", at("00:00:00", AFTER), 201, 1_000),
        # made on the date, and noted under the next one
        *chain(at("23:59:59.9"), 210, ttl_ms=None),
        seen("b", at("23:00"), 220, 7_200_000_000),
        seen("a", at("23:00"), 220, 1_000, 7_199_000_000),
        # lost, and one of which nobody can say it yet
        seen("a", at("12:00"), 230),
        seen("a", at("23:59:58"), 231, 1_000, 7_200_000_000),
        seen("b", at("02:05", AFTER), 999, 1_000),
        seen("a", at("02:05", AFTER), 999, 1_000),
        # the same id twice at one streamer, one set aside
        *chain(at("13:00"), 240),
        seen("b", at("13:00"), 240, 9_000, outcome="duplicate", ucode="ALREADY_EXISTS", route="none", egress=None),
        seen("a", at("14:00"), 250, outcome="expired", ucode="DEADLINE_EXCEEDED"),
    ]
    audit, detail = audited(spark, records)
    for made, table in ((audit, DELIVERY_AUDIT), (detail, DELIVERY_AUDIT_DETAIL)):
        assert table.columns.keys() - {"date"} <= set(made.columns)
    return audit.collect(), detail.collect()


def test_messages_are_those_made_on_the_date(tables: tuple[list[Any], list[Any]]) -> None:
    counts = {row.status: (row.messages, row.copies) for row in tables[0]}
    assert counts == {"delivered": (100 + 2 + 1, 1), "lost": (1, 0), "unknown": (1, 0), "expired": (1, 0)}


def test_findings_carry_what_the_message_was(tables: tuple[list[Any], list[Any]]) -> None:
    found = {
        (
            row.finding,
            bytes(row.msg_id),
            row.streamers,
            row.last_streamer,
            row.last_route,
            row.missing_at,
            row.ucode,
            row.copies,
        )
        for row in tables[1]
    }
    assert found == {
        ("lost", msg_id(at("12:00"), 230), "a", "a", "up", "b", "OK", 0),
        ("duplicate", msg_id(at("13:00"), 240), "a,b", "b", "none", None, "ALREADY_EXISTS", 1),
        ("expired", msg_id(at("14:00"), 250), "a", "a", "up", None, "DEADLINE_EXCEEDED", 0),
    }
    row = next(row for row in tables[1] if row.finding == "lost")
    assert (row.msg_ts.replace(tzinfo=dt.UTC), row.msg_type, row.src_authority) == (at("12:00"), "publish", "veh1")
    assert (row.src_ue_id, row.src_resource_id, row.sink_authority) == (1, 0x8000, None)


def test_latency_is_from_the_message_to_the_last_confirmation(tables: tuple[list[Any], list[Any]]) -> None:
    (row,) = [row for row in tables[0] if row.status == "delivered"]
    assert (row.latency_p50_us, row.latency_max_us) == (4_500, 7_200_000_500)
    assert {row.latency_max_us for row in tables[0] if row.status != "delivered"} == {None}


def test_a_day_without_messages_has_no_rows(spark: SparkSession) -> None:
    audit, detail = audited(spark, chain(at("10:00", BEFORE), 1))
    assert (audit.collect(), detail.collect()) == ([], [])


def test_a_streamer_that_only_set_copies_aside_has_no_clock_and_stops_nothing(spark: SparkSession) -> None:
    aside = seen("c", at("10:00"), 1, 9_000, outcome="duplicate", ucode="ALREADY_EXISTS", route="none", egress=None)
    audit, detail = audited(spark, [*chain(at("10:00"), 1), aside])
    assert [(row.status, row.messages, row.copies) for row in audit.collect()] == [("delivered", 1, 1)]
    assert [(row.finding, row.last_streamer) for row in detail.collect()] == [("duplicate", "c")]


def test_one_id_in_two_flows_is_two_messages_with_copies_of_their_own(spark: SparkSession) -> None:
    made = at("10:00")
    other: dict[str, Any] = {"src_authority": "veh2", "route": "duplicate"}
    records = [*chain(made, 1), seen("a", made, 1, **other), seen("a", made, 1, **other)]
    audit, detail = audited(spark, records)
    rows = {row.src_authority: (row.status, row.messages, row.copies) for row in audit.collect()}
    assert rows == {"veh1": ("delivered", 1, 0), "veh2": ("delivered", 1, 1)}
    assert [(row.finding, row.src_authority, row.copies) for row in detail.collect()] == [("delivered_twice", "veh2", 1)]


def test_dates_together_give_what_each_gives_alone(spark: SparkSession) -> None:
    """The same flow, clocks that are set between the dates, and a loss on each of them."""
    dates = [BEFORE, DATE]
    records = []
    for date, wrong_us in zip(dates, (0, 30_000_000), strict=True):
        for number in range(20):
            made = at(f"10:{number:02}", date)
            ages = (1_000, 4_000 + wrong_us)
            both = [seen(name, made, number, age_us) for name, age_us in zip("ab", ages, strict=True)]
            records += both if number != 7 + date.day % 3 else both[:1]
        records += chain(at("23:59:59.9", date), 50)
        records += [seen(name, at("22:00", date), number) for number, name in enumerate("ab", 60)]
    audit, detail = audited(spark, records, *dates)
    together = audit.select(*DELIVERY_AUDIT.columns).collect(), detail.select(*DELIVERY_AUDIT_DETAIL.columns).collect()
    assert len([row for row in together[1] if row.finding == "lost"]) >= len(dates)
    apart = [audited(spark, records_around(records, date), date) for date in dates]
    for number, table in enumerate((DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL)):
        alone = [row for both in apart for row in both[number].select(*table.columns).collect()]
        assert sorted(map(repr, together[number])) == sorted(map(repr, alone))


def test_the_order_of_streamers_and_the_latency_come_from_corrected_clocks(spark: SparkSession) -> None:
    """B's clock is 30 s ahead. Of what comes down from B to A, B lacks two records: by their number, it would come last."""
    up: dict[str, Any] = {"msg_type": "notification", "src_authority": "veh1", "sink_authority": "cloud"}
    down: dict[str, Any] = {"msg_type": "notification", "src_authority": "cloud", "sink_authority": "veh1"}
    ahead_us = 30_000_000
    records = []
    for number in range(40):
        made = at(f"10:{number:02}")
        records += [
            seen("a", made, number, 1_000, ingress="vehicle", egress="net", **up),
            seen("b", made, number, 4_000 + ahead_us, ingress="net", egress="cloud", **up),
        ]
        at_b = seen("b", made, 100 + number, 1_000 + ahead_us, ingress="cloud", egress="net", **down)
        at_a = seen("a", made, 100 + number, 4_000, ingress="net", egress="vehicle", **down)
        records += [at_b] * (number not in (5, 6)) + [at_a] * (number != 7)
    audit, detail = audited(spark, records)
    rows = {
        (row.src_authority, row.status): (row.messages, row.latency_p50_us, row.latency_max_us) for row in audit.collect()
    }
    assert rows == {
        ("veh1", "delivered"): (40, 4_500, 4_500),
        ("cloud", "delivered"): (39, 4_500, 4_500),
        ("cloud", "lost"): (1, None, None),
    }
    found = [(row.finding, bytes(row.msg_id), row.streamers, row.missing_at) for row in detail.collect()]
    assert found == [("lost", msg_id(at("10:07"), 107), "b", "a")]


def records_around(records: Iterable[Record], date: dt.date) -> list[Record]:
    return [each for each in records if abs((each["ts"].date() - date).days) <= spans.REACH_DAYS]


def test_records_of_few_messages_are_looked_for_by_time_before_any_hash(spark: SparkSession, tmp_path: Path) -> None:
    """Spark infers that what is joined on is not null, and would make every hash to find that out."""
    write(tmp_path, [seen("a", at("10:00"), 1)])
    of_dates = delivery_audit._of_dates(read(spark, tmp_path, [DATE]), [DATE])
    wanted = spark.range(1)
    with configured(spark, {"spark.sql.maxPlanStringLength": "100000"}):
        plan: str = delivery_audit._of_messages(of_dates, wanted)._jdf.queryExecution().optimizedPlan().toString()
    assert "LeftSemi" in plan
    below = plan[plan.index("LeftSemi") :]
    assert "Filter" in below
    assert "xxhash64" not in below
