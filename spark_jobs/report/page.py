"""The page: renders figures and charts with `page.html` and `page.css`, as one file that loads nothing.

Names in the figures come from the network. Jinja2 escapes everything that is not `Markup`, and only `charts` and `number`
below create Markup, with its escaping `format`. As a second line of defence, the page's content security policy forbids
scripts and loading.
"""

import datetime
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs import tables
from spark_jobs.report import charts, numbers, sentences
from spark_jobs.schema import FAILURES, OUTCOMES

Figures = dict[str, Any]

_FORMS: dict[str, Callable[[Any], str]] = {
    "count": numbers.count,
    "share": numbers.share,
    "change": numbers.change,
    "us": numbers.duration_us,
    "ms": lambda value: numbers.duration_us(None if value is None else value * 1000),
    "bytes": numbers.size,
    "s": lambda value: numbers.duration_us(None if value is None else value * 1_000_000),
    "decimal": numbers.decimal,
    "score": lambda value: numbers.decimal(value, 1),
}


def render(figures: Figures) -> str:
    """The whole page as text. The same figures give the same page."""
    page = _environment().get_template("page.html")
    level_, why = sentences.verdict(figures)
    title = numbers.long_date(datetime.date.fromisoformat(figures["date"]))
    summary, css = sentences.sentences(figures), Markup(_template("page.css"))
    reasons = list(dict.fromkeys(reason.kind for reason in sentences.judged(figures)[1]))
    sections = shown(figures)
    return page.render(
        f=figures, css=css, summary=summary, level_=level_, why=why, reasons=reasons, title=title, shown=sections
    )


_LABELS = {
    "fleet": "Fleet",
    "worst": "Not well",
    "silent": "Silent",
    "cohorts": "Versions",
    "links": "Links",
    "completeness": "Completeness",
}
_LABELS_ALWAYS = {
    "usual": "Usual",
    "volume": "Volume",
    "outcomes": "Outcomes",
    "latency": "Latency",
    "dead-letters": "Dead letters",
    "audit": "Audit",
    "findings": "Findings",
    "fan-out": "Broadcasts",
    "slo": "Objectives",
    "anomalies": "Anomalies",
    "ttl": "Time to live",
    "health": "Trace health",
}


def shown(figures: Figures) -> dict[str, str]:
    """The sections of the page with their labels: without those that would say nothing, of a few streamers or of one."""
    fleet, one = figures["is_fleet"], figures["streamer"] is not None
    says = {
        "fleet": fleet and figures["fleet"] is not None,
        "worst": fleet and figures["worst"] is not None,
        "silent": not one and bool(figures["silent"] and figures["silent"]["rows"]),
        "cohorts": bool(figures["cohorts"] and len(figures["cohorts"]["rows"]) > 1),
        "links": bool(figures["links"] and figures["links"]["rows"]),
        "completeness": True,
        "usual": not one,
        "audit": not one,
        "fan-out": not one,
    }
    first, last = (_LABELS, _LABELS_ALWAYS) if fleet else ({"silent": "Silent"} | _LABELS_ALWAYS, _LABELS)
    return {name: label for name, label in (first | last).items() if says.get(name, True)}


def clock(time: str | None, date: str) -> Markup:
    """The time of day of a moment in the figures, to the second; with its day if that is not ``date``."""
    if time is None:
        return Markup('<span class="none">{}</span>').format(numbers.MISSING)
    return Markup("{}").format(time[11:19] if time.startswith(date) else f"{time[5:10]} {time[11:19]}")


def _sum_of(row: Figures, names: tuple[str, ...]) -> int:
    return sum(row[name] for name in names)


def number(value: float | None, form: str = "count") -> Markup:
    """A figure for people, with its exact value in the markup; a dash if it is unknown."""
    if value is None:
        return Markup('<span class="none" title="unknown">{}</span>').format(numbers.MISSING)
    return Markup('<data value="{}">{}</data>').format(value, _FORMS[form](value))


def measure(value: float | None, metric: str) -> Markup:
    """A value of an anomaly in its metric's unit."""
    return number(value, {"failed_share": "share", "latency_p99_us": "us"}.get(metric, "count"))


def objective(value: float | None, name: str) -> Markup:
    """A target or an actual value of an objective, in its unit."""
    return number(value, "ms" if name == "p99_latency_ms" else "share")


@cache
def _environment() -> Environment:
    """For all pages of a run: to compile the templates takes three times as long as to render a page."""
    environment = Environment(
        loader=FunctionLoader(_template), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        number=number,
        clock=clock,
        charts=charts,
        measure=measure,
        objective=objective,
        questions={table.name: table.question for table in (tables.TABLES | tables.VIEWS).values()},
        words=sentences,
        plural=numbers.plural,
        failures=FAILURES,
        all_outcomes=OUTCOMES,
        statuses=sorted(tables.STATUSES, key=lambda status: status != "lost"),
    )
    environment.filters.update(clean=numbers.clean, count=numbers.count, sum_of=_sum_of)
    return environment


def _template(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
