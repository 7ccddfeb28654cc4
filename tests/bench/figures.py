"""What is computed from measurements, and how it is printed. Pure: it measures nothing."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MEDIAN = statistics.median


def quotients(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    """Round by round: how many times the base."""
    return [each / of for each, of in zip(mine, base, strict=True)]


def differences(mine: Sequence[float], base: Sequence[float]) -> list[float]:
    """Round by round: how much more than the base."""
    return [each - of for each, of in zip(mine, base, strict=True)]


def in_calmest(values: Sequence[float], base: Sequence[float]) -> float:
    """The value of the round in which the base was lowest."""
    return min(zip(base, values, strict=True))[1]


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed; 0 without values."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def slope_per_minute(seconds: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the straight line through the second half of the values (least squares)."""
    half = len(values) // 2
    return statistics.linear_regression([each / 60 for each in seconds[half:]], values[half:]).slope


def text(value: float) -> str:
    """Three significant digits."""
    if value and abs(value) < 0.1:
        return f"{value:.3f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:,.0f}".replace(",", " ")


def spread(values: Sequence[float]) -> str:
    """The median, and the range if there is one."""
    several = f" ({text(min(values))}–{text(max(values))})" if len(values) > 1 else ""
    return f"{text(MEDIAN(values))}{several}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A line of the table of targets: one value for each round. Without a target it is only said."""

    name: str
    values: Sequence[float]
    unit: str = "×"
    target: float | None = None
    is_least: bool = False
    """Whether the value has to be at least the target, not at most."""
    remark: str = ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is where it should be. None without a target."""
        if self.target is None:
            return None
        median = MEDIAN(self.values)
        return median >= self.target if self.is_least else median <= self.target

    def cells(self) -> list[str]:
        """What stands in the table."""
        bound = "" if self.target is None else f"{'≥' if self.is_least else '≤'} {self.target:g} {self.unit}"
        verdict = {None: "", True: "reached", False: "not reached"}[self.is_reached]
        return [self.name, f"{spread(self.values)} {self.unit}{self.remark}", bound, verdict]


GOAL_HEADER = ["", "today", "to reach", ""]

Printer = Callable[[Sequence[str], Sequence[Sequence[str]]], Iterator[str]]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table for the documents."""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(row)} |" if row[0] != "---" else "|" + "---|" * len(row)


def plain(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table for a terminal."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
