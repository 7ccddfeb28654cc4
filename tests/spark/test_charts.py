"""The drawings of the report: where each mark is, and how large. Without Spark."""

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from spark_jobs.report import charts
from spark_jobs.report.numbers import MISSING, NARROW

Element = ElementTree.Element


def marks(drawing: Markup, tag: str, name: str = "") -> list[Element]:
    """The elements of a drawing with this tag and class."""
    return [each for each in ElementTree.fromstring(drawing).iter(tag) if name in each.get("class", "").split() or not name]


def numbers(element: Element, *names: str) -> list[float]:
    return [float(element.get(name, "nan").removesuffix("%")) for name in names]


# axes


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (2, [0, 1, 2]),
        (4, [0, 1, 2, 3, 4]),
        (5, [0, 2, 4, 6]),
        (10, [0, 2.5, 5, 7.5, 10]),
        (1000, [0, 250, 500, 750, 1000]),
        (1001, [0, 250, 500, 750, 1000, 1250]),
        (1100, [0, 500, 1000, 1500]),
    ],
)
def test_ticks_are_round_and_reach_the_largest_value(largest: float, expected: list[float]) -> None:
    assert charts.ticks(largest) == expected


@pytest.mark.parametrize(
    ("value", "label"), [(0, "0"), (999, "999"), (1000, "1k"), (1500, "1.5k"), (1e6, "1M"), (2.5e9, "2.5G")]
)
def test_the_label_of_a_tick_is_short(value: float, label: str) -> None:
    assert charts.short(value) == label


# bars


def volume(*routes: Sequence[int], others: Sequence[int] | None = None) -> dict[str, Any]:
    """Messages of routes in the first hours of a day."""
    rows: list[dict[str, Any]] = [
        {"route": f"r{n}", "streamer": "gw", "hours": [*row, *[0] * (24 - len(row))]} for n, row in enumerate(routes)
    ]
    rest: dict[str, Any] | None = None if others is None else {"routes": 9, "hours": [*others, *[0] * (24 - len(others))]}
    every = rows if rest is None else [*rows, rest]
    return {"routes": rows, "others": rest, "hours": [sum(row["hours"][hour] for row in every) for hour in range(24)]}


def test_the_bars_of_an_hour_stand_on_each_other_in_the_height_of_their_messages() -> None:
    drawing = charts.hourly_stack(volume([400, 0, 100], [200], others=[100]))
    bars = marks(drawing, "rect", "bar")
    assert [each.get("class") for each in bars] == ["bar s0", "bar s1", "bar s6", "bar s0"]
    bottom = numbers(marks(drawing, "line", "axis")[0], "y1")[0]
    px = 220 / 800  # the last tick for 700 messages
    edges = [number for each in bars for number in numbers(each, "y", "height")]
    assert edges == pytest.approx(
        [
            *(bottom - 400 * px, 400 * px - 0.8),
            *(bottom - 600 * px, 200 * px - 0.8),
            *(bottom - 700 * px, 100 * px - 0.8),
            *(bottom - 100 * px, 100 * px - 0.8),
        ],
        abs=0.01,
    )
    zeros = [each for each in marks(drawing, "text") if each.text == "0" and each.get("text-anchor") == "middle"]
    assert len(zeros) == 22
    assert "00:00 to 01:00 UTC, 9 more routes: 100 messages" in drawing


def test_a_day_without_a_message_has_an_axis_and_no_bar() -> None:
    drawing = charts.hourly_stack(volume([0]))
    assert marks(drawing, "rect", "bar") == []
    assert len(marks(drawing, "line", "grid")) == 2


@pytest.mark.parametrize(
    ("values", "heights", "unknown"),
    [([10, None, 0, 20], [13, 26], 1), ([None, None], [], 2), ([0, 0], [], 0), ([0.001, 1000], [1.5, 26], 0), ([], [], 0)],
)
def test_a_trend_is_as_high_as_its_largest_day(values: list[float | None], heights: list[float], unknown: int) -> None:
    drawing = charts.bars(values, "t", "d")
    bars = marks(drawing, "rect", "spark")
    assert [numbers(each, "height")[0] for each in bars] == heights
    assert [each.text for each in marks(drawing, "text")] == ["·"] * unknown
    is_today = ["today" in each.get("class", "") for each in bars]
    assert is_today == [False] * (len(bars) - 1) + [True] * bool(bars)


def test_the_parts_of_a_row_follow_each_other() -> None:
    drawing = charts.stacked({"delivered": 30, "expired": 0, "rejected": 10}, ("delivered", "expired", "rejected"), 80, "t")
    parts = marks(drawing, "rect")
    assert [each.get("class") for each in parts] == ["o-delivered", "o-rejected"]
    assert [numbers(each, "x", "width") for each in parts] == [[0, 37.5], [37.5, 12.5]]


@pytest.mark.parametrize(
    ("part", "width", "name"),
    [(0.5, 50, "spark"), (-0.3, 30, "over"), (2, 100, "spark"), (-6.2, 100, "over"), (None, 0, "spark")],
)
def test_a_share_never_leaves_its_bar(part: float | None, width: float, name: str) -> None:
    _, bar = marks(charts.share_bar(part, "t"), "rect")
    assert (numbers(bar, "width"), bar.get("class", "").split()[0]) == ([width], name)


@pytest.mark.parametrize(("part", "whole", "expected"), [(1, 4, f"25.0{NARROW}%"), (0, 4, f"0{NARROW}%"), (0, 0, MISSING)])
def test_a_part_of_nothing_is_unknown(part: int, whole: int, expected: str) -> None:
    assert charts.percent(part, whole) == expected
