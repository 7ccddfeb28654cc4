"""``streamer top``: shows endpoints, routes and waiting flows of a running gateway, updated every few seconds.

The command reads `/metrics`, so it works with every gateway that can be scraped. Waiting flows and the states of endpoints
are from the administration API, if that answers. The command changes nothing, and needs no token.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from http.client import HTTPException
from math import isfinite
from typing import TYPE_CHECKING, Any

from streamer.cli.interrupt import until_interrupted
from streamer.cli.running import API, UNFIT, DaemonAddress, NotAskedError, add_options, answered, daemon_of, loaded, opened
from streamer.cli.text import add_json, complain, document_out, parsed
from streamer.cli.top_metrics import (
    EndpointSample,
    PairSample,
    Sample,
    WaitingFlow,
    cpu_share,
    endpoint_figures,
    read,
    route_figures,
)

if TYPE_CHECKING:
    from streamer.cli.top_view import Picture

_WITHIN_S = 3.0
_RECENT_S = 15.0  # latencies are those of the last seconds
_DRAW_S = 1.0
_PAGE_BYTES = 256 * 1024 * 1024
_FLOWS = 50
_REASONS = 5  # endpoints that are not up, with the reason
_KEYS = "q quit  s sort  p pause  ↑↓ routes"

Fetch = Callable[[str], bytes]
"""Returns the body of a page. Raises `NotAskedError`."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show the endpoints, routes and waiting flows of a running gateway, here or elsewhere: rates, depth, latencies."
    top = commands.add_parser("top", help=text, description=text)
    top.set_defaults(command=answered(_top))
    add_options(top)
    top.add_argument("--once", action="store_true", help="print it once, after one interval, and end")
    add_json(top)
    top.add_argument("--plain", action="store_true", help="no colours and no live display: print it at every interval")
    text = "seconds between two readings; default: 2, with --once: 1"
    top.add_argument("--interval", type=float, metavar="S", help=text)


def _top(arguments: argparse.Namespace) -> int:
    is_once = arguments.once or arguments.as_json or not (sys.stdout.isatty() or arguments.plain)
    interval_s = arguments.interval if arguments.interval is not None else 1.0 if is_once else 2.0
    if not 0.1 <= interval_s <= 3600:
        return complain("--interval: expected 0.1 to 3600 seconds", 2)
    config = loaded(arguments)
    daemon = daemon_of(arguments, config)
    name = daemon.named if config is None else f"{config.authority} at {daemon.named}"
    gateway = Gateway(name, partial(_fetch, daemon))
    if arguments.as_json:
        return _print_json(gateway, interval_s)
    try:
        from streamer.cli.top_view import console_of  # noqa: PLC0415  # rich comes with an extra
    except ModuleNotFoundError as exc:
        return complain(f"streamer top needs {exc.name}; install with: pip install 'uprotocol-ustreamer[top]'", 1)
    console = console_of(is_plain=arguments.plain or not sys.stdout.isatty())
    if is_once or arguments.plain or console.is_dumb_terminal:  # cannot redraw
        with until_interrupted():
            return _print(gateway, console, interval_s, is_once)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            return asyncio.run(_Display(gateway, console, interval_s).run())
    return 0


def _fetch(daemon: DaemonAddress, page: str) -> bytes:
    try:
        with opened(daemon, page, within_s=_WITHIN_S, below="") as answer:
            return bytes(answer.read(_PAGE_BYTES))
    except (OSError, HTTPException) as exc:  # the connection broke
        raise NotAskedError(f"{daemon.named}: no answer ({exc})") from exc


class Gateway:
    """A gateway, and the samples of its metrics. ``problem``: why the last reading failed."""

    def __init__(self, name: str, fetch: Fetch) -> None:
        self.name = name
        self.problem = ""
        self.samples: deque[Sample] = deque()
        self.flows: list[WaitingFlow] | None = None
        self.flows_in_all = 0
        self._fetch = fetch

    def look(self) -> None:
        """Read everything once. Takes seconds if nothing answers."""
        try:
            sample = read(self._fetch("/metrics").decode(), time.monotonic())
            if not sample.is_streamer:
                raise ValueError
            self._read_states(sample)
            self._read_pair(sample)
            self._read_flows(sample)
        except NotAskedError as exc:
            self.problem = str(exc)
            return
        except ValueError:
            self.problem = f"{self.name}: what answers there is not a streamer"
            return
        self.problem = ""
        if self.samples and sample.started_s != self.samples[-1].started_s:
            self.samples.clear()  # another process, whose counters started at 0
        self.samples.append(sample)
        while len(self.samples) > 2 and self.samples[1].at_s < sample.at_s - _RECENT_S:
            self.samples.popleft()

    def _read_states(self, sample: Sample) -> None:
        """Read the states of endpoints, which the metrics do not have: a Zenoh peer that is not up may just be alone."""
        with contextlib.suppress(NotAskedError, *UNFIT):
            for each in parsed(self._fetch(f"{API}/endpoints"))["endpoints"]:
                if (endpoint := sample.endpoints.get(each["name"])) is not None:
                    endpoint.state = str(each["state"])
                    endpoint.connected_to = tuple(map(str, each["connected_to"]))
                    if endpoint.state != "up":
                        endpoint.why = _why(each)

    def _read_pair(self, sample: Sample) -> None:
        """Read why the other one of a pair, or this one, could not take over, which the metrics do not have."""
        if sample.pair is not None:
            with contextlib.suppress(NotAskedError, *UNFIT):
                sample.pair.problem = str(parsed(self._fetch(f"{API}/pair"))["problem"])

    def _read_flows(self, sample: Sample) -> None:
        try:
            answer = parsed(self._fetch(f"{API}/flows?state=waiting&limit={_FLOWS}"))
            flows = [_flow(each, sample.endpoints) for each in answer["flows"]]
            self.flows, self.flows_in_all = sorted(flows, key=lambda flow: -flow.waiting), int(answer["total"])
        except (NotAskedError, *UNFIT):
            self.flows, self.flows_in_all = None, 0

    def picture(self, now_s: float) -> "Picture":
        """Return what to show at ``now_s`` on the monotonic clock."""
        from streamer.cli.top_view import Picture  # noqa: PLC0415  # rich comes with an extra

        picture = Picture(f"uStreamer {self.name}", problems=[self.problem] if self.problem else [])
        if not self.samples:
            return picture
        latest = self.samples[-1]
        notes = [f"version {latest.version}" + (f", {latest.form}" if latest.form else "")]
        if latest.started_s is not None:
            notes.append(f"up {_span(time.time() - latest.started_s)}")
        notes += [f"CPU {cpu_share(self.samples):.0%}", f"{latest.memory_bytes / 1048576:.0f} MiB"]
        notes.append(f"{latest.dead_letters:.0f} dead letters")
        if self.problem:
            notes.append(f"as of {now_s - latest.at_s:.0f} s ago")
        picture.notes = ["  ".join(notes)]
        if (pair := latest.pair) is not None:
            picture.notes += [] if pair.problem else [pair.shown()]
            picture.problems += [f"{pair.shown()}: {pair.problem}"] if pair.problem else []
        if latest.journal_fails:
            picture.problems.append("nothing gets into the journal; /readyz says why")
        why = [f"{name} {each.why}" for name, each in latest.endpoints.items() if each.why]
        picture.problems += why[:_REASONS]
        if len(why) > _REASONS:
            picture.problems.append(f"and {len(why) - _REASONS} more endpoints")
        picture.endpoints = list(endpoint_figures(self.samples))
        picture.routes = list(route_figures(self.samples))
        picture.flows, picture.flows_in_all = self.flows, self.flows_in_all
        return picture

    def document(self) -> dict[str, Any]:
        """Return the latest state as a JSON object. Rates and latencies are those of `picture`. Needs a sample."""
        latest = self.samples[-1]
        document = {
            "gateway": self.name,
            "version": latest.version,
            "form": latest.form,
            "up_s": None if latest.started_s is None else max(0.0, time.time() - latest.started_s),
            "cpu": cpu_share(self.samples),
            "memory_bytes": latest.memory_bytes,
            "dead_letters": latest.dead_letters,
            "journal_fails": latest.journal_fails,
            "pair": None if latest.pair is None else _pair(latest.pair),
            "endpoints": list(map(asdict, endpoint_figures(self.samples))),
            "routes": list(map(asdict, route_figures(self.samples))),
            "flows": None if self.flows is None else list(map(asdict, self.flows)),
            "flows_total": self.flows_in_all,
        }
        return dict(_finite(document))


def _pair(pair: PairSample) -> dict[str, Any]:
    return {"role": pair.role, "epoch": pair.epoch, "protected": bool(pair.protected), "problem": pair.problem}


def _why(endpoint: dict[str, Any]) -> str:
    """Return why an endpoint of the API is not up; empty if that is not known. Raises the errors in `UNFIT`."""
    error, again = endpoint["last_error"], endpoint["next_attempt"]
    if endpoint["first_error"] is None:
        return ""
    times = f"at {error['when']}" + (f", next attempt {again}" if again else "")
    return f"{endpoint['why']} ({error['reason']}, {times})"


def _finite(value: Any) -> Any:
    """Return a value with None for every number that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _flow(data: dict[str, Any], endpoints: dict[str, EndpointSample]) -> WaitingFlow:
    """Convert a flow of the API. Raises the errors in `UNFIT`."""
    oldest = data.get("oldest_age_s")
    held = tuple(map(str, data.get("held") or ()))
    egress = endpoints.get(data["endpoint"])
    if egress is not None and egress.shown() != "up":
        held = (f"{data['endpoint']} is {egress.shown()}", *held)
    age_s = None if oldest is None else float(oldest)
    waiting = int(float(data["waiting"]))  # bounds the number of digits
    return WaitingFlow(str(data["route"]), str(data["source"]), str(data.get("sink") or ""), waiting, age_s, held)


def _print_json(gateway: Gateway, interval_s: float) -> int:
    """Print the gateway's state after an interval as one JSON document."""
    gateway.look()
    if not gateway.problem:
        time.sleep(interval_s)
        gateway.look()
    if gateway.problem:
        return complain(gateway.problem, 1)
    document_out(gateway.document())
    return 0


def _print(gateway: Gateway, console: Any, interval_s: float, is_once: bool) -> int:
    """Print the gateway's state after an interval, which the rates need; once, or at every interval."""
    from streamer.cli.top_view import draw  # noqa: PLC0415  # rich comes with an extra

    gateway.look()
    while True:
        if is_once and gateway.problem:
            return complain(gateway.problem, 1)
        time.sleep(interval_s)
        gateway.look()
        console.print(draw(gateway.picture(time.monotonic()), console.width, None))
        sys.stdout.flush()
        if is_once:
            return 1 if gateway.problem else 0


class _Display:
    """The live display: reads the gateway, draws, handles keys."""

    def __init__(self, gateway: Gateway, console: Any, interval_s: float) -> None:
        self._gateway = gateway
        self._console = console
        self._interval_s = interval_s
        self._sort = self._offset = 0
        self._frozen: Picture | None = None
        self._changed = asyncio.Event()
        self._is_over = False

    async def run(self) -> int:
        """Run until q or Ctrl-C."""
        from rich.live import Live  # noqa: PLC0415  # comes with an extra

        with _keys(self._press), Live(console=self._console, screen=True, auto_refresh=False) as live:
            looking = asyncio.create_task(self._look(), name="look")
            try:
                while not self._is_over:
                    live.update(self._drawn(), refresh=True)
                    self._changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_DRAW_S):
                            await self._changed.wait()
                    if looking.done():
                        looking.result()  # raises the exception of the task
            finally:
                looking.cancel()
        return 0

    async def _look(self) -> None:
        while True:
            await asyncio.to_thread(self._gateway.look)
            self._changed.set()
            await asyncio.sleep(self._interval_s)

    def _drawn(self) -> Any:
        from streamer.cli.top_view import SORTS, draw  # noqa: PLC0415  # rich comes with an extra

        picture = self._frozen or self._gateway.picture(time.monotonic())
        picture.sort = SORTS[self._sort % len(SORTS)]
        self._offset = picture.offset = max(0, min(self._offset, len(picture.routes) - 1))
        picture.keys = f"PAUSED  {_KEYS}" if self._frozen else _KEYS
        return draw(picture, self._console.width, self._console.height)

    def _press(self, keys: str) -> None:
        for key in keys.replace("\x1b[A", "k").replace("\x1b[B", "j").replace("\x1bOA", "k").replace("\x1bOB", "j"):
            if key in "qQ\x04":
                self._is_over = True
            elif key in "sS":
                self._sort += 1
            elif key in "pP ":
                self._frozen = None if self._frozen else self._gateway.picture(time.monotonic())
            elif key in "jk":
                self._offset += 1 if key == "j" else -1
        self._changed.set()


@contextlib.contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call ``press`` with pressed keys, unless the input is not a terminal, or the process is in its background."""
    if not sys.stdin.isatty():
        yield
        return
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    try:
        before = termios.tcgetattr(number)
        tty.setcbreak(number)
    except termios.error:  # in the background
        yield
        return

    def ready() -> None:
        if typed := os.read(number, 64):
            press(typed.decode(errors="ignore"))
        else:  # the terminal has gone
            press("q")

    loop.add_reader(number, ready)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _span(span_s: float) -> str:
    """Format an uptime in its two largest units."""
    span_s = max(0.0, span_s)  # the clocks of the machines differ
    minutes, hours, days = int(span_s // 60), int(span_s // 3600), int(span_s // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(span_s) % 60} s" if minutes else f"{int(span_s)} s"
