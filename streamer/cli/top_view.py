"""Draws `streamer top`, for terminals of any width, light or dark.

Only the terminal's own colours are used, of these only those that can be read on both backgrounds. No information is in the
colour alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isinf
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamer.cli.text import plain
from streamer.cli.top_metrics import EndpointFigures, RouteFigures, WaitingFlow

WIDE, MIDDLE = 110, 66
PLAIN_WIDTH = 152  # from here on with the bytes of routes
SORTS = ("rate", "queued", "p99", "name")

_GOOD, _BAD, _NOTE, _QUIET = "green", "bold red", "magenta", "dim"
_STATES = {"up": _GOOD, "down": _BAD}
_NOTHING = "–"
_BYTES = ("B/s in", "B/s out")


@dataclass(slots=True)
class Picture:
    """Everything that is shown at a moment. ``flows`` None: the administration API does not answer."""

    title: str
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    endpoints: list[EndpointFigures] = field(default_factory=list)
    routes: list[RouteFigures] = field(default_factory=list)
    flows: list[WaitingFlow] | None = None
    flows_in_all: int = 0
    sort: str = SORTS[0]
    offset: int = 0
    keys: str = ""


def draw(picture: Picture, columns: int, lines: int | None) -> RenderableType:
    """Draw as much of a picture as fits; ``lines`` None: everything."""
    head = [Text(plain(picture.title), "bold", no_wrap=True, overflow="ellipsis")]
    head += [Text(plain(note), _QUIET) for note in picture.notes]
    head += [Text(f"! {plain(problem)}", _BAD) for problem in picture.problems]
    foot = Text(picture.keys, _QUIET, no_wrap=True, overflow="ellipsis")
    flows = picture.flows or []
    if lines is None:
        shares = [len(picture.endpoints), len(picture.routes), len(flows)]
    else:
        used = sum(_height(each, columns) for each in head) + bool(picture.keys)
        wanted = [len(picture.endpoints), len(picture.routes), -1 if picture.flows is None else len(flows)]
        shares = _shares(wanted, lines - used)
    parts: list[RenderableType] = [*head]
    parts += _part(f"Endpoints ({len(picture.endpoints)})", _endpoints, picture.endpoints, shares[0], columns)
    routes = sort(picture.routes, picture.sort)
    offset = max(0, min(picture.offset, len(routes) - shares[1]))
    title = f"Routes ({len(routes)}, by {picture.sort})"
    parts += _part(title, _routes, routes[offset:], shares[1], columns, before=offset)
    if picture.flows is not None:
        parts += _part(f"Flows that wait ({picture.flows_in_all})", _flows, flows, shares[2], columns)
    if picture.keys:
        parts.append(foot)
    return Group(*parts)


def sort(routes: Iterable[RouteFigures], by: str) -> list[RouteFigures]:
    """Return the routes in one of the orders of `SORTS`; equal ones by name."""

    def key(route: RouteFigures) -> tuple[float, str, str]:
        latest = route.end_to_end_s[1]
        number = {
            "rate": route.accepted_per_s,
            "queued": route.queued,
            "p99": -1.0 if latest is None else latest,
            "name": 0.0,
        }
        return -number[by], route.name, route.ingress

    return sorted(routes, key=key)


def seconds(value: float | None) -> str:
    """Format a latency or an age in at most six characters."""
    if value is None:
        return _NOTHING
    if isinf(value):
        return ">60 s"
    if value < 0.01:
        return f"{value * 1000:.1f} ms"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.0f} h"


def number(value: float) -> str:
    """Format a count or a rate in at most five characters."""
    if not value:
        return _NOTHING
    if value < 10:
        return f"{value:.1f}".removesuffix(".0")
    for unit in ("", "k", "M"):
        if value < 1000 or (unit == "" and value < 10_000):
            return f"{value:.0f}{unit}" if value >= 100 or not unit else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}G"


def _part(title: str, table: Any, rows: Sequence[Any], most: int, columns: int, before: int = 0) -> list[RenderableType]:
    """Draw a title, a table with as many rows as fit, and the number of the others."""
    found: list[RenderableType] = [Text(""), Text(title, "bold", no_wrap=True, overflow="ellipsis")]
    if not rows:
        found.append(Text("  none", _QUIET))
        return found
    left = len(rows) - most
    if most > 0:
        found.append(table(rows[:most], columns))
    if left > 0 or before:
        found.append(Text(f"  {before} before, {left} more" if before else f"  {left} more", _QUIET))
    return found


def _shares(wanted: list[int], lines: int) -> list[int]:
    """Return the number of rows for each part. A part needs three more lines, and a fourth if it cannot show all rows."""
    left = lines - 4 * sum(1 for rows in wanted if rows >= 0)
    endpoints, routes, flows = (max(0, rows) for rows in wanted)
    flows = min(flows, max(left // 4, left - endpoints - routes))
    endpoints = min(endpoints, max(left // 4, left - routes - flows))
    return [max(1, endpoints), max(1, min(routes, left - endpoints - flows)), max(1, flows)]


def _height(text: Text, columns: int) -> int:
    return 1 if text.no_wrap else max(1, -(-len(text.plain) // max(1, columns)))


def _endpoints(rows: Sequence[EndpointFigures], columns: int) -> Table:
    is_wide = columns >= MIDDLE
    table = _table()
    _text(table, "endpoint", ratio=3)
    if is_wide:
        _text(table, "transport", ratio=2)
    _text(table, "state", ratio=2)
    if columns >= WIDE:
        _text(table, "connected to", ratio=5)
        _numbers(table, "since")
    _numbers(table, "in/s", "flight", *(["backlog", "problems", *_BYTES] if is_wide else []))
    for row in rows:
        state = Text("problem", _NOTE) if row.state == "up" and row.problems else _state(row.state)
        cells: list[Text | str] = [number(row.received_per_s), number(row.in_flight)]
        if columns >= WIDE:
            cells[:0] = [_name(_ends(row.connected_to)), seconds(row.state_age_s)]
        if is_wide:
            cells += [number(row.backlog), number(row.problems)]
            cells += [number(row.received_bytes_per_s), number(row.sent_bytes_per_s)]
        table.add_row(_name(row.name), *([_name(row.transport)] if is_wide else []), state, *cells)
    return table


def _ends(connected_to: Sequence[str]) -> str:
    """Return the first other end, and how many there are beside it."""
    more = f" +{len(connected_to) - 1}" if len(connected_to) > 1 else ""
    return f"{connected_to[0]}{more}" if connected_to else _NOTHING


def _state(state: str) -> Text:
    return Text(plain(state), _STATES.get(state, _NOTE))


def _routes(rows: Sequence[RouteFigures], columns: int) -> Table:
    table = _table()
    _text(table, "route", ratio=3)
    if columns >= WIDE:
        _text(table, "from → to", ratio=3, style=_QUIET)
    if columns >= MIDDLE:
        _numbers(table, "in/s", "out/s", *(_BYTES if columns >= PLAIN_WIDTH else ()), "fail/s", "queued", "oldest")
        if columns >= WIDE:
            _numbers(table, "inside p50", "p99")
        _numbers(table, "end to end p50" if columns >= WIDE else "p50", "p99")
    else:
        _numbers(table, "in/s", "queued", "p99")
    for row in rows:
        queued = Text(number(row.queued), _NOTE if row.queued else "")
        latencies = [seconds(value) for value in row.end_to_end_s]
        if columns < MIDDLE:
            table.add_row(_name(_route(row)), number(row.accepted_per_s), queued, latencies[1])
            continue
        cells: list[Text | str] = [_name(_route(row))]
        if columns >= WIDE:
            cells.append(_name(f"{row.ingress or 'here'} → {row.egress or 'nowhere'}"))
        failed = Text(number(row.failed_per_s), _BAD if row.failed_per_s else "")
        oldest = seconds(row.oldest_s or None)
        cells += [number(row.accepted_per_s), number(row.delivered_per_s)]
        if columns >= PLAIN_WIDTH:
            cells += [number(row.received_bytes_per_s), number(row.sent_bytes_per_s)]
        cells += [failed, queued, oldest]
        if columns >= WIDE:
            cells += [seconds(value) for value in row.in_daemon_s]
        table.add_row(*cells, *latencies)
    return table


def _route(row: RouteFigures) -> str:
    return row.name if row.egress else f"{row.name} ({row.ingress})"


def _flows(rows: Sequence[WaitingFlow], columns: int) -> Table:
    table = _table()
    if columns >= WIDE:
        _text(table, "route", ratio=2)
    _text(table, "source → sink", ratio=4)
    _numbers(table, "waiting")
    if columns >= MIDDLE:
        _numbers(table, "oldest")
        _text(table, "why", ratio=2)
    for row in rows:
        cells: list[Text | str] = [_name(row.route)] if columns >= WIDE else []
        cells += [_name(f"{row.source} → {row.sink}" if row.sink else row.source), Text(number(row.waiting), _NOTE)]
        if columns >= MIDDLE:
            cells += [seconds(row.oldest_s), _name(", ".join(row.held) or "other flows")]
        table.add_row(*cells)
    return table


def _table() -> Table:
    return Table(box=None, header_style="underline", padding=(0, 1), expand=True)


def _text(table: Table, name: str, ratio: int, style: str = "") -> None:
    table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=ratio, style=style)


def _numbers(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True, min_width=max(5, len(name)))


def _name(text: str) -> Text:
    return Text(plain(text))


def console_of(is_plain: bool) -> Console:
    """Return the console for the output: the terminal, or one for lines without colours."""
    return Console(highlight=False, width=PLAIN_WIDTH if is_plain else None, color_system=None if is_plain else "auto")
