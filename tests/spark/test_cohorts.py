"""What became of messages by version and configuration, of which a streamer may have several on one date."""

from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import cohorts
from spark_jobs.schema import OUTCOMES
from spark_jobs.session import small_frame
from spark_jobs.tables import COHORTS, DELIVERY_AUDIT_DETAIL
from tests.spark.traces import DATE, Record, at, frame, record

OLD: Record = {"version": "1.0", "compiled": False, "config": "a"}
NEW: Record = {"version": "1.1", "compiled": True, "config": "b"}
UNKNOWN: Record = dict.fromkeys(OLD)
ID = b"0123456789abcdef"


def made(
    spark: SparkSession, records: list[Record], lost: list[tuple[bytes, str, str]] | None = None
) -> list[dict[str, Any]]:
    told = [
        tuple(
            {"date": DATE, "finding": "lost", "msg_id": id_, "last_streamer": streamer, "last_route": route}.get(name)
            for name in DELIVERY_AUDIT_DETAIL.columns
        )
        for id_, streamer, route in lost or ()
    ]
    rows = frame(spark, records)
    own = rows.where(rows.date == DATE)
    found = cohorts.transform(own, rows, small_frame(spark, told, DELIVERY_AUDIT_DETAIL.ddl))
    return [row.asDict() for row in found.select(*COHORTS.columns).orderBy("version", "route").collect()]


def test_a_streamer_that_was_upgraded_is_in_both_and_records_without_a_version_are_apart(spark: SparkSession) -> None:
    found = made(
        spark,
        [
            record(**OLD, latency_us=1, redelivered=True),
            record("09:00", **OLD, latency_us=3, streamer="other"),
            record("09:00", **OLD, latency_us=9_999, outcome="dead_lettered"),
            record("11:00", **NEW, latency_us=50),
            record("12:00", **NEW, outcome="expired", payload_bytes=5),
            record("12:00", **NEW, route="down"),
            record("12:00", **UNKNOWN),
        ],
    )
    shown = ("version", "compiled", "config", "route", "streamers", "messages", "bytes", "redelivered", "lost")
    assert [tuple(row[name] for name in shown) for row in found] == [
        (None, None, None, "up", 1, 1, 100, 0, 0),
        ("1.0", False, "a", "up", 2, 3, 300, 1, 0),
        ("1.1", True, "b", "down", 1, 1, 100, 0, 0),
        ("1.1", True, "b", "up", 1, 2, 105, 0, 0),
    ]
    outcomes = [{name: row[name] for name in OUTCOMES if row[name]} for row in found]
    assert outcomes == [
        {"delivered": 1},
        {"delivered": 2, "dead_lettered": 1},
        {"delivered": 1},
        {"delivered": 1, "expired": 1},
    ]
    assert [(row["latency_p50_us"], row["latency_p99_us"]) for row in found][1:] == [(1, 3), (1000, 1000), (50, 50)]


def test_a_loss_belongs_to_what_the_streamer_ran_when_it_handed_the_message_over(spark: SparkSession) -> None:
    """Also if the message was made on the date before, or delivered twice, by two versions."""
    before = at("23:59", DATE.replace(day=DATE.day - 1))
    other = ID[::-1]
    records = [
        record("11:00", **NEW),
        record("09:00", **OLD),
        record("10:00", **OLD, msg_id=ID),
        record("12:00", **NEW, msg_id=ID, redelivered=True),
        record("10:00", **NEW, msg_id=ID, streamer="other"),
        record("10:00", **NEW, msg_id=ID, outcome="duplicate"),
        record(before, **NEW, msg_id=other, route="gone"),
    ]
    lost = [(ID, "gateway", "up"), (other, "gateway", "gone")]
    found = [(row["version"], row["route"], row["messages"], row["lost"]) for row in made(spark, records, lost)]
    assert found == [("1.0", "up", 2, 1), ("1.1", "gone", 0, 1), ("1.1", "up", 4, 0)]
