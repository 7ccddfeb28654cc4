"""How the subcommands print and read: tables, moments, lengths of time, complaints, exit statuses.

What comes from the network is printed without control characters (`plain`), which a terminal would obey.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

EX_IOERR = 74
"""The journal or the traces cannot be read (sysexits.h)."""

EX_CONFIG = 78
"""The configuration cannot be used (sysexits.h)."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def milliseconds(text: str) -> int:
    """A length of time as people type it, such as 30m. Raises argparse.ArgumentTypeError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number and a unit (ms, s, m, h, d, w), such as 30m, 2h, 7d")
    return int(float(match[1]) * _UNITS_MS[match[2]])


def as_moment(ms: int) -> str:
    """Unix milliseconds, in UTC."""
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, ValueError):  # an id may contain anything
        return f"{ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def as_span(ms: int) -> str:
    """A length of time in the largest unit that it has at least twice: 90s, 119m, 5h."""
    for unit in ("w", "d", "h", "m", "s"):
        if ms >= 2 * _UNITS_MS[unit]:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"


def as_table(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines of cells, aligned in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def plain(text: str) -> str:
    """The text without characters that a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def complain(text: str, status: int) -> int:
    """Print to standard error, and return the exit status."""
    sys.stderr.write(f"{text}\n")
    return status


def lines_out(lines: Iterable[str]) -> None:
    """Print lines to standard output."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
