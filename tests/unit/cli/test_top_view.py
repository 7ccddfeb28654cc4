"""How `streamer top` draws: whatever the width, nothing wraps, and nothing that comes from the network is obeyed."""

from dataclasses import replace
from math import inf

import pytest
from rich.cells import cell_len
from rich.console import Console

from streamer.cli.top_metrics import EndpointFigures, RouteFigures, WaitingFlow
from streamer.cli.top_view import Picture, draw, number, seconds, sort

HOSTILE = "[bold]\x1b[2J\n\u202e" + "x" * 300
ROUTE = RouteFigures("up", "vehicle", "cloud", 12.5, 12.0, 0.5, 3, 1.5, 0, (0.001, 0.02), (0.5, inf))
ENDPOINT = EndpointFigures("cloud", "mqtt5", "up", 12.5, 3, 0, 0)
FLOW = WaitingFlow("up", "//veh1/A8000/2/8A50", "//cloud/C0/1/0", 5, 3.2, ("absent", "paused"))


def picture(routes: int = 3, flows: int | None = 2) -> Picture:
    return Picture(
        "uStreamer gw",
        ["version 0.1.0  up 3 h"],
        [],
        [ENDPOINT, replace(ENDPOINT, name="vehicle", state="alone"), replace(ENDPOINT, name="odd", problems=1)],
        [replace(ROUTE, name=f"route-{each}", accepted_per_s=100 - each) for each in range(routes)],
        None if flows is None else [FLOW] * flows,
        flows or 0,
        keys="q quit",
    )


def lines(shown: Picture, columns: int, height: int | None = None) -> list[str]:
    console = Console(width=columns, highlight=False)
    with console.capture() as captured:
        console.print(draw(shown, columns, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("columns", [20, 40, 66, 80, 110, 132, 200])
@pytest.mark.parametrize("height", [10, 20, 24, 50])
@pytest.mark.parametrize(("routes", "flows"), [(0, None), (3, 2), (1000, 50)])
def test_it_fits_into_any_terminal(columns: int, height: int, routes: int, flows: int | None) -> None:
    shown = lines(picture(routes, flows), columns, height)
    assert max(map(cell_len, shown)) <= columns
    if height >= 20:
        assert len(shown) <= height
    if routes:
        assert any("route-0" in line or "route…" in line or "rou…" in line for line in shown) or columns == 20


def test_a_phone_sees_rates_depth_and_latency() -> None:
    shown = lines(picture(), 40)
    assert any(line.split() == ["route-0", "100", "3", ">60", "s"] for line in shown), shown
    assert any(line.split() == ["vehicle", "alone", "12", "3"] for line in shown), shown


def test_a_wide_terminal_sees_bytes_of_endpoints_and_routes() -> None:
    shown = picture()
    shown.endpoints = [replace(ENDPOINT, received_bytes_per_s=1500, sent_bytes_per_s=20)]
    shown.routes = [replace(ROUTE, received_bytes_per_s=77, sent_bytes_per_s=88_000)]
    drawn = lines(shown, 152)
    assert any(line.split()[-2:] == ["1500", "20"] for line in drawn), drawn
    assert any(line.split()[4:8] == ["12", "12", "77", "88.0k"] for line in drawn), drawn


def test_what_does_not_fit_is_counted() -> None:
    shown = lines(picture(routes=1000), 100, 24)
    assert any("more" in line and int(line.split()[0]) > 900 for line in shown)


def test_routes_can_be_scrolled() -> None:
    scrolled = picture(routes=1000)
    scrolled.offset = 500
    shown = lines(scrolled, 100, 24)
    assert any("route-500" in line for line in shown)
    assert any(line.startswith("  500 before, ") for line in shown)


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_nothing_is_obeyed_by_the_terminal(columns: int) -> None:
    shown = Picture(
        "gw",
        [HOSTILE],
        [HOSTILE],
        [replace(ENDPOINT, name=HOSTILE, transport=HOSTILE, state=HOSTILE)],
        [replace(ROUTE, name=HOSTILE, ingress=HOSTILE)],
        [replace(FLOW, route=HOSTILE, source=HOSTILE, sink=HOSTILE, held=(HOSTILE,))],
        1,
    )
    text = lines(shown, columns, 40)
    assert all(line.isprintable() for line in text)
    assert any("[bold]" in line for line in text)  # no markup either


@pytest.mark.parametrize(("by", "first"), [("rate", "a"), ("queued", "b"), ("p99", "c"), ("name", "a")])
def test_routes_are_sorted_as_asked(by: str, first: str) -> None:
    base = replace(ROUTE, accepted_per_s=1, queued=0, end_to_end_s=(None, None))
    routes = [
        replace(base, name="c", end_to_end_s=(0.1, 5.0)),
        replace(base, name="b", queued=9),
        replace(base, name="a", accepted_per_s=50),
    ]
    assert sort(routes, by)[0].name == first


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0012, "1.2 ms"),
        (0.25, "250 ms"),
        (12.34, "12.3 s"),
        (600.0, "10 min"),
        (7200.0, "2 h"),
        (inf, ">60 s"),
    ],
)
def test_lengths_of_time_are_short(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "–"), (0.5, "0.5"), (7, "7"), (9999, "9999"), (12_345, "12.3k"), (123_456, "123k"), (5e9, "5G")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
