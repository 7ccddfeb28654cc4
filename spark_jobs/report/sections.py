"""One function per section of the report: collected rows in, that section's figures out. Pure; see `figures`.

A figure is a number under a name that says its unit. Lists are already cut to what the page shows; ``more`` is the number of
rows that were left out. None means unknown, which is never the same as 0.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from spark_jobs.anomalies import LEAST_DAYS
from spark_jobs.report.numbers import entity, uuid_text
from spark_jobs.report.reading import (
    CLOCK_MS,
    FAULTS,
    FEW,
    FLEET_ROWS,
    HOURLY_ROUTES,
    REASONS,
    ROUTES,
    TOTAL,
    Collected,
    Rows,
)
from spark_jobs.schema import FAILURES, OUTCOMES
from spark_jobs.tables import FINDINGS, STATUSES

Figures = dict[str, Any]


def total(rows: Rows, *names: str) -> int:
    return sum(row[name] or 0 for row in rows for name in names)


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def relative(value: float | None, usual: float | None) -> float | None:
    """``value / usual − 1``; None if usual is None or 0."""
    return value / usual - 1 if value is not None and usual else None


def more(rows: Rows) -> int:
    """How many rows of a ranking were left out."""
    return int(rows[0][TOTAL]) - len(rows) if rows else 0


def kept(rows: Rows, *without: str) -> Rows:
    return [{name: value for name, value in row.items() if name not in (TOTAL, *without)} for row in rows]


def is_fleet(rows: Collected) -> bool:
    """Whether there are so many streamers that the report is one of a fleet."""
    return bool(rows.get("streamers")) and int(rows["streamers"][0][TOTAL]) > FEW


def delivered_share(row: dict[str, Any]) -> float | None:
    """Share of messages delivered, of those delivered or failed: other outcomes are not meant to be delivered."""
    due = (row["delivered"] or 0) + sum(row[name] or 0 for name in FAILURES)
    return row["delivered"] / due if due else None


def _hours(rows: Rows) -> list[int]:
    by_hour = [0] * 24
    for row in rows:
        for entry in row["by_hour"]:
            by_hour[entry["hour"]] += entry["messages"]
    return by_hour


def _busiest(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (-row["messages"], row["streamer"] or "", row["route"] or ""))


def volume(rows: Collected) -> Figures:
    """Messages per hour of the busiest routes, and of all others together."""
    routes = _busiest(rows["routes"])
    first, rest = routes[:HOURLY_ROUTES], routes[HOURLY_ROUTES:]
    names = ("streamer", "streamers", "route", "messages", "bytes")
    shown = [{name: row.get(name) for name in names} | {"hours": _hours([row])} for row in first]
    others = {"routes": len(rest), "messages": total(rest, "messages"), "bytes": total(rest, "bytes"), "hours": _hours(rest)}
    return {
        "messages": total(routes, "messages"),
        "bytes": total(routes, "bytes"),
        "hours": _hours(routes),
        "routes": shown,
        "others": others if rest else None,
    }


def outcomes(rows: Collected) -> Figures:
    routes = sorted(_busiest(rows["routes"]), key=lambda row: -total([row], *FAILURES))
    lines = [
        {name: row.get(name) for name in ("streamer", "streamers", "route", "messages", *OUTCOMES)}
        | {"delivered_share": delivered_share(row)}
        for row in routes[:ROUTES]
    ]
    sums = {name: total(routes, name) for name in OUTCOMES}
    return {
        "totals": sums | {"messages": total(routes, "messages"), "delivered_share": delivered_share(sums)},
        "routes": lines,
        "more": len(routes) - len(lines),
    }


def latency(rows: Collected) -> Figures:
    return {
        "routes": kept(rows["latency"], *_NOT_SHOWN),
        "more": more(rows["latency"]),
        "slowest": kept(rows.get("slowest", []), *_NOT_SHOWN),
    }


_NOT_SHOWN = ("queue_wait_messages", "queue_wait_p90_us", "queue_wait_max_us")


def dead_letters(rows: Collected, days: list[str]) -> Figures:
    """By reason, with the trend over ``days``, the last of which is the report's; None for days without records."""
    recorded = {str(row["date"]) for row in rows.get("days", [])}
    by_reason: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for row in rows["dead_letter_days"]:
        by_reason[row["outcome"], row["ucode"]][str(row["date"])] = row["messages"]
    reasons = []
    for (outcome, ucode), counts in by_reason.items():
        trend = [counts.get(day, 0) if day in recorded or day in counts else None for day in days]
        usual = mean(trend[:-1])
        messages = counts.get(days[-1], 0)
        line: Figures = {"outcome": outcome, "ucode": ucode, "messages": messages, "usual": usual}
        reasons.append(line | {"change": relative(messages, usual), "trend": trend})
    reasons.sort(key=lambda row: (-row["messages"], -(row["usual"] or 0), row["outcome"], row["ucode"] or ""))
    ends = ("src_authority", "src_ue_id", "sink_authority", "sink_ue_id")
    worst = [
        line | _ends(row) for line, row in zip(kept(rows["dead_letters"], "bytes", *ends), rows["dead_letters"], strict=True)
    ]
    return {
        "messages": total(reasons, "messages"),
        "reasons": reasons[:REASONS],
        "more_reasons": len(reasons[REASONS:]),
        "worst": worst,
        "more_worst": more(rows["dead_letters"]),
    }


def _ends(row: dict[str, Any]) -> dict[str, str | None]:
    return {
        "source": entity(row["src_authority"], row["src_ue_id"], row.get("src_resource_id")),
        "sink": entity(row["sink_authority"], row["sink_ue_id"], row.get("sink_resource_id")),
    }


def audit(rows: Collected, days: list[str]) -> Figures:
    """What became of the messages that were created on the last of ``days``."""
    by_day: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows["audit_days"]:
        by_day[str(row["date"])][row["status"]] = row["messages"]
    today = {row["status"]: row for row in rows["audit_days"] if str(row["date"]) == days[-1]}
    before = [by_day[day] for day in days[:-1] if day in by_day]
    statuses = []
    for status in STATUSES:
        messages = today[status]["messages"] if status in today else 0
        usual = mean([float(day.get(status, 0)) for day in before])
        if messages or usual or status in ("delivered", "lost"):
            copies = today[status]["copies"] if status in today else 0
            line = {"status": status, "messages": messages, "copies": copies or 0, "usual": usual}
            statuses.append(line | {"change": relative(messages, usual)})
    return {
        "messages": sum(row["messages"] for row in today.values()),
        "crowded": sum(row["crowded"] for row in today.values()),
        "latency_max_us": today["delivered"]["latency_max_us"] if "delivered" in today else None,
        "statuses": statuses,
        "days": len(before),
        "pairs": kept(rows["audit_pairs"]),
        "more_pairs": more(rows["audit_pairs"]),
        "unknown": kept(rows["audit_unknown"]),
        "more_unknown": more(rows["audit_unknown"]),
    }


def lost_trend(rows: Collected, days: list[str]) -> list[float | None]:
    """Lost messages of each day; None for a day before the last one on which no message was created."""
    by_day: dict[str, float] = {}
    for row in rows["audit_days"]:
        lost = row["messages"] if row["status"] == "lost" else 0
        by_day[str(row["date"])] = by_day.get(str(row["date"]), 0) + lost
    return [*(by_day.get(day) for day in days[:-1]), by_day.get(days[-1], 0)]


def findings(rows: Collected) -> Figures:
    """Each finding with its earliest examples."""
    found: dict[str, Figures] = {}
    for row in rows["findings"]:
        group = found.setdefault(row["finding"], {"finding": row["finding"], "messages": row[TOTAL], "examples": []})
        names = ("msg_ts", "msg_type", "streamers", "last_streamer", "last_route", "missing_at", "ucode", "copies")
        example = {"msg_id": uuid_text(row["msg_id"])} | {name: row[name] for name in names} | _ends(row)
        group["examples"].append(example)
    order = {finding: place for place, finding in enumerate(FINDINGS)}
    groups = sorted(found.values(), key=lambda group: order.get(group["finding"], len(order)))
    return {"groups": groups, "between": kept(rows["lost_between"]), "more_between": more(rows["lost_between"])}


def slo(rows: Collected) -> Figures:
    """In a fleet, only objectives that were not met."""
    lines = rows["slo"]
    everything = int(lines[0][TOTAL]) if lines else 0
    shown = [row for row in lines if not row["met"]][: 2 * FLEET_ROWS] if is_fleet(rows) else lines
    met = rows["slo_met"][0]["objectives"]
    return {"met": met, "objectives": everything, "rows": kept(shown), "more": everything - len(shown)}


def anomalies(rows: Collected) -> Figures:
    return {
        "rows": kept(rows["anomalies"]),
        "more": more(rows["anomalies"]),
        "streamers": total(rows["unusual_at"], "streamers"),
    }


def ranking(name: str) -> Any:
    """A section that is a ranking as it was collected."""

    def section(rows: Collected) -> Figures:
        return {"rows": kept(rows[name]), "more": more(rows[name])}

    return section


def health(rows: Collected) -> Figures:
    """``hours``: in how many hours of the day each streamer wrote a record. In a fleet, only streamers with a problem."""
    hours = {row["streamer"]: row["hours"] for row in rows.get("health_hours", [])}
    sums, rest = rows["health_totals"][0], more(rows["health"])
    lines = [row | {"hours": hours.get(row["streamer"])} for row in kept(rows["health"])]
    if is_fleet(rows):
        faults = (*FAULTS, "restarts")
        faulty = [row for row in lines if any(row[each] for each in faults) or abs(row["clock_skew_ms"] or 0) >= CLOCK_MS]
        lines, rest = faulty, 0 if len(faulty) < len(lines) else rest
    return {
        "totals": {name: value or 0 for name, value in sums.items()},
        "rows": lines,
        "more": rest,
        "clocks": [{name: row[name] for name in ("streamer", "clock_skew_ms", "skew_against")} for row in rows["clocks"]],
        "more_clocks": more(rows["clocks"]),
    }


def fan_out(rows: Collected) -> Figures:
    """What only a part of the gateways got that usually do, by topic and hour, and the gateways that lack most."""
    names = ("hour", "publishes", "gateways", "unknown", "missing", "share", "lacking")
    return {
        "totals": {name: value or 0 for name, value in rows["fan_out_totals"][0].items()},
        "rows": [
            {"topic": entity(row["src_authority"], row["src_ue_id"], row["src_resource_id"])}
            | {name: row[name] for name in names}
            for row in rows["fan_out"]
        ],
        "more": more(rows["fan_out"]),
        "lacking": kept(rows.get("lacking", [])),
        "more_lacking": more(rows.get("lacking", [])),
    }


def fleet(rows: Collected, days: list[str]) -> Figures:
    """Per route across all streamers, the busiest first, each with its trend over ``days``; None for days without records.

    Failed: expired, rejected or dead-lettered. Late: expired, or delivered after the time to live. Lost: handed over there,
    and not seen where it was expected. Missing: deliveries of broadcasts. The share counts them all.
    """
    carried: dict[str | None, dict[str, Figures]] = defaultdict(dict)
    for row in rows["route_days"]:
        carried[row["route"]][str(row["date"])] = row
    counts = {name: _counts(rows.get(f"{name}_days"), name) for name in ("lost", "late")}
    streamers = {row["route"]: row.get("streamers") for row in rows["routes"]}
    missing = {row["route"]: row["missing"] for row in rows.get("route_missing", [])}
    lines = []
    for route, by_day in carried.items():
        today = by_day[days[-1]]
        line = {"route": route, "streamers": streamers.get(route), "messages": today["messages"]}
        line |= {"delivered": today["delivered"], "missing": missing.get(route, 0)}
        line |= _with_trend("messages", [by_day[day]["messages"] if day in by_day else None for day in days])
        line |= _with_trend("failed", [total([by_day[day]], *FAILURES) if day in by_day else None for day in days])
        for name, found in counts.items():
            line |= _with_trend(name, [found[day].get(route, 0) if day in found else None for day in days])
        due = today["delivered"] + line["failed"] + line["missing"]
        lines.append(line | {"delivered_share": (today["delivered"] - (line["lost"] or 0)) / due if due else None})
    lines.sort(key=lambda row: (-row["messages"], row["route"] or ""))
    return {"routes": lines, "more": int(rows["route_days"][0][TOTAL]) - len(lines) if lines else 0}


def _counts(rows: Rows | None, name: str) -> dict[str, dict[str | None, int]]:
    by_day: dict[str, dict[str | None, int]] = defaultdict(dict)
    for row in rows or []:
        by_day[str(row["date"])][row["route"]] = row[name] or 0
    return by_day


def _with_trend(name: str, trend: list[float | None]) -> Figures:
    return {name: trend[-1], f"{name}_usual": mean(trend[:-1]), f"{name}_trend": trend}


def worst(rows: Collected) -> Figures:
    """The streamers that are least well, with all that is wrong with each; and how many there are of each state."""
    states = dict(rows["states"][0])
    streamers = states.pop("streamers")
    return {
        "states": states,
        "streamers": streamers,
        "rows": kept(rows["worst"], "undelivered"),
        "more": more(rows["worst"]),
    }


def silent(rows: Collected) -> Figures:
    """``records``: on a day on which it wrote. ``days``: on how many of the recorded days before it did."""
    lines = [
        {name: row[name] for name in ("streamer", "last_ts", "days")}
        | {"records": row["records"] / row["days"], "usually": bool(row["usually"])}
        for row in rows["silent"]
    ]
    return {"totals": rows["silent_totals"][0], "rows": lines, "more": more(rows["silent"])}


_COHORT = ("version", "compiled", "config")
FLOOR = 0.001
_CHANCE, _MANY = 0.001, 1000
"""Twice the share, and so many failures, is no chance."""


def cohorts(rows: Collected) -> Figures:
    """Each version, form and configuration beside all others together, and its latency on the busiest routes."""
    everything = {name: value or 0 for name, value in rows["cohort_totals"][0].items()}
    lines = []
    for row in rows["cohorts"]:
        line = {name: row[name] for name in (*_COHORT, "streamers", "messages", *FAILURES, "unconfirmed", "lost")}
        others = {name: everything[name] - (row[name] or 0) for name in everything}
        shares = {"bad_share": _bad_share(row), "others_share": _bad_share(others)}
        lines.append(line | shares | {"is_worse": _is_worse(*_bad_of(row), *_bad_of(others))})
    speed = [
        {name: row[name] for name in ("route", *_COHORT, "streamers", "messages", "latency_p50_us", "latency_p99_us")}
        for row in rows["cohort_routes"]
    ]
    return {"rows": lines, "more": more(rows["cohorts"]), "routes": speed}


def _bad_share(row: dict[str, Any]) -> float | None:
    """The share of messages that failed or were lost, of those that were to be delivered."""
    bad, due = _bad_of(row)
    return bad / due if due else None


def _bad_of(row: dict[str, Any]) -> tuple[int, int]:
    return total([row], *FAILURES, "lost"), (row["delivered"] or 0) + total([row], *FAILURES)


def _is_worse(bad: int, due: int, others_bad: float, others_due: int) -> bool:
    """Whether a cohort or a night fails or loses at least twice the share of all others, and more than chance makes.

    Chance, at most one of a thousand: a Poisson distribution with the share of all together.
    """
    if not bad or not others_due or bad * others_due < 2 * others_bad * due:
        return False
    mean = due * (bad + others_bad) / (due + others_due)
    fewer = sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(min(bad, _MANY)))
    return bad >= _MANY or 1 - fewer < _CHANCE


def usual(rows: Collected, days: list[str]) -> Figures:
    """The shares of the night beside the median of the nights before, as far as there are tables of these.

    ``is_worse``: at least twice that median, more than chance alone would make it, and more than a floor (but for lost
    messages, of which none is usual): what one vehicle of a thousand makes is no fault of the fleet. None: unknown, because
    there are fewer nights than ``needed``.
    """
    made: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows.get("audit_days", []):
        made[str(row["date"])][row["status"]] = row["messages"]
    counted = {
        "lost": {day: (statuses.get("lost", 0), sum(statuses.values())) for day, statuses in made.items()},
        "unknown": {day: (statuses.get("unknown", 0), sum(statuses.values())) for day, statuses in made.items()},
        "failed": {
            str(row["date"]): (total([row], *FAILURES), total([row], "delivered", *FAILURES)) for row in rows["days"]
        },
        "incomplete": {str(row["date"]): (row["incomplete"], row["streamers"]) for row in rows.get("health_days", [])},
    }
    return {"needed": LEAST_DAYS, "measures": [_beside(name, found, days) for name, found in counted.items()]}


def _beside(name: str, counted: dict[str, tuple[int, int]], days: list[str]) -> Figures:
    bad, due = counted.get(days[-1], (0, 0))
    before = [counted[day] for day in days[:-1] if counted.get(day, (0, 0))[1]]
    line: Figures = {"name": name, "bad": bad, "of": due, "nights": len(before), "usual_share": None, "is_worse": None}
    if len(before) < LEAST_DAYS:
        return line
    share = statistics.median(each / of for each, of in before)
    others = sum(of for _, of in before)
    is_seen = name == "lost" or bad > FLOOR * due
    return line | {"usual_share": share, "is_worse": is_seen and _is_worse(bad, due, share * others, others)}


def links(rows: Collected) -> Figures:
    names = ("streamer", "endpoint", "transport", "down_ts", "up_ts", "offline_s", "reason")
    lines = [{name: row[name] for name in (*names, "piled_up", "piled_up_bytes", "drain_s")} for row in rows["links"]]
    slow = [{name: row[name] for name in ("streamer", "endpoint", "drain_s")} for row in rows["slow_drain"]]
    totals = {name: value or 0 for name, value in rows["link_totals"][0].items()}
    return {"totals": totals, "rows": lines, "more": more(rows["links"]), "slow_drain": slow}


def completeness(rows: Collected) -> Figures:
    """``open``: streamers that lack no record as far as is known, but of which no later record is there yet."""
    totals = {name: value or 0 for name, value in rows["completeness"][0].items()}
    totals["open"] = totals["streamers"] - totals["complete"] - totals["lacking"]
    return {"totals": totals, "rows": kept(rows["incomplete"]), "more": more(rows["incomplete"])}
