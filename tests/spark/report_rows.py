"""Made-up answers of the tables to the report's questions, for tests of the page that need no Spark."""

import datetime as dt
import uuid
from typing import Any

from spark_jobs.report.reading import FAULTS
from spark_jobs.schema import FAILURES, OUTCOMES
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
    ues = {name: value for name, value in ends.items() if "resource" not in name}
    counted = {"messages": 12, "bytes": 5}
    span = {"first_ts": "2026-11-20T01:02:03.000Z", "last_ts": "2026-11-20T05:06:07.000Z"}
    top, all_ = lanes[:20], {"total_rows": routes}
    days = [DAY - dt.timedelta(days=back) for back in (0, 1, 2, 5)]
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
        "records_impossible": 21,
        "missing_hours": "13",
        "files_left_out": 2,
    }
    rows: dict[str, list[dict[str, Any]]] = {
        "days": [{"date": day} | sums for day in days],
        "routes": [lane | sums | {"by_hour": hours} for lane in lanes],
        "streamers": [{"streamer": name, "total_rows": 2} for name in ("gw", authority)],
        "health_hours": [{"streamer": authority, "hours": 23}],
        "latency": [lane | spans | all_ | {"latency_messages": 90, "queue_wait_messages": 90} for lane in top],
        "dead_letter_days": [
            {"date": day, "outcome": "expired", "ucode": "DEADLINE_EXCEEDED", "messages": 40 + day.day} for day in days
        ],
        "dead_letters": [
            lane | ues | counted | span | all_ | {"outcome": "rejected", "ucode": "UNAVAILABLE"} for lane in top[:10]
        ],
        "audit_days": [
            {"date": day, "status": status, "messages": 100 + day.day, "copies": 3, "crowded": 7, "latency_max_us": 5000}
            for day in days
            for status in STATUSES
        ],
        "audit_pairs": [{"src_authority": authority, "sink_authority": None, "total_rows": 30} | dict.fromkeys(STATUSES, 9)],
        "audit_unknown": [{"missing_at": authority, "messages": 120, "first": 9, "last": 9, "total_rows": 1}],
        "findings": [
            example | ends | {"finding": finding, "msg_id": uuid.UUID(int=7 << 76 | n << 8 | place).bytes}
            for place, finding in enumerate(FINDINGS)
            for n in range(3)
        ],
        "lost_between": [{"last_streamer": authority, "missing_at": "cloud,other", "messages": 39, "total_rows": 1}],
        "route_missing": [{"route": route, "missing": 450}],
        "health": [health | span | {"clock_skew_ms": -41.5, "skew_against": "gw", "skew_messages": 20, "total_rows": 1}],
        "health_totals": [
            {"records": 4000, "restarts": 1, "gaps": 3, "records_missing": 17, "records_impossible": 0, "files_left_out": 2}
            | {"streamers": 1, "files_left_out_at": 1, "records_missing_at": 1, "records_impossible_at": 0}
        ],
        "health_days": [{"date": day, "streamers": 50, "incomplete": 2} for day in days],
        "clocks": [{"streamer": authority, "clock_skew_ms": 3_600_000.0, "skew_against": "gw", "total_rows": 1}],
        "fan_out": [
            {name: value for name, value in ends.items() if name.startswith("src")}
            | {"hour": 9, "publishes": 3, "gateways": 1000, "unknown": 7, "missing": 450, "share": 0.85}
            | {"lacking": 300, "total_rows": 1}
        ],
        "fan_out_totals": [{"publishes": 3, "expected": 3000, "missing": 450}],
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
        "unusual_at": [{"streamers": 9}],
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
    }
    return rows | of_streamers(authority, route, days)


def of_streamers(authority: str, route: str, days: list[dt.date]) -> dict[str, list[dict[str, Any]]]:
    """What `fleet.collect` gives."""
    counts = {name: place + 2 for place, name in enumerate(OUTCOMES)}
    sums = counts | {"messages": sum(counts.values()), "bytes": 12, "redelivered": 5}
    cohort = {"version": authority, "compiled": False, "config": route, "streamers": 41}
    trouble = {"streamer": authority, "total_rows": 77, "handed_over": 12, "never_came": 13, "unknown": 22, "lacking": 14}
    trouble |= dict.fromkeys(FAILURES, 15) | {"undelivered": 84, "is_failing": True, "unmet": 16, "unusual": 17, "due": 900}
    trouble |= {"records_missing": 18, "records_impossible": 21, "files_left_out": 19, "clock_ms": -2000.0}
    trouble |= {"offline_s": 7200.0, "ucode": route}
    link = {"streamer": authority, "endpoint": route, "transport": "mqtt5", "reason": route, "total_rows": 30}
    link |= {"down_ts": "2026-11-19T23:59:00.000Z", "up_ts": "2026-11-20T02:00:00.000Z", "offline_s": 7200.0}
    link |= {"piled_up": 800, "piled_up_bytes": 8100, "drain_s": 2.5, "version": "1.3.2", "config": "ab"}
    links = {"sessions": 30, "streamers": 21, "still": 3, "offline_s": 9000.0, "piled_up": 900, "piled_up_bytes": 9100}
    whole = {"streamers": 50, "expected": 5100, "seen": 5000, "files_left_out": 6, "complete": 40, "lacking": 7}
    part = {"streamer": authority, "expected": 510, "seen": 500, "missing": 10, "files_left_out": 6, "hours": 22}
    return {
        "route_days": [{"date": day, "route": route, "total_rows": 25} | sums for day in days],
        "lost_days": [{"date": day, "route": route, "lost": 31 + day.day} for day in days],
        "late_days": [{"date": day, "route": route, "late": 51 + day.day} for day in days],
        "worst": [trouble],
        "states": [{"undelivered": 60, "objectives": 10, "traces": 7, "streamers": 500, "well": 423, "silent": 4}],
        "silent": [{"streamer": authority, "records": 650, "days": 13, "last_ts": "2026-11-19T05:06:07.000Z", "usually": 1}
                   | {"total_rows": 9}],
        "silent_totals": [{"silent": 9, "usual": 4, "recorded": 13}],
        "cohorts": [cohort | sums | {"lost": 3, "total_rows": 12}, cohort | sums | {"version": None, "lost": 0}],
        "cohort_totals": [{name: 3 * number for name, number in sums.items()} | {"lost": 6}],
        "cohort_routes": [cohort | {"route": route, "messages": 61, "latency_p50_us": 71, "latency_p99_us": 81}],
        "links": [link],
        "link_totals": [links | {"drain_s": 2.5}],
        "slow_drain": [link],
        "incomplete": [part | {"until": "2026-11-20T08:12:00.000Z", "total_rows": 10}],
        "completeness": [whole],
    }  # fmt: skip


def empty() -> dict[str, list[dict[str, Any]]]:
    nothing: dict[str, list[dict[str, Any]]] = {name: [] for name in collected()}
    nothing["slo_met"] = [{"objectives": 0}]
    counts = ("records", "restarts", "gaps", *FAULTS, *(f"{name}_at" for name in FAULTS))
    nothing["health_totals"] = [dict.fromkeys(counts) | {"streamers": 0}]
    nothing["silent_totals"] = [dict.fromkeys(("silent", "usual", "recorded"), 0)]
    nothing["states"] = [dict.fromkeys(("undelivered", "objectives", "traces", "streamers", "well", "silent"), 0)]
    nothing["cohort_totals"] = [dict.fromkeys(("messages", "lost", "redelivered", *OUTCOMES))]
    names = ("sessions", "streamers", "still", "offline_s", "piled_up", "piled_up_bytes", "drain_s")
    nothing["link_totals"] = [dict.fromkeys(names, 0)]
    nothing["completeness"] = [dict.fromkeys(("streamers", "complete", "lacking"), 0) | {"expected": None, "seen": None}]
    nothing["fan_out_totals"] = [dict.fromkeys(("publishes", "expected", "missing"))]
    return nothing
