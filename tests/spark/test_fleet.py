"""A fleet of gateways with planted faults, and broadcasts to all of them: what suits three must suit many."""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import clocks, cohorts, delivery_audit, fan_out, job, link_sessions, streamer_health, wide
from spark_jobs.batch import Batch
from spark_jobs.tables import COHORTS, COMPLETENESS, DELIVERY_AUDIT_DETAIL, FAN_OUT, FAN_OUT_MISSING, LINK_SESSIONS
from tests.spark.fleet_day import LATENCY_US, NEW, OLD, Fleet, generate_fleet
from tests.spark.sightings import audited, msg_id, seen
from tests.spark.traces import DATE, Record, at, frame

pytestmark = pytest.mark.long

SMALL = Fleet(DATE, 24, lost=4, rejected=3, broadcasts=6, partial=3, offline=3)
LARGE = (
    Fleet(DATE, 3, each_way=60, offline=1),
    Fleet(DATE, 300, broadcasts=10, partial=5, offline=30),
    Fleet(DATE, 2000, broadcasts=10, partial=5, offline=200),
)

JOBS = (delivery_audit.JOB, fan_out.JOB, cohorts.JOB, link_sessions.JOB, streamer_health.JOB)


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(folder / "tables" / table / f"date={DATE}").to_pylist())


def check_findings(folder: Path, truth: dict[str, Any]) -> None:
    found = defaultdict(set)
    for row in rows_of(folder, DELIVERY_AUDIT_DETAIL.name):
        found[row["finding"]].add(row["msg_id"].hex())
        assert row["finding"] != "lost" or row["missing_at"] == truth["missing_at"][row["msg_id"].hex()]
    assert found == {finding: set(ids) for finding, ids in truth["findings"].items()}


def check_clocks(batch: Batch, truth: dict[str, Any]) -> None:
    """Within two transits: half the difference of the shortest ones of either direction."""
    found = clocks.estimate(batch.sightings)
    assert found.keys() == truth["skew_us"].keys()
    (reference,) = (name for name, each in found.items() if each.against is None)
    for name, each in found.items():
        assert each.skew_us == pytest.approx(truth["skew_us"][name] - truth["skew_us"][reference], abs=5_000)


def check_broadcasts(folder: Path, truth: dict[str, Any], fleet: Fleet) -> None:
    """A third of the fleet lacks every partial broadcast, and nobody lacks anything else."""
    missing = rows_of(folder, FAN_OUT_MISSING.name)
    assert sorted(row["streamer"] for row in missing) == truth["lacking"]
    assert {(row["publishes"], row["missing"]) for row in missing} <= {(fleet.partial, fleet.partial)}
    found = [(row["lacking"], row["gateways"]) for row in rows_of(folder, FAN_OUT.name) if row["missing"]]
    assert found == [(len(truth["lacking"]), fleet.gateways)] * bool(fleet.partial)


def sums(records: Iterable[Record], truth: dict[str, Any]) -> dict[str, Any]:
    """The truth about cohorts; and about links, what had piled up and when the last of it was gone."""
    cohorts: dict[str, dict[str, Any]] = defaultdict(lambda: {"streamers": set(), "messages": 0, "rejected": 0, "lost": 0})
    offline = {
        name: {"down_us": down_us, "up_us": up_us, "piled_up": 0, "last_us": 0}
        for name, (down_us, up_us) in truth["offline"].items()
    }
    for each in records:
        found = cohorts["/".join((each["version"], each["config"], each["route"]))]
        found["streamers"].add(each["streamer"])
        found["messages"] += 1
        found["rejected"] += each["outcome"] == "rejected"
        found["lost"] += each["msg_id"].hex() in truth["missing_at"]
        ts_us = (each["ts"] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        link, ended_us = offline.get(each["streamer"]), ts_us + each["latency_us"]
        if link is not None and each["egress"] == "uplink" and ts_us <= link["up_us"] < ended_us:
            link["piled_up"] += 1
            link["last_us"] = max(link["last_us"], ended_us)
    return {"cohorts": {name: {**each, "streamers": len(each["streamers"])} for name, each in cohorts.items()}} | {
        "offline": offline
    }


def check_cohorts(folder: Path, truth: dict[str, Any]) -> None:
    """The next version is slower, and loses no more."""
    rows = {"/".join((row["version"], row["config"], row["route"])): row for row in rows_of(folder, COHORTS.name)}
    told = ("streamers", "messages", "rejected", "lost")
    assert {name: {each: row[each] for each in told} for name, row in rows.items()} == truth["cohorts"]
    assert sum(row["lost"] for row in rows.values()) == len(truth["findings"]["lost"])
    for version, compiled, config in (OLD, NEW):
        own = [row for row in rows.values() if (row["version"], row["config"]) == (version, config)]
        assert {row["compiled"] for row in own} == {compiled}
        assert {row["latency_p50_us"] for row in own} == {LATENCY_US[version, compiled, config]}


def check_links(folder: Path, truth: dict[str, Any], fleet: Fleet) -> None:
    """Every link was down for two seconds after the start, and those that were planted once more."""
    rows = rows_of(folder, LINK_SESSIONS.name)
    at_start = [row for row in rows if row["reason"] == "started"]
    assert len({(row["streamer"], row["endpoint"]) for row in at_start}) == len(at_start) == 2 * fleet.gateways
    assert {(row["offline_s"], row["piled_up"], row["drain_s"]) for row in at_start} == {(2.0, 0, None)}
    found = {}
    for row in rows:
        if row["reason"] != "started":
            assert (row["endpoint"], row["transport"], row["reason"]) == ("uplink", "mqtt5", "no signal")
            assert row["piled_up_bytes"] == 200 * row["piled_up"]
            down_us, up_us = (round(row[name].timestamp() * 1e6) for name in ("down_ts", "up_ts"))
            assert row["offline_s"] == (up_us - down_us) / 1e6
            last_us = 0 if row["drain_s"] is None else up_us + round(row["drain_s"] * 1e6)
            found[row["streamer"]] = {"down_us": down_us, "up_us": up_us, "piled_up": row["piled_up"], "last_us": last_us}
    assert found == truth["offline"]
    assert sum(each["piled_up"] for each in found.values()) >= 1


def check_completeness(folder: Path, truth: dict[str, Any]) -> None:
    """No gateway lacks a record that it has written."""
    rows = rows_of(folder, COMPLETENESS.name)
    assert {row["streamer"] for row in rows} == truth["skew_us"].keys()
    assert sum(row["seen"] for row in rows) == sum(row["expected"] for row in rows) == truth["records"]


def check_all(spark: SparkSession, folder: Path, fleet: Fleet) -> None:
    """Generate a fleet's day, compute its tables, and compare them with the truth."""
    truth = generate_fleet(fleet, folder / "traces")
    truth |= sums(pq.read_table(folder / "traces" / f"date={fleet.date}").to_pylist(), truth)
    batch = Batch(spark, str(folder / "traces"), str(folder / "tables"), (fleet.date,), reach=(2, 1))
    try:
        for each in JOBS:
            list(job.run(each, batch))
        check_findings(folder, truth)
        check_clocks(batch, truth)
        check_broadcasts(folder, truth, fleet)
        check_cohorts(folder, truth)
        check_links(folder, truth, fleet)
        check_completeness(folder, truth)
    finally:
        batch.release()


def test_what_is_found_in_a_fleet_is_what_was_planted(spark: SparkSession, tmp_path: Path) -> None:
    check_all(spark, tmp_path, SMALL)


@pytest.mark.benchmark
@pytest.mark.parametrize("fleet", LARGE, ids=lambda fleet: str(fleet.gateways))
def test_so_it_is_in_a_large_one(spark: SparkSession, tmp_path: Path, fleet: Fleet) -> None:
    check_all(spark, tmp_path, fleet)


def test_clocks_are_data_and_not_part_of_the_plan(spark: SparkSession) -> None:
    """An expression with a branch for each of so many streamers overflows the stack of Spark's driver."""
    skews_us = {DATE: {f"gateway.{number}": number for number in range(1500)}}
    rows = frame(spark, [seen("gateway.7", at("10:00"), 1, 1_007, 0), seen("other", at("11:00"), 2, 1_000, 0)])
    made = delivery_audit.fates(delivery_audit._of_dates(rows, [DATE]), skews_us)
    assert sorted(row.last_us for row in made.collect()) == [1_000, 1_000]


def leaf(number: int, made: dt.datetime, message: int, **given: Any) -> Record:
    kinds: dict[str, Any] = {
        "ingress_transport": "mqtt5",
        "egress_transport": "zenoh",
        "ingress": "uplink",
        "egress": f"vehicle{number}",
    }
    return seen(f"leaf{number:02}", made, message, 4_000, **kinds | {"src_authority": "cloud"} | given)


def broadcast(message: int, leaves: Iterable[int], made: dt.datetime | None = None) -> list[Record]:
    made = made or at("10:00") + dt.timedelta(minutes=message)
    ends: dict[str, Any] = {
        "ingress": "cloud",
        "egress": "downlink",
        "ingress_transport": "zenoh",
        "egress_transport": "mqtt5",
    }
    return [
        seen("cloud", made, message, 1_000, src_authority="cloud", **ends),
        *(leaf(number, made, message) for number in leaves),
    ]


LEAVES = range(wide.MANY + 4)


def test_a_broadcast_is_judged_by_kinds_of_networks_and_names_real_streamers(spark: SparkSession) -> None:
    made = [at("10:00") + dt.timedelta(minutes=number) for number in range(20)]
    aside = {"outcome": "duplicate", "ucode": "ALREADY_EXISTS", "route": "none", "egress": None, "egress_transport": None}
    records = [each for number in range(12) for each in broadcast(number, LEAVES)]
    records += [
        *broadcast(19, LEAVES, at("12:00")),
        *broadcast(12, ()),  # nobody behind the cloud has it
        *broadcast(13, LEAVES[1:]),
        leaf(0, made[13], 13, outcome="rejected", ucode="PERMISSION_DENIED"),
        *broadcast(14, LEAVES),
        leaf(3, made[14], 14, **aside),
        leaf(5, made[14], 14, **aside),
        *broadcast(15, LEAVES),
        leaf(6, made[15], 15),
        leaf(6, made[15], 15),
        leaf(7, made[15], 15),
        *broadcast(16, ()),  # of this one only copies were recorded
        leaf(8, made[16], 16, **aside),
    ]
    audit, detail = audited(spark, records)
    assert {row.status: (row.messages, row.copies) for row in audit.collect()} == {
        "delivered": (17, 2 + 3 + 1),
        "lost": (1, 0),
    }
    found = {
        (row.finding, bytes(row.msg_id)): (row.streamers, row.last_streamer, row.missing_at, row.copies)
        for row in detail.collect()
    }
    busiest = "leaf06"
    both = f"cloud,{busiest}"
    assert found == {
        ("lost", msg_id(made[12], 12)): ("cloud", "cloud", busiest, 0),
        ("rejected", msg_id(made[13], 13)): (both, "leaf00", None, 0),
        ("duplicate", msg_id(made[14], 14)): (both, "leaf05", None, 2),
        ("delivered_twice", msg_id(made[15], 15)): (both, busiest, None, 3),
        ("duplicate", msg_id(made[16], 16)): (both, "leaf08", None, 1),
    }


def test_however_many_streamers_see_a_broadcast_few_rows_of_it_come_to_the_driver(spark: SparkSession) -> None:
    """Each of them reaches other ones: so many different sets of streamers are one signature."""
    records = [each for number in range(20) for each in broadcast(number, (n for n in LEAVES if (n + number) % 3))]
    rows = frame(spark, records).coalesce(1)
    seen_of = {DATE: clocks.sightings(clocks.alike(rows))}
    of_dates, has_wide = wide.marked(delivery_audit._of_dates(rows, [DATE]), seen_of)
    (counted,) = delivery_audit._counted(delivery_audit.fates(of_dates, {}, has_wide)).collect()
    assert counted.messages == 20
    wanted = spark.createDataFrame([counted], "signature BIGINT, messages BIGINT, id BIGINT")
    examples = delivery_audit._of_messages(of_dates, wanted)
    shown = wide.shown(examples, {DATE: {}}, {DATE: {"cloud": 20, "leaf03": 9, "leaf04": 9, "leaf05": 9}})
    behind, first = sorted(shown, key=lambda each: each.times, reverse=True)
    assert (first.streamer, first.egress, first.places) == ("cloud", "mqtt5", 1)
    assert (behind.egress, behind.places) == ("zenoh", 8)
    assert behind.streamer in {"leaf04", "leaf05"}, "those with most records, of which one lacks the message"


def test_flows_whose_authorities_are_unknown_are_counted_in_the_records(spark: SparkSession) -> None:
    """Of too many pairs of authorities, the sightings are crowded: a broadcast may be among them."""
    rows = frame(spark, [*broadcast(1, LEAVES), *broadcast(2, LEAVES[:2], at("12:00"))[1:]]).coalesce(1)
    crowded = [each._replace(src_authority=None) for each in clocks.sightings(clocks.alike(rows))]
    of_dates, has_wide = wide.marked(delivery_audit._of_dates(rows, [DATE]), {DATE: crowded})
    assert has_wide
    assert of_dates.where(wide.WIDE).count() == of_dates.count() == 1 + len(LEAVES) + 2
    alone = rows.where("streamer < 'leaf04'")
    assert wide.marked(delivery_audit._of_dates(alone, [DATE]), {DATE: crowded})[0].where(wide.WIDE).count() == 0
