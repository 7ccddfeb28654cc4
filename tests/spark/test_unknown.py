"""Lost or unknown: what the audit says of messages that no streamer behind a hand-over has, by whose records are there."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs import clocks, delivery_audit, streamer_health
from tests.spark.sightings import kept, seen
from tests.spark.traces import DATE, Record, at, frame

MINUTES = range(0, 1440, 10)
TO_CLOUD: dict[str, Any] = {"msg_type": "notification", "sink_authority": "cloud", "sink_ue_id": 1, "sink_resource_id": 0}

Missing = list[tuple[str | None, int | None, int]]


def made(minute: int) -> dt.datetime:
    return at("00:00") + dt.timedelta(minutes=minute)


def written(streamer: str, minutes: Iterable[int], without: Iterable[int] = (), run: str = "00:00") -> list[Record]:
    """The records of a streamer, numbered in order; those at the minutes of `without` are missing in the traces."""
    gone, records = set(without), []
    for seq, minute in enumerate(minutes):
        given: dict[str, Any] = TO_CLOUD | {"src_authority": "veh1", "seq": seq, "run_ts": at(run, DATE)}
        if minute not in gone:
            records.append(seen(streamer, made(minute), minute, 1_000 if streamer == "a" else 4_000, **given))
    return records


def but(*minutes: int, since: int = 0, until: int = 1440 + 60) -> list[int]:
    """The minutes at which a message comes, without some: they were lost on the way."""
    return [minute for minute in (*MINUTES, 1440 + 30) if since <= minute < until and minute not in minutes]


def judged(spark: SparkSession, *records: Record, left_out: Any = None) -> dict[str, Missing]:
    """Of lost and unknown messages, for each status: who lacks them, in which hour, and how many."""
    rows = frame(spark, records).coalesce(1).cache()
    alike = clocks.alike(rows)
    sightings = clocks.sightings(alike)
    _, hours = streamer_health.transform(rows, sightings, [DATE], left_out, alike=alike)
    audit, detail = delivery_audit.transform(rows, sightings, [DATE], kept, hours=hours)
    found: dict[str, Missing] = {}
    for row in audit.where("status NOT IN ('delivered')").orderBy("status", "hour").collect():
        found.setdefault(row.status, []).append((row.missing_at, row.hour, row.messages))
    assert detail.where("finding = 'lost'").count() == sum(messages for _, _, messages in found.get("lost", []))
    return found


A = written("a", but())


def test_what_falls_into_an_hour_without_records_is_unknown_and_all_else_is_lost(spark: SparkSession) -> None:
    hour = range(540, 600, 10)
    found = judged(spark, *A, *written("b", but(380, 930), hour))
    assert found == {"lost": [("b", None, 2)], "unknown": [("b", 9, 6)]}


def test_what_comes_behind_the_last_file_that_can_be_read_is_unknown(spark: SparkSession) -> None:
    """A rollout at noon: the files of the new version cannot be read."""
    files = {DATE: {f"hour={hour}/streamer=b/x.v9.parquet": "newer" for hour in range(12, 24)}}
    found = judged(spark, *A, *written("b", but(380, until=720)), left_out=files)
    assert found["lost"] == [("b", None, 1)]
    assert found["unknown"] == [("b", hour, 6) for hour in range(12, 24)]


def test_a_loss_is_found_at_whichever_of_two_streamers_wrote_then(spark: SparkSession) -> None:
    """A gateway is replaced at noon, under another name."""
    found = judged(spark, *A, *written("b", but(380, until=720)), *written("c", but(930, since=720), run="11:55"))
    assert found["lost"] == [("b,c", None, 2)]


def test_what_is_for_a_streamer_that_never_writes_again_is_unknown(spark: SparkSession) -> None:
    found = judged(spark, *(each for each in A if each["ts"] < made(1320)), *written("b", but(until=1280)))
    assert found == {"unknown": [("b", 21, 4)]}


@pytest.mark.parametrize(("gone", "status"), [((), "lost"), ((800,), "unknown")])
def test_of_two_back_ends_side_by_side_the_records_of_both_must_be_there(
    spark: SparkSession, gone: tuple[int, ...], status: str
) -> None:
    first, second = (but(800, *range(start, 1440, 20)) for start in (0, 10))
    found = judged(spark, *A, *written("b", first), *written("c", sorted({*second, *gone}), gone))
    assert {each: sum(row[2] for row in rows) for each, rows in found.items()} == {status: 1}


@pytest.mark.parametrize(
    ("sender", "found"),
    [("b", {"lost": [("b", None, 1)], "unknown": [("b", 23, 6)]}), ("veh1", {"lost": [("b", None, 1 + 6 + 1)]})],
)
def test_what_others_have_of_a_streamer_says_that_its_last_file_is_missing(
    spark: SparkSession, sender: str, found: dict[str, Missing]
) -> None:
    """Its next run begins in the morning."""
    sent = seen("a", made(1410), 9_999, 4_000, **TO_CLOUD, src_authority=sender, seq=len(A), run_ts=at("00:00", DATE))
    assert judged(spark, *A, sent, *written("b", but(380, until=1380)), *written("b", [1800, 1810], run="23:58")) == found
