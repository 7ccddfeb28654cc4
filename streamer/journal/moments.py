"""Moments and lengths of time as people read and type them."""

import re
from datetime import UTC, datetime

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ms|s|m|h|d|w)", re.ASCII)


_LONGEST_MS = 1 << 62
"""Longer ones are as long as that: a moment before or after them is still a number that a database can hold."""


def milliseconds(text: str) -> int:
    """A length of time as people type it, such as 30m. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r}: expected a number and a unit (ms, s, m, h, d, w), such as 30m, 2h, 7d")
    return min(int(float(match[1]) * _UNITS_MS[match[2]]), _LONGEST_MS)


def as_moment(ms: int) -> str:
    """Unix milliseconds, in UTC."""
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # an id may contain anything
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def as_span(ms: int) -> str:
    """A length of time in the largest unit that it has at least twice: 90s, 119m, 5h."""
    for unit in ("w", "d", "h", "m", "s"):
        if ms >= 2 * _UNITS_MS[unit]:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"
