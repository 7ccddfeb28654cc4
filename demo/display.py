"""Draws the live table, the line per second and the summary of the demonstration."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo import scenario
from demo.ledger import Calls, DemoFlow, Ledger
from demo.metrics import Snapshot
from demo.pair import PairStory

PLAIN_WIDTH = 132

# Lines of the parts of the live table: title, header and the blank line after it come with every table.
_TITLE_LINES = 4
_FRAME_LINES = 3
_PAIR_LINES = 4  # title, two streamers and a blank line: with the latest events it leaves room for the flows in 24 lines
_LATEST = 4
_WIDE = 124
_MIDDLE = 112
_FLOW_WIDTH = 26

_GOOD, _BAD, _QUIET = "green", "bold red", "dim"


def live(
    ledger: Ledger, snapshot: Snapshot, now_s: float, status: str, size: tuple[int, int], story: PairStory | None = None
) -> RenderableType:
    """Draw everything, or as much as fits into ``size`` (columns, lines), the most important first."""
    columns, lines = size
    calls: RenderableType = _calls(ledger.calls.values())
    if columns >= _WIDE:
        side = Table.grid(padding=(0, 4))
        side.add_row(calls, _endpoints(snapshot))
        calls = side
    wanted: tuple[tuple[RenderableType, int], ...] = (
        (_title(snapshot, status), _TITLE_LINES),
        *(() if story is None else ((_pair(story, _LATEST), _PAIR_LINES + min(_LATEST, len(story.events))),)),
        (_flows(ledger, now_s, columns), _FRAME_LINES + len(ledger.flows)),
        (calls, _FRAME_LINES + len(ledger.calls)),
        (_letters(ledger), _FRAME_LINES + max(1, len(ledger.letters))),
        (_routes(snapshot), _FRAME_LINES + sum(bool(books.accepted) for books in snapshot.books)),
    )
    missing = sum(needed for _, needed in wanted) - lines
    left = lines - 1 if missing > 0 else lines
    shown: list[RenderableType] = []
    for part, needed in wanted:
        if needed > left:
            break
        shown.append(_spaced(part))
        left -= needed
    if missing > 0:
        shown.append(Text(f" {missing} more lines would show the rest", _QUIET))
    return Group(*shown)


def line(ledger: Ledger, snapshot: Snapshot, now_s: float, since_s: float, status: str) -> str:
    """Return the present figures in one line."""
    parts = [f"{now_s - since_s:5.1f} s"]
    for name in (scenario.SPEED_FLOW, scenario.DOOR_FLOW, scenario.CLIMATE_FLOW):
        flow = ledger.flows[name]
        parts.append(f"{name} {flow.rate(now_s):.1f}/s p50 {_ms(flow, 0.5)} p99 {_ms(flow, 0.99)}")
    up = sum(endpoint.is_up for endpoint in snapshot.endpoints)
    parts.append(f"open {ledger.open}, queued {snapshot.queued}")
    parts.append(f"dead letters {sum(count for count, _ in ledger.letters.values())}")
    parts.append(f"endpoints up {up}/{len(snapshot.endpoints)}")
    return " | ".join([*parts, status] if status else parts)


def summary(console: Console, ledger: Ledger, snapshot: Snapshot, story: PairStory | None = None) -> None:
    """Print the sent and arrived messages, then the daemon's own accounts, and what happened to a pair."""
    table = _table("What was sent, and what became of it")
    _columns(table, "flow", min_width=_FLOW_WIDTH)
    if console.width >= _MIDDLE:
        _columns(table, "from → to", style=_QUIET)
    _columns(table, "sent", "arrived", "twice", "disorder", right=True, min_width=5)
    _columns(table, "dead-lettered")
    _columns(table, "unaccounted", right=True)
    for flow in ledger.flows.values():
        table.add_row(
            flow.name,
            *([flow.path] if console.width >= _MIDDLE else []),
            f"{flow.sent}",
            f"{flow.arrived}",
            _count(flow.duplicates),
            _count(flow.out_of_order, _BAD),
            _dead(flow),
            Text(f"{flow.unaccounted}", _BAD if flow.unaccounted else _GOOD),
        )
    for part in (
        table,
        _calls(ledger.calls.values()),
        _letters(ledger),
        _routes(snapshot),
        *(() if story is None else (_pair(story, len(story.events)),)),
    ):
        console.print(_spaced(part))


def verdict(ledger: Ledger, problems: list[str]) -> str:
    """Return a sentence that says whether all messages are accounted for."""
    flows = ledger.flows.values()
    sent, arrived = sum(f.sent for f in flows), sum(f.arrived for f in flows)
    dead, twice = sum(f.dead.total() for f in flows), sum(f.duplicates for f in flows)
    disorder = sum(f.out_of_order for f in flows)
    if problems:
        return f"Not all is accounted for: {'; '.join(problems)}."
    again = f"{twice} came twice with equal ids" if twice else "none came twice"
    return (
        f"All {sent} messages are accounted for: {arrived} arrived, {dead} could not be delivered and came back as dead "
        f"letters that say why, 0 still wait, 0 are lost; {again}, {disorder or 'none'} out of order, and every route's "
        "books balance."
    )


def _title(snapshot: Snapshot, status: str) -> Text:
    def state(endpoint: str) -> str:
        return _GOOD if snapshot.is_up(endpoint) else "yellow"

    return Text.assemble(
        (" uStreamer demo", "bold"),
        f"  {status}",
        (f"\n  {scenario.VEHICLE}", "bold cyan"),
        (" ══ Zenoh ══ ", state("vehicle")),
        (f" {scenario.GATEWAY} ", "bold reverse"),
        (" ══ MQTT 5 ══ ", state("cloud")),
        ("broker", _QUIET),
        (" ══ MQTT 5 ══ ", state("cloud")),
        (scenario.CLOUD, "bold cyan"),
        (f"\n  {scenario.SLEEPER}", "cyan"),
        (" ╌╌ Zenoh ╌╌╌╌╌╌┘", state("garage")),
        ("   sleeps" if not snapshot.is_up("garage") else "", _QUIET),
    )


def _flows(ledger: Ledger, now_s: float, columns: int) -> Table:
    table = _table("Flows, as the vehicle and the cloud see them")
    _columns(table, "flow", min_width=_FLOW_WIDTH)
    if columns >= _MIDDLE:
        _columns(table, "from → to", style=_QUIET)
    _columns(table, "sent", "arrived", "per s", right=True, min_width=6)
    _columns(table, "p50", "p99", right=True, min_width=7)
    _columns(table, "open", right=True)
    if columns >= _MIDDLE:
        _columns(table, "dead-lettered")
    for flow in ledger.flows.values():
        table.add_row(
            flow.name,
            *([flow.path] if columns >= _MIDDLE else []),
            f"{flow.sent}",
            f"{flow.arrived}",
            f"{flow.rate(now_s):.1f}" if flow.arrived else "–",
            _ms(flow, 0.5),
            _ms(flow, 0.99),
            _count(flow.unaccounted, "yellow"),
            *([_dead(flow)] if columns >= _MIDDLE else []),
        )
    return table


def _routes(snapshot: Snapshot) -> Table:
    table = _table("The daemon's books, from /metrics: in = sum of outcomes + queued")
    _columns(table, "route")
    _columns(table, "in", right=True, min_width=4)
    outcomes = sorted({outcome for books in snapshot.books for outcome in books.outcomes})
    _columns(table, *(outcome.replace("_", " ") for outcome in outcomes), "queued", right=True)
    _columns(table, "balance")
    for books in snapshot.books:
        if not books.accepted:
            continue
        table.add_row(
            books.route,
            f"{books.accepted}",
            *(_count(books.outcomes.get(outcome, 0)) for outcome in outcomes),
            Text(f"{books.queued} ({books.oldest_s:.1f} s)", "yellow") if books.queued else _count(0),
            Text("yes", _GOOD) if books.balance else Text("NO", _BAD),
        )
    return table


def _endpoints(snapshot: Snapshot) -> Table:
    table = _table("Endpoints")
    _columns(table, "endpoint", "transport", "state")
    _columns(table, "received", "in flight", right=True)
    for endpoint in snapshot.endpoints:
        state = Text("up", _GOOD) if endpoint.is_up else Text("not connected", "yellow")
        table.add_row(endpoint.name, endpoint.transport, state, f"{endpoint.received}", _count(endpoint.in_flight, "yellow"))
    return table


def _calls(calls: Iterable[Calls]) -> Table:
    table = _table("RPC, as the callers see it")
    _columns(table, "call", min_width=_FLOW_WIDTH)
    _columns(table, "asked", "waiting", right=True)
    _columns(table, "answers", min_width=24)
    for each in calls:
        results = Text(", ").join(
            Text(f"{count} {result}", _GOOD if result == "OK" else "yellow") for result, count in each.results.most_common()
        )
        table.add_row(each.name, f"{each.asked}", _count(each.waiting, "yellow"), results or Text("–", _QUIET))
    return table


def _letters(ledger: Ledger) -> Table:
    table = _table("Dead letters")
    _columns(table, "flow", min_width=_FLOW_WIDTH)
    _columns(table, "count", right=True)
    _columns(table, "reason", style="yellow", min_width=17)
    _columns(table, "the streamer says", style=_QUIET)
    for (reason, flow), (count, text) in ledger.letters.items():
        table.add_row(flow, f"{count}", reason, text)
    return table


def _pair(story: PairStory, latest: int) -> Table:
    """Draw the roles, and as many of the latest events."""
    table = _table("The pair")
    table.show_header = False
    _columns(table, "streamer", "role", "state", min_width=7)
    for name, role, state in story.roles():
        table.add_row(name, Text(role, {"active": _GOOD, "killed": _BAD}.get(role, "")), state)
    for event in story.events[-latest:]:
        table.add_row(Text(f"{event.at_s:.1f} s", _QUIET), event.streamer, event.text)
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="blue",
        padding=(0, 1),
    )


def _columns(table: Table, *names: str, right: bool = False, **options: Any) -> None:
    """Add columns that never wrap: a live table that changes its height is hard to read."""
    options.setdefault("min_width", 0)
    for name in names:
        width = max(options["min_width"], len(name)) if right else options["min_width"]  # numbers are never cut
        table.add_column(name, justify="right" if right else "left", no_wrap=True, **options | {"min_width": width})


def _spaced(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 1, 0))


def _count(number: int, style: str = "") -> Text:
    return Text(f"{number}", style) if number else Text("–", _QUIET)


def _dead(flow: DemoFlow) -> Text:
    parts = [f"{count} {reason}" for reason, count in flow.dead.most_common()]
    return Text(", ".join(parts), "yellow") if parts else Text("–", _QUIET)


def _ms(flow: DemoFlow, share: float) -> str:
    latency_s = flow.latency_s(share)
    return "–" if latency_s is None else f"{latency_s * 1000:.1f} ms"
