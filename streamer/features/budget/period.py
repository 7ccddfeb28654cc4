"""The period of a budget that a moment belongs to, in UTC. A month without the wanted day begins on its last. Pure."""

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from streamer.features.budget.config import BudgetConfig


class Period(NamedTuple):
    """From when to when (exclusive), in Unix milliseconds."""

    start_ms: int
    end_ms: int


def period_of(options: BudgetConfig, now_ms: int) -> Period:
    """Return the period that a moment belongs to."""
    midnight = datetime.fromtimestamp(now_ms // 1000, UTC).replace(hour=0, minute=0, second=0)
    if options.per == "month":
        start = _first_day(midnight, options.from_day)
        if start > midnight:
            start = _first_day(start.replace(day=1) - timedelta(days=1), options.from_day)
        end = _first_day(start.replace(day=1) + timedelta(days=31), options.from_day)
    else:
        days = 7 if options.per == "week" else 1
        start = midnight - timedelta(days=midnight.weekday() % days)
        end = start + timedelta(days=days)
    return Period(*(round(moment.timestamp()) * 1000 for moment in (start, end)))


def _first_day(month: datetime, day: int) -> datetime:
    """Return the first day of the period that begins in a month."""
    return month.replace(day=min(day, monthrange(month.year, month.month)[1]))
