"""The metrics of budgets, and their part of the page with the state of the streamer."""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from streamer.features.budget.service import BudgetUse
from streamer.journal.moments import as_moment


def families(uses: Mapping[str, BudgetUse]) -> Iterable[Metric]:
    """Yield what each endpoint may use and has used, and when that is used up. What is unknown has no sample."""
    texts = {
        "bytes": "The budget of an endpoint for its period.",
        "used_bytes": "What it has used.",
        "lasts_until_timestamp_seconds": "When the budget is used up, at the mean rate of the period.",
    }
    found = {name: GaugeMetricFamily(f"ustreamer_budget_{name}", text, labels=("endpoint",)) for name, text in texts.items()}
    for endpoint, use in uses.items():
        until_s = None if use.lasts_until_ms is None else use.lasts_until_ms / 1000
        for name, value in zip(texts, (use.options.bytes, use.used, until_s), strict=True):
            if value is not None:
                found[name].add_metric((endpoint,), value)
    return found.values()


def as_json(use: BudgetUse) -> dict[str, Any]:
    """Return what is known of a budget in types of JSON. None: it is unknown, or not in this period."""
    return {
        "bytes": use.options.bytes,
        "used": use.used,
        "share": None if use.used is None else use.used / use.options.bytes,
        "held_below": use.options.reserve if use.is_held else None,
        "from": as_moment(use.period.start_ms),
        "until": as_moment(use.period.end_ms),
        "lasts_until": None if use.lasts_until_ms is None else as_moment(use.lasts_until_ms),
    }
