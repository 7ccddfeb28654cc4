"""The period of a moment: months of 28 to 31 days, leap years, weeks and days."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.budget.config import BudgetConfig
from streamer.features.budget.period import period_of


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("per", "from_day", "now", "start", "end"),
    [
        ("month", 1, "2026-02-01T00:00:00", "2026-02-01", "2026-03-01"),
        ("month", 1, "2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("month", 15, "2026-11-28T12:00:00", "2026-11-15", "2026-12-15"),
        ("month", 15, "2027-01-14T23:59:59", "2026-12-15", "2027-01-15"),
        ("month", 31, "2026-02-27T23:59:59", "2026-01-31", "2026-02-28"),
        ("month", 31, "2026-02-28T00:00:00", "2026-02-28", "2026-03-31"),
        ("month", 31, "2028-02-29T00:00:00", "2028-02-29", "2028-03-31"),
        ("month", 31, "2026-04-29T00:00:00", "2026-03-31", "2026-04-30"),
        ("month", 30, "2027-01-01T00:00:00", "2026-12-30", "2027-01-30"),
        ("month", 1, "1970-01-01T00:00:07", "1970-01-01", "1970-02-01"),
        ("week", 1, "2026-11-28T12:00:00", "2026-11-23", "2026-11-30"),
        ("day", 1, "2026-11-28T12:00:00", "2026-11-28", "2026-11-29"),
    ],
)
def test_the_period_of_a_moment(per: str, from_day: int, now: str, start: str, end: str) -> None:
    options = BudgetConfig.model_validate({"bytes": 1, "per": per, "from_day": from_day})
    assert period_of(options, ms(now)) == (ms(start), ms(end))


@given(st.sampled_from(["month", "week", "day"]), st.integers(1, 31), st.integers(0, 4_000_000_000_000))
def test_periods_follow_each_other_without_a_gap(per: str, from_day: int, now_ms: int) -> None:
    options = BudgetConfig.model_validate({"bytes": 1, "per": per, "from_day": from_day})
    period = period_of(options, now_ms)
    assert period.start_ms <= now_ms < period.end_ms
    assert period_of(options, period.end_ms - 1) == period_of(options, period.start_ms) == period
    assert period_of(options, period.end_ms).start_ms == period.end_ms
