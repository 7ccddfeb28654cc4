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

from spark_jobs.report import fleet, reading, sections
from spark_jobs.report.reading import ABOUT_STREAMERS, Collected
from spark_jobs.report.sections import Figures
from spark_jobs.schema import FAILURES
from spark_jobs.tables import TREND_DAYS

SECTIONS: dict[str, tuple[str, Callable[..., Figures]]] = {
    "fleet": ("route_days", sections.fleet),
    "worst": ("worst", sections.worst),
    "silent": ("silent", sections.silent),
    "cohorts": ("cohorts", sections.cohorts),
    "links": ("links", sections.links),
    "completeness": ("completeness", sections.completeness),
    "volume": ("routes", sections.volume),
    "outcomes": ("routes", sections.outcomes),
    "latency": ("latency", sections.latency),
    "dead_letters": ("dead_letters", sections.dead_letters),
    "audit": ("audit_days", sections.audit),
    "usual": ("days", sections.usual),
    "findings": ("findings", sections.findings),
    "fan_out": ("fan_out", sections.fan_out),
    "slo": ("slo", sections.slo),
    "anomalies": ("anomalies", sections.anomalies),
    "ttl_margin": ("ttl_margin", sections.ranking("ttl_margin")),
    "health": ("health", sections.health),
}
"""Each with the query without which it is None, and what makes it: from the rows, and of a `_TREND` from the days, too."""
_TREND = ("fleet", "dead_letters", "audit", "usual")


def figures(rows: Collected, date: datetime.date, created: datetime.datetime, streamer: str | None = None) -> Figures:
    """Everything in the report of ``date``, or of one streamer on it.

    ``created``: when the report was created, with a time zone.
    """
    days = [str(date - datetime.timedelta(days=back)) for back in range(TREND_DAYS, -1, -1)]
    by_day = {str(row["date"]): row for row in rows.get("days", [])}
    none = set() if sections.is_fleet(rows) else {"fleet"}
    built = {
        name: (build(rows, days) if name in _TREND else build(rows)) if query in rows and name not in none else None
        for name, (query, build) in SECTIONS.items()
    }
    named = rows.get("streamers", [])
    streamers = [row["streamer"] for row in named]
    lost: list[float | None] = sections.lost_trend(rows, days) if "audit_days" in rows else [None] * len(days)
    if streamer is not None and built["worst"]:  # of one streamer, only the day itself is counted
        here = built["worst"]["rows"]
        lost = [*[None] * (len(days) - 1), sections.total(here, "handed_over", "never_came")]
    wanted = {table.name for table in _TABLE_OF.values() if streamer is None or table.name in ABOUT_STREAMERS}
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
