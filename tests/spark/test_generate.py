"""What the generator writes is what the daemon would write, and the same each time."""

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_jobs.generate import Faults, Plan, generate, release
from spark_jobs.generate.__main__ import main
from spark_jobs.schema import OUTCOMES, TRACE, VERSION, VERSION_KEY
from tests.spark.traces import SCHEMA

FIRST = dt.date(2026, 11, 20)
NAMES = ("gateway.cloud", "gateway.edge", "gateway.veh1")
PLAN = Plan(FIRST, (1_500,), NAMES, seed=3, faults=Faults(lost=3, expired=4, untraced=3, held=((NAMES[2], 0, 8),)))


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    generate(PLAN, folder)
    release(folder)
    return folder


@pytest.fixture(scope="module")
def rows(traces: Path) -> list[dict[str, Any]]:
    return [
        row | {"folder": path.parent.relative_to(traces).as_posix()}
        for path in sorted(traces.glob("date=*/hour=*/streamer=*/part-*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]


def test_files_have_the_schema_of_the_contract(traces: Path) -> None:
    for path in traces.glob("date=*/*/*/*.parquet"):
        schema = pq.ParquetFile(path).schema_arrow
        assert schema.remove_metadata() == SCHEMA.remove_metadata()
        assert pq.read_metadata(path).metadata[VERSION_KEY.encode()] == str(VERSION).encode()
        assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_required_columns_are_never_null(rows: list[dict[str, Any]]) -> None:
    required = [field.name for field in TRACE if not field.nullable]
    assert [name for name in required if any(row[name] is None for row in rows)] == []


def test_records_lie_in_the_folder_of_their_ingress(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["folder"].startswith(f"date={row['ts']:%Y-%m-%d}/hour={row['ts'].hour}/streamer=gateway.")


def test_ids_are_uuid_7_of_the_time_of_the_message(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        made = uuid.UUID(bytes=row["msg_id"])
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == round(row["msg_ts"].timestamp() * 1000)
        assert row["age_us"] == (row["ts"] - row["msg_ts"]) // dt.timedelta(microseconds=1)


def test_responses_name_their_requests(rows: list[dict[str, Any]]) -> None:
    requests = {row["msg_id"] for row in rows if row["msg_type"] == "request"}
    answered = {row["req_id"] for row in rows if row["msg_type"] == "response"}
    assert answered
    assert answered <= requests
    assert {row["req_id"] for row in rows if row["msg_type"] != "response"} == {None}


def test_nothing_is_delivered_after_its_time_to_live(rows: list[dict[str, Any]]) -> None:
    timed = [row for row in rows if row["outcome"] == "delivered" and row["ttl_ms"] is not None]
    assert timed
    assert all(row["age_us"] + row["queue_wait_us"] < row["ttl_ms"] * 1000 for row in timed)


def test_outcomes_are_known(rows: list[dict[str, Any]]) -> None:
    assert {row["outcome"] for row in rows} <= set(OUTCOMES)
    assert all((row["ucode"] == "OK") == (row["outcome"] == "delivered") for row in rows)


def test_seq_ascends_with_the_outcomes_and_lacks_only_the_untraced(rows: list[dict[str, Any]]) -> None:
    for name in NAMES:
        own = sorted((row for row in rows if row["folder"].endswith(name)), key=lambda row: row["seq"])
        done = [row["ts"] + dt.timedelta(microseconds=row["latency_us"]) for row in own]
        assert done == sorted(done)
        assert len({row["seq"] for row in own}) == len(own)
        assert own[-1]["seq"] + 1 - len(own) == (3 if name == NAMES[1] else 0)


def test_the_same_seed_gives_the_same_files(traces: Path, tmp_path: Path) -> None:
    generate(PLAN, tmp_path)
    release(tmp_path)
    first, second = (
        {path.relative_to(root): pq.ParquetFile(path).read() for path in root.rglob("*.parquet")}
        for root in (traces, tmp_path)
    )
    assert first == second


@pytest.mark.long
def test_history_comes_before_and_has_no_faults(tmp_path: Path) -> None:
    common = ["--output", str(tmp_path), "--from", "2026-11-20", "--records", "1500"]
    assert main([*common, "--history-days", "2", "--history-share", "0.3"]) == 0
    dates = sorted(path.name for path in tmp_path.glob("date=*"))
    assert dates[:3] == ["date=2026-11-18", "date=2026-11-19", "date=2026-11-20"]
    past = [row for path in tmp_path.glob("date=2026-11-1*/*/*/*") for row in pq.ParquetFile(path).read().to_pylist()]
    assert {row["outcome"] for row in past} == {"delivered", "unwanted"}


def test_faults_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="9999 × lost do not fit"):
        generate(Plan(FIRST, (300,), NAMES, 1, Faults(lost=9999)), tmp_path)
