"""Made-up answers of the tables to the report's questions, for tests of the page that need no Spark."""

import datetime as dt
import uuid
from typing import Any

from spark_jobs.schema import OUTCOMES
from spark_jobs.tables import FINDINGS, STATUSES

DAY = dt.date(2026, 11, 20)


def collected(
    authority: str = "veh1", route: str = "up", routes: int = 3, findings: int = 40
) -> dict[str, list[dict[str, Any]]]:
    """What `reading.collect` gives for a full day; rankings are cut as it cuts them."""
    lanes = [{"streamer": "gw" if place else authority, "route": f"{route}{place or ''}"} for place in range(routes)]
    counts = {name: place * 3 + 1 for place, name in enumerate(OUTCOMES)}
    sums = counts | {"messages": sum(counts.values()), "bytes": 123456, "retries": 4, "redelivered": 5}
    hours = [{"hour": at, "messages": 10 + at} for at in range(24) if at != 13]
    spans = {
        f"{m}_{f}": 100 + n * 1000
        for m in ("latency", "queue_wait")
        for n, f in enumerate(("p50_us", "p90_us", "p99_us", "max_us"))
    }
    ends = {
        "src_authority": authority,
        "src_ue_id": 0x18001,
        "src_resource_id": 0x8001,
        "sink_authority": "cloud",
        "sink_ue_id": 2,
        "sink_resource_id": 0,
    }
    pair = {"src_authority": authority, "sink_authority": "cloud"}
    ues = {name: value for name, value in ends.items() if "resource" not in name}
    compared = {"messages": 12, "bytes": 5, "usual": 4.5, "days": 13, "change": 12 / 4.5 - 1}
    span = {"first_ts": "2026-11-20T01:02:03.000Z", "last_ts": "2026-11-20T05:06:07.000Z"}
    top, all_ = lanes[:20], {"total_rows": routes}
    days = [DAY - dt.timedelta(days=back) for back in (0, 1, 2, 5)]
    talker = {
        "rank": 1,
        "streamer": "gw",
        "src_authority": authority,
        "src_ue_id": 7,
        "messages": 31,
        "bytes": 3100,
        "share": 0.31,
    }
    example = {"total_rows": findings, "msg_ts": span["first_ts"], "msg_type": "request", "streamers": f"gw,{authority}"}
    example |= {
        "last_streamer": authority,
        "last_route": route,
        "missing_at": authority,
        "ucode": "UNAVAILABLE",
        "copies": 2,
    }
    health = {
        "streamer": authority,
        "records": 4000,
        "runs": 2,
        "restarts": 1,
        "gaps": 3,
        "records_missing": 17,
        "missing_hours": "13",
        "files_left_out": 2,
    }
    return {
        "days": [{"date": day} | sums for day in days],
        "routes": [lane | sums | {"by_hour": hours} for lane in lanes],
        "latency": [lane | spans | all_ | {"latency_messages": 90, "queue_wait_messages": 90} for lane in top],
        "latency_hourly": [
            lane
            | {
                "messages": 99,
                "by_hour": [
                    {"hour": at, "latency_p50_us": 900 + at, "latency_p99_us": 9000 + at} for at in range(24) if at != 13
                ],
            }
            for lane in lanes[:6]
        ],
        "changes": [
            lane | pair | compared | {"outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "total_rows": 9}
            for lane in top[:8]
        ],
        "dead_letter_days": [
            {"date": day, "outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "messages": 40 + day.day} for day in days
        ],
        "dead_letters": [
            lane | ues | compared | span | all_ | {"outcome": "rejected", "ucode": "UNAVAILABLE"} for lane in top[:10]
        ],
        "sources": [{"name": authority, "messages": 50, "total_rows": 1}],
        "sinks": [{"name": "cloud", "messages": 30, "total_rows": 9}, {"name": None, "messages": 20, "total_rows": 9}],
        "matrix": [
            {"src_authority": authority, "src_authority_named": True, "sink_authority": sink, "sink_authority_named": named}
            | {"messages": messages, "bytes": 1, "delivered": 1, "failed": failed}
            for sink, named, messages, failed in (("cloud", True, 30, 4), (None, True, 20, 0), (None, False, 6, 1))
        ],
        "audit_days": [
            {"date": day, "status": status, "messages": 100 + day.day, "copies": 3, "crowded": 7, "latency_max_us": 5000}
            for day in days
            for status in STATUSES
        ],
        "audit_pairs": [{"src_authority": authority, "sink_authority": None, "total_rows": 30} | dict.fromkeys(STATUSES, 9)],
        "findings": [
            example | ends | {"finding": finding, "msg_id": uuid.UUID(int=7 << 76 | n << 8 | place).bytes}
            for place, finding in enumerate(FINDINGS)
            for n in range(3)
        ],
        "health": [health | span | {"clock_skew_ms": -41.5, "skew_against": "gw", "skew_messages": 20, "total_rows": 1}],
        "health_totals": [
            {"records": 4000, "restarts": 1, "gaps": 3, "records_missing": 17, "files_left_out": 2, "streamers": 1}
        ],
        "clocks": [
            {"streamer": authority, "clock_skew_ms": 3_600_000.0, "skew_against": "gw", "total_rows": 1},
        ],
        "fan_out": [
            {name: value for name, value in ends.items() if name.startswith("src")}
            | {"hour": 9, "publishes": 3, "gateways": 1000, "unknown": 7, "missing": 450, "share": 0.85}
            | {"incomplete": 2, "lacking": 300, "least_share": 0.7, "total_rows": 1}
        ],
        "fan_out_totals": [{"publishes": 3, "expected": 3000, "missing": 450, "incomplete": 2}],
        "lacking": [{"streamer": authority, "missing": 2, "total_rows": 300}],
        "slo": [
            lane
            | {
                "name": route,
                "objective": objective,
                "target": 0.5,
                "actual": actual,
                "met": actual < 0.5,
                "budget_left": budget,
            }
            | {"messages": 97, "total_rows": 3 * routes}
            for objective, actual, budget in (("availability", 0.75, -0.5), ("p99_latency_ms", 0.25, None))
            for lane in top
        ],
        "slo_met": [{"objectives": routes}],
        "anomalies": [
            lane
            | {
                "hour": 17,
                "metric": metric,
                "value": 62.5,
                "median": 26.5,
                "mad": 0.0,
                "score": score,
                "days": 13,
                "total_rows": 99,
            }
            for metric, score in (("messages", float("inf")), ("latency_p99_us", -7.25), ("failed_share", 9.5))
            for lane in top[:6]
        ],
        "ttl_margin": [
            lane
            | all_
            | {
                "messages": 70,
                "expired": 3,
                "late": 1,
                "under_10": 2,
                "under_25": 5,
                "under_50": 6,
                "over_50": 53,
                "least_margin_ms": -8,
            }
            for lane in top
        ],
        "redelivery": [
            lane | all_ | {"messages": 80, "redelivered": 9, "duplicates": 8, "retried": 7, "retries": 15, "max_retries": 4}
            for lane in top
        ],
        "talkers": [talker | {"by": by} for by in ("messages", "bytes")],
    }


def empty() -> dict[str, list[dict[str, Any]]]:
    nothing: dict[str, list[dict[str, Any]]] = {name: [] for name in collected()}
    nothing["slo_met"] = [{"objectives": 0}]
    nothing["health_totals"] = [
        dict.fromkeys(("records", "restarts", "gaps", "records_missing", "files_left_out")) | {"streamers": 0}
    ]
    nothing["fan_out_totals"] = [dict.fromkeys(("publishes", "expected", "missing", "incomplete"))]
    return nothing
