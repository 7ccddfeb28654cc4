"""Tables made by hand for the tests of the report, with figures that can be reckoned on paper."""

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs import tables
from spark_jobs.schema import OUTCOMES
from tests.spark.report_rows import DAY

LOST = uuid.UUID("019aa0f0-1234-7abc-8def-0123456789ab")
_ARROW = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


def put(root: Path, table: tables.Table, rows: list[dict[str, Any]], days_back: int = 0) -> None:
    """One date of a table, as the jobs publish it; a column that a row does not name is null."""
    folder = root / table.name / f"date={DAY - dt.timedelta(days=days_back)}"
    folder.mkdir(parents=True)
    columns = {name: _ARROW[kind] for name, kind in table.columns.items() if name != "date"}
    assert not {name for row in rows for name in row} - columns.keys()
    pq.write_table(
        pa.table({n: pa.array([row.get(n) for row in rows], kind) for n, kind in columns.items()}), folder / "part-0.parquet"
    )


def hour(at: int, streamer: str, route: str, **outcomes: int) -> dict[str, Any]:
    messages = sum(outcomes.values())
    counts = {name: outcomes.get(name, 0) for name in OUTCOMES}
    sums = {"messages": messages, "bytes": messages * 10, "retries": 0, "redelivered": at}
    return {"hour": at, "streamer": streamer, "route": route, "ingress": "a", "egress": "b"} | sums | counts


def at(clock: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2026-11-20T{clock}+00:00")


def letter(messages: int, outcome: str, ucode: str) -> dict[str, Any]:
    ends = {"src_authority": "veh1", "src_ue_id": 0x10002, "sink_authority": "cloud", "sink_ue_id": 0x3}
    counts = {"messages": messages, "bytes": 1}
    span = {"first_ts": at("01:02:03"), "last_ts": at("04:05:06")}
    return {"streamer": "gw", "route": "up", "outcome": outcome, "ucode": ucode} | ends | counts | span


def make(root: Path) -> None:
    put(
        root,
        tables.ROUTE_HOURLY,
        [
            hour(3, "gw", "up", delivered=50, expired=4, rejected=1, dead_lettered=2, duplicate=3),
            hour(5, "gw", "up", delivered=40),
            hour(3, "gw", "down", delivered=20, unheard=5),
            hour(7, "back", "up", delivered=9, local=1),
        ],
    )
    put(root, tables.ROUTE_HOURLY, [hour(3, "gw", "up", delivered=90, expired=10)], days_back=1)
    put(root, tables.ROUTE_HOURLY, [hour(4, "gw", "up", delivered=50)], days_back=14)
    put(root, tables.ROUTE_HOURLY, [hour(4, "gw", "up", delivered=7777)], days_back=15)  # beyond the window
    put(
        root,
        tables.LATENCY_DAILY,
        [
            {
                "streamer": "gw",
                "route": "up",
                "measure": "latency",
                "messages": 90,
                "min_us": 5,
                "p50_us": 1500,
                "p90_us": 2500,
                "p95_us": 2600,
                "p99_us": 31000,
                "p999_us": 40000,
                "max_us": 41000,
            },
            {
                "streamer": "gw",
                "route": "up",
                "measure": "queue_wait",
                "messages": 91,
                "min_us": 1,
                "p50_us": 110,
                "p90_us": 220,
                "p95_us": 260,
                "p99_us": 330,
                "p999_us": 400,
                "max_us": 440,
            },
        ],
    )
    sketch = {"streamer": "gw", "route": "up", "latency_sketch": b"", "queue_wait_sketch": b""}
    put(
        root,
        tables.LATENCY,
        [sketch | {"hour": h, "messages": 45, "latency_p50_us": 1400 + h, "latency_p99_us": 30000 + h} for h in (3, 5)],
    )
    put(root, tables.DEAD_LETTERS, [letter(4, "expired", "DEADLINE_EXCEEDED"), letter(2, "dead_lettered", "UNAVAILABLE")])
    put(root, tables.DEAD_LETTERS, [letter(10, "expired", "DEADLINE_EXCEEDED")], days_back=1)
    status = {"src_authority": "veh1", "sink_authority": "cloud", "msg_type": "request"}
    put(
        root,
        tables.DELIVERY_AUDIT,
        [
            status | {"status": "delivered", "messages": 90, "copies": 6, "latency_max_us": 77000},
            status | {"status": "delivered", "messages": 3, "copies": 0, "src_authority": None, "sink_authority": None},
            status | {"status": "delivered", "messages": 2, "copies": 0, "latency_max_us": 99000, "msg_type": "response"},
            status | {"status": "lost", "messages": 5, "copies": 0},
        ],
    )
    put(root, tables.DELIVERY_AUDIT, [status | {"status": "delivered", "messages": 80, "copies": 1}], days_back=1)
    put(root, tables.DELIVERY_AUDIT, [status | {"status": "lost", "messages": 4, "copies": 0}], days_back=2)
    detail = {
        "finding": "lost",
        "msg_type": "request",
        "src_authority": "veh1",
        "src_ue_id": 0x10002,
        "src_resource_id": 0,
        "sink_authority": "cloud",
        "sink_ue_id": 3,
        "sink_resource_id": 0x7FFF,
        "streamers": "gw",
        "last_streamer": "gw",
        "last_route": "up",
        "missing_at": "back",
        "ucode": "OK",
        "copies": 0,
    }
    later = [detail | {"msg_id": uuid.UUID(int=LOST.int + n).bytes, "msg_ts": at("09:00:00")} for n in range(1, 5)]
    put(root, tables.DELIVERY_AUDIT_DETAIL, [*later, detail | {"msg_id": LOST.bytes, "msg_ts": at("08:59:58.125")}])
    health = {
        "runs": 1,
        "restarts": 0,
        "gaps": 0,
        "records_missing": 0,
        "first_ts": at("00:00:01"),
        "last_ts": at("23:00:00"),
    }
    put(
        root,
        tables.STREAMER_HEALTH,
        [
            health | {"streamer": "back", "records": 10, "clock_skew_ms": -12.5, "skew_against": "gw", "skew_messages": 9},
            health
            | {
                "streamer": "gw",
                "records": 125,
                "runs": 2,
                "restarts": 1,
                "gaps": 2,
                "records_missing": 13,
                "records_impossible": 5,
                "missing_hours": "4",
            },
        ],
    )
    slo = {"name": "default", "streamer": "gw", "route": "up", "messages": 97}
    put(
        root,
        tables.SLO,
        [
            slo | {"objective": "p99_latency_ms", "target": 50.0, "actual": 31.0, "met": True},
            slo | {"objective": "availability", "target": 0.99, "actual": 0.9278, "met": False, "budget_left": -6.22},
        ],
    )
    odd = {"streamer": "gw", "route": "up", "metric": "messages", "days": 2, "mad": 3.0, "median": 20.0}
    put(
        root,
        tables.ANOMALIES,
        [odd | {"hour": 3, "value": 60.0, "score": 8.99}, odd | {"hour": 5, "value": -40.0, "score": -13.5}],
    )
    topic = {"src_authority": "veh1", "src_ue_id": 0x10002, "src_resource_id": 0x8000, "gateways": 8, "unknown": 1}
    whole = topic | {"hour": 8, "publishes": 2, "expected": 16, "missing": 0, "share": 1.0}
    part = topic | {"hour": 9, "publishes": 3, "expected": 24, "missing": 3, "share": 0.875}
    put(root, tables.FAN_OUT, [whole | {"lacking": 0}, part | {"lacking": 2}])
    lacking = {name: topic[name] for name in ("src_authority", "src_ue_id", "src_resource_id")} | {"hour": 9, "publishes": 3}
    put(
        root,
        tables.FAN_OUT_MISSING,
        [lacking | {"streamer": "back", "missing": 1}, lacking | {"streamer": "gw", "missing": 2}],
    )
    put(
        root,
        tables.TTL_MARGIN,
        [
            {
                "streamer": "gw",
                "route": "up",
                "messages": 61,
                "expired": 4,
                "late": 1,
                "under_10": 2,
                "under_25": 8,
                "under_50": 14,
                "over_50": 36,
                "least_margin_ms": -17,
            }
        ],
    )
    cohort = {"version": "1.3.2", "compiled": True, "config": "0a1b", "streamers": 1, "messages": 100, "delivered": 90}
    put(root, tables.COHORTS, [cohort | {"route": "up", "expired": 4, "lost": 5}])
    link = {"streamer": "back", "endpoint": "cloud", "down_ts": at("02:00:00"), "up_ts": at("02:00:30"), "offline_s": 30.0}
    put(root, tables.LINK_SESSIONS, [link | {"reason": "refused", "piled_up": 7, "piled_up_bytes": 70, "drain_s": 0.5}])
    hours = [{"streamer": "gw", "hour": at_hour, "expected": 6, "seen": 6, "files_left_out": 0} for at_hour in range(24)]
    until: list[dict[str, Any]] = [{"complete_until": at(f"{n:02}:00:00") + dt.timedelta(hours=1)} for n in range(24)]
    until[4] = {"complete_until": at("04:10:00"), "seen": 2}
    put(root, tables.COMPLETENESS, [row | known for row, known in zip(hours, until, strict=True)])
