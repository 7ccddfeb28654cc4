"""Three streamers in a chain over two days, with every kind of fault planted: the jobs find these, no more and no fewer."""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_jobs import delivery_audit, job, records, streamer_health
from spark_jobs.batch import Batch, around
from spark_jobs.generate import Faults, Plan, Surge, generate, release
from spark_jobs.storage import Storage
from spark_jobs.tables import COMPLETENESS, DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL, STREAMER_HEALTH, Table
from tests.spark.traces import configured, read

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FIRST = dt.date(2026, 11, 19)
DATES = (FIRST, FIRST + dt.timedelta(days=1))
CLOUD, EDGE, VEHICLE = "gateway.cloud", "gateway.edge", "gateway.veh1"
SKEW_MS = {CLOUD: -45_000, VEHICLE: 90_000}
PLAN = Plan(
    FIRST,
    (4_000, 3_500),
    (CLOUD, EDGE, VEHICLE),
    seed=7,
    faults=Faults(
        lost=14,
        duplicate=9,
        delivered_twice=6,
        expired=10,
        dead_lettered=8,
        rejected=7,
        untraced=8,
        over_midnight=5,
        skew_ms=SKEW_MS,
        outages=((EDGE, 0, 13),),
        restarts=((CLOUD, 1, 15 * 60 + 20), (VEHICLE, 0, 30)),
        surges=(Surge(1, 14, "campaigns"),),
        # an hour in the middle, and the end of what the vehicle wrote (by its clock, it wrote on into the third day)
        held=((VEHICLE, 0, 9), *((VEHICLE, 1, hour) for hour in range(20, 24)), *((VEHICLE, 2, hour) for hour in range(3))),
    ),
)
Findings = dict[str, set[str]]
_TOPIC = ("src_authority", "src_ue_id", "src_resource_id")
_AS_IF_LARGE = {"spark.sql.adaptive.enabled": "true", "spark.ustreamer.small": "false", "spark.sql.shuffle.partitions": "2"}
_AS_AT_NIGHT = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Shuffled into more than one part, and by generated code, unlike other tests."""


@dataclass
class NightTables:
    """The traces, and the tables made of them before and after the late files came."""

    traces: Path
    truth: dict[str, Any]
    expected_early: dict[dt.date, Findings]
    early: dict[tuple[str, dt.date], list[Any]]
    late: dict[tuple[str, dt.date], list[Any]]


@pytest.fixture(scope="module")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> NightTables:
    folder = tmp_path_factory.mktemp("night")
    traces, output = folder / "traces", str(folder / "tables")
    truth = generate(PLAN, traces)

    def run(files: DataFrame, dates: tuple[dt.date, ...], *jobs: job.Job) -> None:
        batch = _Batch(spark, str(traces), output, dates, reach=(2, 1), files=files)
        for each in jobs:
            list(job.run(each, batch))
        batch.release()

    expected_early = _visible_truth(traces, truth)
    with _read_once(spark, traces) as files:  # the later date first
        with configured(spark, _AS_IF_LARGE):
            run(files, DATES[1:], delivery_audit.JOB)
        run(files, DATES[:1], delivery_audit.JOB, streamer_health.JOB)
    early = {(DELIVERY_AUDIT_DETAIL.name, date): _rows(output, DELIVERY_AUDIT_DETAIL, date) for date in DATES}
    early[STREAMER_HEALTH.name, DATES[0]] = _rows(output, STREAMER_HEALTH, DATES[0])
    late_files = sum(1 for _ in traces.glob("_held/date=*/hour=*/streamer=*/*.parquet"))
    assert release(traces) == late_files >= 5
    with _read_once(spark, traces) as files:
        with pytest.MonkeyPatch.context() as patch:
            _kill_at(patch, DELIVERY_AUDIT_DETAIL.name)
            with pytest.raises(_KilledError):
                run(files, DATES[:1], delivery_audit.JOB)
        # both at once now; the first a second time with the same files, after a kill half way
        with configured(spark, _AS_AT_NIGHT):
            run(files, DATES, streamer_health.JOB, delivery_audit.JOB)
    made = (COMPLETENESS, DELIVERY_AUDIT, DELIVERY_AUDIT_DETAIL, STREAMER_HEALTH)
    late = {(table.name, date): _rows(output, table, date) for table in made for date in DATES}
    return NightTables(traces, truth, expected_early, early, late)


@contextmanager
def _read_once(spark: SparkSession, traces: Path) -> Iterator[DataFrame]:
    """The records of all dates, as the files stand now: so many small ones cost more to open than their rows to keep."""
    files = read(spark, traces, records.dates(spark, str(traces))).coalesce(2).cache()
    yield files
    files.unpersist()


@dataclass
class _Batch(Batch):
    """Of records that were read once, for all dates and jobs."""

    files: DataFrame | None = None

    def records(self, before: int = 0, after: int = 0) -> DataFrame:
        assert self.files is not None
        return self.files.where(sf.col("date").isin(around(self.dates, -before, after)))


class _KilledError(Exception):
    """Stands for the end of the process: nothing catches it."""


def _kill_at(patch: pytest.MonkeyPatch, table: str) -> None:
    replace = Storage.replace

    def killed(storage: Storage, target: str, fresh: str) -> None:
        if f"/{table}/" in target:
            raise _KilledError
        replace(storage, target, fresh)

    patch.setattr(Storage, "replace", killed)


def _rows(output: str, table: Table, date: dt.date) -> list[Any]:
    return list(pq.read_table(f"{output}/{table.name}/date={date}").to_pylist())


def _found(rows: list[Any]) -> Findings:
    found: Findings = defaultdict(set)
    for row in rows:
        assert row["msg_id"].hex() not in found[row["finding"]], "a message stands in the detail once per finding"
        found[row["finding"]].add(row["msg_id"].hex())
    return dict(found)


def _planted(truth: dict[str, Any], date: dt.date) -> Findings:
    planted = {finding: {i for day, i in rows if day == str(date)} for finding, rows in truth["findings"].items()}
    return {finding: ids for finding, ids in planted.items() if ids}


def _visible_truth(traces: Path, truth: dict[str, Any]) -> dict[dt.date, Findings]:
    """What is true for the files that are there while some are held back, from the plain records."""
    columns = ["msg_id", "msg_ts", "ts", "latency_us", "outcome", "msg_type", *_TOPIC]
    visible, held = (
        [
            row | {"streamer": path.parent.name.removeprefix("streamer="), "id": row["msg_id"].hex()}
            for path in sorted(root.glob("date=*/hour=*/streamer=*/*.parquet"))
            for row in pq.ParquetFile(path).read(columns).to_pylist()
        ]
        for root in (traces, traces / "_held")
    )

    def true_time(row: Any, time: dt.datetime) -> dt.datetime:
        return time - dt.timedelta(milliseconds=SKEW_MS.get(row["streamer"], 0))

    at_vehicle = [row for row in visible if row["streamer"] == VEHICLE]
    seen_there = {row["id"] for row in at_vehicle}
    judged_until = max(true_time(row, row["ts"]) for row in at_vehicle) - dt.timedelta(minutes=10)
    handed: dict[str, dt.datetime] = {}
    for row in visible:
        if row["outcome"] == "delivered":
            done = true_time(row, row["ts"] + dt.timedelta(microseconds=row["latency_us"]))
            handed[row["id"]] = max(done, handed.get(row["id"], done))
    hidden = {row["id"] for row in held}
    # of a topic, only what lies between the first and the last that the next streamer had: else it may not have listened
    topics = {row["id"]: tuple(row[name] for name in _TOPIC) for row in visible if row["msg_type"] == "publish"}
    heard: dict[tuple[Any, ...], list[dt.datetime]] = defaultdict(list)
    for row in visible:
        heard[row["streamer"], topics.get(row["id"])].append(true_time(row, row["ts"]))

    def listened(message: str) -> bool:
        times = heard[truth["missing_at"].get(message, VEHICLE), topics.get(message)]
        return message not in topics or (bool(times) and min(times) <= handed[message] <= max(times))

    came_from_above = {row["id"]: row["msg_ts"].date() for row in held if row["src_authority"] not in ("veh1", VEHICLE)}
    expected = {}
    for date in DATES:
        findings = _planted(truth, date)
        for finding in ("expired", "dead_lettered", "rejected", "duplicate", "delivered_twice"):
            findings[finding] -= {row["id"] for row in held if row["outcome"] == finding}
        twice = {row["id"] for row in held if row["id"] not in seen_there}
        findings["delivered_twice"] -= {i for i in findings["delivered_twice"] if _only_there(i, twice, held)}
        findings["untraced"] -= hidden
        lost = findings["lost"] & handed.keys()
        lost = {i for i in lost if truth["missing_at"][i] != VEHICLE or handed[i] <= judged_until}
        vanished = {i for i, day in came_from_above.items() if day == date and i not in seen_there and i in handed}
        lost |= {i for i in vanished if handed[i] <= judged_until}
        findings["lost"] = {i for i in lost if listened(i)}
        expected[date] = {finding: ids for finding, ids in findings.items() if ids}
    return expected


def _only_there(message: str, hidden: set[str], held: list[Any]) -> bool:
    """Was it delivered twice by the vehicle, in the files that are held back?"""
    return message in hidden and sum(row["id"] == message and row["outcome"] == "delivered" for row in held) == 2


def _unknown(night: NightTables, date: dt.date) -> set[str]:
    """The planted losses in an hour in which records of the streamer that lacks them are missing, too."""
    lacking = {(row["streamer"], row["hour"]) for row in night.late["completeness", date] if row["expected"] > row["seen"]}
    lost = _planted(night.truth, date)["lost"]
    return {each for each in lost if (night.truth["missing_at"][each], int(each[:12], 16) // 3_600_000 % 24) in lacking}


def test_every_kind_of_finding_is_planted_on_both_dates(night: NightTables) -> None:
    kinds = {"lost", "duplicate", "delivered_twice", "expired", "dead_lettered", "rejected", "untraced"}
    assert _planted(night.truth, DATES[0]).keys() == _planted(night.truth, DATES[1]).keys() == kinds
    assert night.expected_early[DATES[0]]["lost"] > _planted(night.truth, DATES[0])["lost"]


@pytest.mark.parametrize("date", DATES, ids=str)
def test_findings_are_the_planted_ones(night: NightTables, date: dt.date) -> None:
    planted = _planted(night.truth, date)
    assert _found(night.late["delivery_audit_detail", date]) == planted | {"lost": planted["lost"] - _unknown(night, date)}


@pytest.mark.parametrize("date", DATES, ids=str)
def test_before_the_late_files_the_findings_are_those_of_the_files_seen(night: NightTables, date: dt.date) -> None:
    assert _found(night.early["delivery_audit_detail", date]) == night.expected_early[date]


@pytest.mark.parametrize("date", DATES, ids=str)
def test_each_message_has_the_status_it_came_to(night: NightTables, date: dt.date) -> None:
    counts: dict[str, int] = defaultdict(int)
    for row in night.late["delivery_audit", date]:
        counts[row["status"]] += row["messages"]
    planted, unknown = Counter(night.truth["statuses"][str(date)]), len(_unknown(night, date))
    assert counts == planted + Counter(unknown=unknown) - Counter(lost=unknown)


@pytest.mark.parametrize("date", DATES, ids=str)
def test_copies_are_counted(night: NightTables, date: dt.date) -> None:
    planted = _planted(night.truth, date)
    copies = sum(row["copies"] for row in night.late["delivery_audit", date])
    assert copies == len(planted["duplicate"]) + len(planted["delivered_twice"])


@pytest.mark.parametrize("date", DATES, ids=str)
def test_a_loss_names_the_streamer_that_lacks_it(night: NightTables, date: dt.date) -> None:
    lost = [row for row in night.late["delivery_audit_detail", date] if row["finding"] == "lost"]
    assert {row["msg_id"].hex(): row["missing_at"] for row in lost} == {
        message: night.truth["missing_at"][message]
        for message in _planted(night.truth, date)["lost"] - _unknown(night, date)
    }


@pytest.mark.parametrize("date", DATES, ids=str)
def test_latency_is_free_of_the_skews(night: NightTables, date: dt.date) -> None:
    """Notifications have no planted wait but that over midnight and in the outage; half of them take some milliseconds."""
    rows = [r for r in night.late["delivery_audit", date] if r["msg_type"] == "notification" and r["status"] == "delivered"]
    assert {row["src_authority"] for row in rows} == {"cloud.fleet", "veh1"}
    assert all(0 < row["latency_p50_us"] < 1_000_000 for row in rows)


@pytest.mark.parametrize("date", DATES, ids=str)
@pytest.mark.parametrize("streamer", [CLOUD, EDGE, VEHICLE])
def test_health_counts_what_the_streamer_did_not_write(night: NightTables, date: dt.date, streamer: str) -> None:
    truth = night.truth["health"][streamer][str(date)]
    (row,) = [row for row in night.late["streamer_health", date] if row["streamer"] == streamer]
    assert row | truth | {"missing_hours": ",".join(map(str, truth["missing_hours"]))} == row


@pytest.mark.parametrize("date", DATES, ids=str)
def test_restarts_are_the_planted_ones(night: NightTables, date: dt.date) -> None:
    planted = {CLOUD: (0, 1), EDGE: (1, 0), VEHICLE: (1, 0)}
    restarts = {row["streamer"]: row["restarts"] for row in night.late["streamer_health", date]}
    assert restarts == {name: days[DATES.index(date)] for name, days in planted.items()}


@pytest.mark.parametrize("date", DATES, ids=str)
def test_skews_are_the_planted_ones_within_a_transit(night: NightTables, date: dt.date) -> None:
    rows = {row["streamer"]: row for row in night.late["streamer_health", date]}
    (against,) = {row["skew_against"] for row in rows.values()} - {None}
    base = SKEW_MS.get(against, 0)
    for name, row in rows.items():
        assert abs(row["clock_skew_ms"] + base - SKEW_MS.get(name, 0)) < 5


def test_an_hour_whose_files_are_late_is_missing_until_they_come(night: NightTables) -> None:
    early, late = (
        {row["streamer"]: row["missing_hours"] for row in tables["streamer_health", DATES[0]]}
        for tables in (night.early, night.late)
    )
    assert early == late | {VEHICLE: "9"}
