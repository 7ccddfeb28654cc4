"""Draws: the live table, the line per second, the summary. Decides and counts nothing."""

from collections.abc import Iterable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from streamer.demo import cast
from streamer.demo.gauges import Reading
from streamer.demo.ledger import Calls, Flow, Ledger

PLAIN_WIDTH = 132

_GOOD, _BAD, _QUIET = "green", "bold red", "dim"


def live(ledger: Ledger, reading: Reading, now_s: float, status: str) -> RenderableType:
    """Everything at one look."""
    side = Table.grid(padding=(0, 3))
    side.add_row(_calls(ledger.calls.values()), _endpoints(reading))
    return Padding(
        Group(
            _title(reading, status),
            _flows(ledger, now_s),
            _routes(reading),
            side,
            _letters(ledger),
        ),
        (0, 1),
    )


def line(ledger: Ledger, reading: Reading, now_s: float, since_s: float, status: str) -> str:
    """The same in one line."""
    parts = [f"{now_s - since_s:5.1f} s"]
    for name in (cast.SPEED_FLOW, cast.DOOR_FLOW, cast.CLIMATE_FLOW):
        flow = ledger.flows[name]
        parts.append(f"{name} {flow.rate(now_s):.1f}/s p50 {_ms(flow, 0.5)} p99 {_ms(flow, 0.99)}")
    up = sum(door.is_up for door in reading.doors)
    parts.append(f"open {ledger.open}, queued {reading.queued}")
    parts.append(f"dead letters {sum(count for count, _ in ledger.letters.values())}")
    parts.append(f"endpoints up {up}/{len(reading.doors)}")
    return " | ".join([*parts, status] if status else parts)


def summary(console: Console, ledger: Ledger, reading: Reading | None) -> None:
    """What was sent against what arrived, then the daemon's own books."""
    table = _table("What was sent, and what became of it")
    table.add_column("flow")
    table.add_column("from → to", style=_QUIET)
    for name in ("sent", "arrived", "twice", "disorder"):
        table.add_column(name, justify="right")
    table.add_column("dead-lettered")
    table.add_column("unaccounted", justify="right")
    for flow in ledger.flows.values():
        table.add_row(
            flow.name,
            flow.path,
            f"{flow.sent}",
            f"{flow.arrived}",
            _count(flow.duplicates),
            _count(flow.out_of_order, _BAD),
            _dead(flow),
            Text(f"{flow.unaccounted}", _BAD if flow.unaccounted else _GOOD),
        )
    console.print(table)
    console.print(_calls(ledger.calls.values()))
    if reading is not None:
        console.print(_routes(reading))
    if ledger.letters:
        console.print(_letters(ledger))


def verdict(ledger: Ledger, problems: list[str]) -> str:
    """One sentence."""
    flows = ledger.flows.values()
    sent, arrived = sum(f.sent for f in flows), sum(f.arrived for f in flows)
    dead, twice = sum(f.dead.total() for f in flows), sum(f.duplicates for f in flows)
    disorder = sum(f.out_of_order for f in flows)
    if problems:
        return f"Not good: {'; '.join(problems)}."
    return (
        f"All {sent} messages are accounted for: {arrived} arrived, {dead} could not be delivered and came back as dead "
        f"letters that say why; {twice or 'none'} came twice, {disorder or 'none'} out of order, and every route's books "
        "balance."
    )


def _title(reading: Reading, status: str) -> RenderableType:
    def state(endpoint: str) -> str:
        return _GOOD if reading.is_up(endpoint) else "yellow"

    text = Text.assemble(
        ("uStreamer demo", "bold"),
        f"  {status}\n\n",
        (f"  {cast.VEHICLE}", "bold cyan"),
        (" ══ Zenoh ══ ", state("vehicle")),
        (f" {cast.GATEWAY} ", "bold reverse"),
        (" ══ MQTT 5 ══ ", state("cloud")),
        ("broker", _QUIET),
        (" ══ MQTT 5 ══ ", state("cloud")),
        (cast.CLOUD, "bold cyan"),
        (f"\n  {cast.SLEEPER}", "cyan"),
        (" ╌╌ Zenoh ╌╌╌╌╌┘", state("garage")),
        ("   sleeps" if not reading.is_up("garage") else "", _QUIET),
    )
    return Padding(text, (0, 0, 1, 0))


def _flows(ledger: Ledger, now_s: float) -> Table:
    table = _table("Flows, as the vehicle and the cloud see them")
    table.add_column("flow", min_width=28)
    table.add_column("from → to", style=_QUIET)
    for name in ("sent", "arrived", "per second", "p50", "p99", "on its way"):
        table.add_column(name, justify="right", min_width=7)
    table.add_column("dead-lettered", min_width=20)
    for flow in ledger.flows.values():
        table.add_row(
            flow.name,
            flow.path,
            f"{flow.sent}",
            f"{flow.arrived}",
            f"{flow.rate(now_s):.1f}" if flow.arrived else "–",
            _ms(flow, 0.5),
            _ms(flow, 0.99),
            _count(flow.unaccounted, "yellow"),
            _dead(flow),
        )
    return table


def _routes(reading: Reading) -> Table:
    table = _table("The daemon's books, from /metrics: in = sum of outcomes + queued")
    table.add_column("route", min_width=22)
    table.add_column("in", justify="right", min_width=6)
    outcomes = sorted({outcome for books in reading.books for outcome in books.outcomes})
    for name in (*(outcome.replace("_", " ") for outcome in outcomes), "queued", "oldest"):
        table.add_column(name, justify="right", min_width=8)
    table.add_column("balance")
    for books in reading.books:
        if not books.accepted:
            continue
        table.add_row(
            books.route,
            f"{books.accepted}",
            *(_count(books.outcomes.get(outcome, 0)) for outcome in outcomes),
            _count(books.queued, "yellow"),
            f"{books.oldest_s:.1f} s" if books.queued else Text("–", _QUIET),
            Text("yes", _GOOD) if books.balance else Text("NO", _BAD),
        )
    return table


def _endpoints(reading: Reading) -> Table:
    table = _table("Endpoints")
    for name in ("endpoint", "transport", "state"):
        table.add_column(name)
    for name in ("received", "in flight"):
        table.add_column(name, justify="right")
    for door in reading.doors:
        state = Text("up", _GOOD) if door.is_up else Text("nobody there", "yellow")
        table.add_row(door.name, door.transport, state, f"{door.received}", _count(door.in_flight, "yellow"))
    return table


def _calls(calls: Iterable[Calls]) -> Table:
    table = _table("RPC, as the callers see it")
    table.add_column("Request", min_width=28)
    table.add_column("asked", justify="right")
    table.add_column("waiting", justify="right")
    table.add_column("answers", min_width=24)
    for each in calls:
        results = Text(", ").join(
            Text(f"{count} {result}", _GOOD if result == "OK" else "yellow") for result, count in each.results.most_common()
        )
        table.add_row(each.name, f"{each.asked}", _count(each.waiting, "yellow"), results or Text("–", _QUIET))
    return table


def _letters(ledger: Ledger) -> Table:
    table = _table("Dead letters")
    table.add_column("reason", style="yellow", min_width=18)
    table.add_column("count", justify="right")
    table.add_column("flow", min_width=28)
    table.add_column("the streamer says", style=_QUIET)
    for (reason, flow), (count, text) in sorted(ledger.letters.items()):
        table.add_row(reason, f"{count}", flow, text)
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="bold blue",
        padding=(0, 1),
        pad_edge=False,
    )


def _count(number: int, style: str = "") -> Text:
    return Text(f"{number}", style) if number else Text("–", _QUIET)


def _dead(flow: Flow) -> Text:
    parts = [f"{count} {reason}" for reason, count in flow.dead.most_common()]
    return Text(", ".join(parts), "yellow") if parts else Text("–", _QUIET)


def _ms(flow: Flow, share: float) -> str:
    latency_s = flow.latency_s(share)
    return "–" if latency_s is None else f"{latency_s * 1000:.1f} ms"
