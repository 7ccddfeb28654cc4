"""``streamer top``: prints endpoints, routes and waiting flows of a running gateway as tables, once or every few seconds.

The figures are those of the administration API; rates are the difference of two readings. The command changes nothing, and
needs no token.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamer.journal.moments import as_span
from streamer.tools.interrupt import until_interrupted
from streamer.tools.running import UNFIT, DaemonAddress, NotAskedError, add_options, answered, ask, daemon_of, loaded, unfit
from streamer.tools.text import add_json, as_table, complain, document_out, lines_out, plain

_WITHIN_S = 3.0
_FLOWS = 50
_OWN = ("core", "")
"""The ends of routes of the streamer's own services, and of messages that take no route."""
_CLEAR = "\x1b[H\x1b[J"

Entry = dict[str, Any]
Counter = Callable[[Entry], float]

_ROUTE_RATES: dict[str, Counter] = {
    "accepted_per_s": lambda route: float(route["accepted"]),
    "delivered_per_s": lambda route: float(route["outcomes"].get("delivered", 0)),
}
_ENDPOINT_RATES: dict[str, Counter] = {
    "received_per_s": lambda endpoint: float(endpoint["received_messages"]),
    "received_bytes_per_s": lambda endpoint: float((endpoint["wire_bytes"] or {}).get("received", 0)),
    "sent_bytes_per_s": lambda endpoint: float((endpoint["wire_bytes"] or {}).get("sent", 0)),
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show the endpoints, routes and waiting flows of a running gateway, here or elsewhere: states, rates, depth."
    top = commands.add_parser("top", help=text, description=text)
    top.set_defaults(command=answered(_top))
    add_options(top)
    top.add_argument("--once", action="store_true", help="print it once, after one interval, and end")
    add_json(top)
    top.add_argument("--plain", action="store_true", help="print it below the last one at every interval")
    text = "seconds between two readings; default: 2, with --once: 1"
    top.add_argument("--interval", type=float, metavar="S", help=text)


def _top(arguments: argparse.Namespace) -> int:
    is_terminal = sys.stdout.isatty()
    is_once = arguments.once or arguments.as_json or not (is_terminal or arguments.plain)
    interval_s = arguments.interval if arguments.interval is not None else 1.0 if is_once else 2.0
    if not 0.1 <= interval_s <= 3600:
        return complain("--interval: expected 0.1 to 3600 seconds", 2)
    config = loaded(arguments)
    daemon = daemon_of(arguments, config)
    gateway = Gateway(daemon.named if config is None else f"{config.authority} at {daemon.named}", daemon)
    if not is_once:
        can_clear = is_terminal and not arguments.plain and os.environ.get("TERM", "dumb") != "dumb"
        with until_interrupted():
            _watch(gateway, interval_s, can_clear)
        return 0
    gateway.read()
    if not gateway.problem:
        time.sleep(interval_s)
        gateway.read()
    if gateway.problem:
        return complain(gateway.problem, 1)
    if arguments.as_json:
        document_out(gateway.document)
    else:
        lines_out(gateway.lines())
    return 0


def _watch(gateway: "Gateway", interval_s: float, can_clear: bool) -> None:
    """Print the gateway's state at every interval: over the last one, cut to the terminal's size, or below it."""
    while True:
        gateway.read()
        lines = list(gateway.lines())
        if can_clear:
            size = shutil.get_terminal_size()
            if (left := len(lines) - (size.lines - 1)) > 0:
                lines[size.lines - 2 :] = [f"... {left + 1} more lines"]
            lines = [plain(line)[: size.columns] for line in lines]
            sys.stdout.write(_CLEAR)
        lines_out(lines)
        sys.stdout.flush()
        time.sleep(interval_s)


class GatewayState(NamedTuple):
    """The answers of a gateway, read at ``at_s`` on the monotonic clock."""

    at_s: float
    streamer: Entry
    endpoints: list[Entry]
    routes: list[Entry]
    flows: list[Entry]
    flows_total: int


class Gateway:
    """A gateway and what was read of it last. ``problem``: why the latest reading failed, empty if it did not."""

    def __init__(self, name: str, daemon: DaemonAddress) -> None:
        self.name = name
        self.problem = ""
        self.document: Entry = {}
        self._daemon = daemon
        self._last: GatewayState | None = None
        self._lines: list[str] = []

    def read(self) -> None:
        """Read the state once. Takes seconds if nothing answers."""
        try:
            reading = self._reading()
            try:
                document = _document(self.name, reading, self._last or reading)
                self._lines = list(_lines(document))
            except UNFIT as exc:
                raise unfit(self._daemon) from exc
        except NotAskedError as exc:
            self.problem = str(exc)
            return
        self.problem, self.document, self._last = "", document, reading

    def _reading(self) -> GatewayState:
        streamer = ask(self._daemon, "", dict[str, Any], within_s=_WITHIN_S)
        endpoints = ask(self._daemon, "/endpoints", lambda page: list(page["endpoints"]), within_s=_WITHIN_S)
        routes = ask(self._daemon, "/routes", lambda page: list(page["routes"]), within_s=_WITHIN_S)
        page = f"/flows?state=waiting&limit={_FLOWS}"
        flows, total = ask(self._daemon, page, lambda page: (list(page["flows"]), int(page["total"])), within_s=_WITHIN_S)
        return GatewayState(time.monotonic(), streamer, endpoints, routes, flows, total)

    def lines(self) -> Iterator[str]:
        """Yield the state as text: that of the last answer, and how old it is, if the gateway does not answer now."""
        if self.problem:
            age = "" if self._last is None else f"; as of {time.monotonic() - self._last.at_s:.0f} s ago:"
            yield f"! {self.problem}{age}"
        yield from self._lines


def _document(name: str, now: GatewayState, before: GatewayState) -> Entry:
    """Return a reading as a JSON object, with rates since the one before. Raises the errors in `UNFIT`."""
    is_same_run = now.streamer["started"] == before.streamer["started"]  # else its counters have begun at 0
    span_s = now.at_s - before.at_s if is_same_run else 0.0
    routes = _with_rates(now.routes, before.routes, span_s, ("name", "ingress", "egress"), _ROUTE_RATES)
    routes = [
        each for each in routes if each["accepted"] or each["queued"] or not {each["ingress"], each["egress"]} & {*_OWN}
    ]
    return {
        "gateway": name,
        **now.streamer,
        "endpoints": _with_rates(now.endpoints, before.endpoints, span_s, ("name",), _ENDPOINT_RATES),
        "routes": sorted(routes, key=lambda each: (-each["queued"], -each["accepted_per_s"])),
        "flows": sorted(now.flows, key=lambda flow: -int(flow["waiting"])),
        "flows_total": now.flows_total,
    }


def _with_rates(
    now: Sequence[Entry], before: Sequence[Entry], span_s: float, key: Sequence[str], rates: Mapping[str, Counter]
) -> list[Entry]:
    """Return entries with the growth of their counters per second; 0 for a counter that has begun anew."""
    last = {tuple(each[name] for name in key): each for each in before}
    found = []
    for each in now:
        then = last.get(tuple(each[name] for name in key), each)
        grown = {name: max(0.0, counter(each) - counter(then)) for name, counter in rates.items()}
        found.append({**each, **{name: count / span_s if span_s > 0 else 0.0 for name, count in grown.items()}})
    return found


def _lines(document: Entry) -> Iterator[str]:
    """Yield a document as text. Raises the errors in `UNFIT`."""
    journal, pair = document["journal"], document["pair"]
    head = f"uStreamer {document['gateway']}  version {document['version']}, {document['form']}"
    head += f"  up {as_span(round(document['uptime_s'] * 1000))}"
    yield head if journal is None else f"{head}  dead letters in the journal: {_or_unknown(journal['dead_letters'])}"
    if pair is not None:
        link = "" if pair["link"]["up"] else ", no link to the other streamer"
        alike = "" if pair["alike"] else ", the configurations differ"
        why = f": {pair['problem']}" if pair["problem"] else ""
        protected = "protected" if pair["protected"] else "not protected"
        yield f"{'! ' if why else ''}pair: {pair['role']}, epoch {pair['epoch']}, {protected}{link}{alike}{why}"
    yield from (f"! {reason}" for reason in document["reasons"])
    yield from (f"- {note}" for note in document["notes"])
    yield ""
    yield from as_table([_ENDPOINT_HEAD, *map(_endpoint, document["endpoints"])])
    yield ""
    if budgets := document.get("budgets"):
        yield from as_table([_BUDGET_HEAD, *(_budget(name, budgets[name]) for name in budgets)])
        yield ""
    yield from as_table([_ROUTE_HEAD, *map(_route, document["routes"])])
    yield ""
    total, flows = document["flows_total"], document["flows"]
    if flows:
        yield from as_table([_FLOW_HEAD, *map(_flow, flows)])
        if total > len(flows):
            yield f"... and {total - len(flows)} more flows"
    else:
        yield "no flow waits"


_ENDPOINT_HEAD = ("endpoint", "state", "since", "in/s", "B/s in", "B/s out", "in flight", "backlog", "connected to")
_OUTCOMES = ("expired", "rejected", "dead")
_ROUTE_HEAD = ("route", "from → to", "in/s", "out/s", *_OUTCOMES, "queued", "oldest", "inside p99", "end to end p99")
_BUDGET_HEAD = ("budget", "bytes", "used", "share", "lasts until")
_FLOW_HEAD = ("flow", "route", "waiting", "oldest", "why")


def _endpoint(endpoint: Entry) -> tuple[str, ...]:
    ends = ", ".join(map(str, endpoint["connected_to"]))
    if endpoint["next_attempt"] is not None:
        ends = f"next attempt {endpoint['next_attempt']}"
    return (
        f"{endpoint['name']} ({endpoint['transport']})",
        str(endpoint["state"]),
        str(endpoint["since"]),
        *(_number(endpoint[name]) for name in ("received_per_s", "received_bytes_per_s", "sent_bytes_per_s")),
        *(_number(endpoint[name]) for name in ("in_flight", "backlog")),
        ends,
    )


def _budget(name: str, use: Entry) -> tuple[str, ...]:
    used, share = ("unknown", "") if use["used"] is None else (_number(use["used"]), f"{use['share']:.0%}")
    return name, _number(use["bytes"]), used, share, str(use["lasts_until"] or f"its end, {use['until']}")


def _route(route: Entry) -> tuple[str, ...]:
    outcomes, latency = route["outcomes"], route["latency"]
    return (
        str(route["name"]),
        f"{route['ingress'] or 'here'} → {route['egress'] or 'nowhere'}",
        *(_number(route[name]) for name in ("accepted_per_s", "delivered_per_s")),
        *(_number(outcomes.get(name, 0)) for name in ("expired", "rejected", "dead_lettered")),
        _number(route["queued"]),
        _seconds(route["oldest_age_s"]) if route["queued"] else "",
        *(_seconds(latency[name]["p99_s"]) for name in ("in_daemon", "end_to_end")),
    )


def _flow(flow: Entry) -> tuple[str, ...]:
    state = flow["endpoint_state"]
    held = [] if state == "up" else [f"{flow['endpoint']} is {state}"]
    held += map(str, flow["held"])
    return (
        str(flow["source"]) if flow["sink"] is None else f"{flow['source']} → {flow['sink']}",
        str(flow["route"]),
        _number(flow["waiting"]),
        _seconds(flow["oldest_age_s"]),
        ", ".join(held) or "other flows",
    )


def _number(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 10 and value != int(value) else f"{value:.0f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g} s" if value < 100 else as_span(round(float(value) * 1000))


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)
