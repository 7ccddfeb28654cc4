"""Parses and formats moments and durations for people."""

import re
from datetime import UTC, datetime

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ms|s|m|h|d|w)", re.ASCII)


_LONGEST_MS = 1 << 62
"""Longer durations are cut to this, so that a moment plus or minus one still fits into a database."""


def milliseconds(text: str) -> int:
    """Parse a duration such as 30m to milliseconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r}: expected a number and a unit (ms, s, m, h, d, w), such as 30m, 2h, 7d")
    return min(int(float(match[1]) * _UNITS_MS[match[2]]), _LONGEST_MS)


def as_moment(ms: int) -> str:
    """Format Unix milliseconds as a moment in UTC."""
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # an id may contain anything
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def as_span(ms: int) -> str:
    """Format milliseconds in the largest unit of which they have at least two: 90s, 119m, 5h, -3h.

    An age is negative if the clock was set back.
    """
    if ms < 0:
        return f"-{as_span(-ms)}"
    for unit in ("w", "d", "h", "m", "s"):
        if ms >= 2 * _UNITS_MS[unit]:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"
