"""The figures of a date: the only source of both the page and the JSON. Pure: collected rows in, one plain dict out.

Keys of the dict: ``date`` (ISO), ``created`` (ISO, UTC), ``streamer`` (the only one that this is about, or None),
``is_fleet`` (whether there are so many that sections are about all of them together), ``streamers`` (at most
`reading.STREAMERS` names; ``more_streamers`` counts the others), ``days`` (the 15 dates of every trend, the last of which is
the report's), ``missing`` (tables that were not written for the date), ``key`` (the key figures), and each section of
`SECTIONS`, None if its table is missing, or if it is about a fleet and there is none. All values fit JSON.
"""

import datetime
import math
from collections.abc import Callable
from typing import Any

from spark_jobs import tables
from spark_jobs.report import fleet, reading, sections
from spark_jobs.report.reading import ABOUT_STREAMERS, Collected
from spark_jobs.report.sections import Figures
from spark_jobs.schema import FAILURES
from spark_jobs.tables import TREND_DAYS

SECTIONS = (
    "fleet",
    "worst",
    "silent",
    "cohorts",
    "links",
    "completeness",
    "volume",
    "outcomes",
    "changes",
    "latency",
    "latency_hourly",
    "dead_letters",
    "matrix",
    "audit",
    "findings",
    "fan_out",
    "slo",
    "anomalies",
    "ttl_margin",
    "redelivery",
    "talkers",
    "health",
)


def figures(rows: Collected, date: datetime.date, created: datetime.datetime, streamer: str | None = None) -> Figures:
    """Everything in the report of ``date``, or of one streamer on it.

    ``created``: when the report was created, with a time zone.
    """
    days = [str(date - datetime.timedelta(days=back)) for back in range(TREND_DAYS, -1, -1)]
    by_day = {str(row["date"]): row for row in rows.get("days", [])}
    built: Figures = {
        "fleet": _section(rows, lambda r: sections.fleet(r, days), "route_days") if sections.is_fleet(rows) else None,
        "worst": _section(rows, sections.worst, "worst"),
        "silent": _section(rows, sections.silent, "silent"),
        "cohorts": _section(rows, sections.cohorts, "cohorts"),
        "links": _section(rows, sections.links, "links"),
        "completeness": _section(rows, sections.completeness, "completeness"),
        "volume": _section(rows, sections.volume, "routes"),
        "outcomes": _section(rows, sections.outcomes, "routes"),
        "changes": _section(rows, sections.changes, "changes"),
        "latency": _section(rows, sections.latency, "latency"),
        "latency_hourly": _section(rows, sections.latency_hourly, "latency_hourly"),
        "dead_letters": _section(rows, lambda r: sections.dead_letters(r, days, set(by_day)), "dead_letters"),
        "matrix": _section(rows, sections.matrix, "matrix"),
        "audit": _section(rows, lambda r: sections.audit(r, days), "audit_days"),
        "findings": _section(rows, sections.findings, "findings"),
        "fan_out": _section(rows, sections.fan_out, "fan_out"),
        "slo": _section(rows, sections.slo, "slo"),
        "anomalies": _section(rows, sections.ranking("anomalies"), "anomalies"),
        "ttl_margin": _section(rows, sections.ranking("ttl_margin"), "ttl_margin"),
        "redelivery": _section(rows, sections.ranking("redelivery"), "redelivery"),
        "talkers": _section(rows, sections.talkers, "talkers"),
        "health": _section(rows, sections.health, "health"),
    }
    named = rows.get("streamers", [])
    streamers = [row["streamer"] for row in named]
    lost: list[float | None] = sections.lost_trend(rows, days) if "audit_days" in rows else [None] * len(days)
    if streamer is not None and built["worst"]:  # of one streamer, only the day itself is counted
        here = built["worst"]["rows"]
        lost = [*[None] * (len(days) - 1), sections.total(here, "handed_over", "never_came")]
    wanted = set(tables.TABLES | tables.VIEWS if streamer is None else ABOUT_STREAMERS) - {tables.ROLLUP.name}
    head: Figures = {
        "date": str(date),
        "created": created.astimezone(datetime.UTC).isoformat(timespec="seconds"),
        "streamer": streamer,
        "is_fleet": sections.is_fleet(rows),
        "streamers": streamers,
        "more_streamers": sections.more(named),
        "days": days,
        "missing": sorted(wanted - {table.name for name, table in _TABLE_OF.items() if name in rows}),
        "key": _key(built, days, by_day if "days" in rows else None, lost),
    }
    plain: Figures = _plain(head | built)
    return plain


def _section(rows: Collected, build: Callable[[Collected], Figures], query: str) -> Figures | None:
    return build(rows) if query in rows else None


_TABLE_OF = reading.TABLE_OF | fleet.TABLE_OF


def _key(built: Figures, days: list[str], by_day: dict[str, Any] | None, lost: list[float | None]) -> list[Figures]:
    """The figures at the top: the day, the usual value (mean of the recorded days among the 14 before), change and trend."""

    def recorded(measure: Callable[[dict[str, Any]], float | None], empty: float | None = 0) -> list[float | None]:
        if by_day is None:
            return [None] * len(days)
        today = measure(by_day[days[-1]]) if days[-1] in by_day else empty
        return [*(measure(by_day[day]) if day in by_day else None for day in days[:-1]), today]

    slo, health = built["slo"], built["health"]
    return [
        _line("messages", recorded(lambda row: row["messages"])),
        _line("bytes", recorded(lambda row: row["bytes"])),
        _line("delivered_share", recorded(sections.delivered_share, empty=None))
        | {"change": None},  # misleading for a share
        _line("failed", recorded(lambda row: sections.total([row], *FAILURES))),
        _line("lost", lost),
        _line("redelivered", recorded(lambda row: row["redelivered"])),
        {"name": "objectives", "value": slo["met"] if slo else None, "of": slo["objectives"] if slo else None},
        {"name": "records_missing", "value": health["totals"]["records_missing"] if health else None},
    ]


def _line(name: str, trend: list[float | None]) -> Figures:
    usual = sections.mean(trend[:-1])
    known = sum(value is not None for value in trend[:-1])
    change = sections.relative(trend[-1], usual)
    return {"name": name, "value": trend[-1], "usual": usual, "days": known, "change": change, "trend": trend}


def _plain(value: Any) -> Any:
    """Values that JSON can hold: dates as text, and None for infinity."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, datetime.date) else value
