"""One run of one subject: a broker or two, load on both sides, and the subject between them.

A `Crossing` stands for as long as its subject runs, and can send in several phases: first some traffic that is not counted,
so that no figure has what is paid only once (imports of the trace thread, the first file, caches).
"""

import json
import re
import tempfile
import time
import urllib.error
import urllib.request
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from tests.bench.forms import ROOT, Child
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.ports import free_port

__all__ = ["ROOT", "Crossing", "Figures", "configuration", "measure"]

DIRECTIONS = {"down": "MQTT → Zenoh", "up": "Zenoh → MQTT", "across": "MQTT → MQTT"}
_LOAD = {
    "down": (("mqtt-send",), ("zenoh-receive",)),
    "up": (("zenoh-send",), ("mqtt-receive",)),
    "across": (("mqtt-send",), ("mqtt-receive", "--topics", "+/veh1")),
}
"""Who sends and who receives."""
_MAY_LOSE = {"bridge", "mosquitto"}
_READY_S = 600.0
_SPREADS_S = 1.0  # in which routes and subscriptions spread through Zenoh
_WARM_RATE = 1000.0
_FLUSHES_S = 1.5  # in which the streamer has written the traces of what came before


@dataclass
class Figures:
    """One phase of a run."""

    rate: float
    """Messages per second, from the first to the last that arrived."""
    cpu_us: float
    p50_ms: float
    p99_ms: float
    arrived: float = 1.0
    """The share of the messages that has arrived."""
    lag_p99_ms: float = 0.0
    """Of the event loop, in this phase: upper bound of the histogram's bucket."""
    ready_s: float = 0.0
    """From the start of the streamer to the moment when all endpoints work."""
    rss_mb: float = 0.0
    """Resident memory of the subject at the end, in millions of bytes."""


def configuration(
    directory: str, place: Mapping[str, Any], is_traced: bool = True, has_journal: bool = True, **changes: Any
) -> dict[str, Any]:
    """The streamer's. ``place``: ``endpoints`` of Zenoh peers, or ``far_port`` of a broker; ``port``, of the other."""
    vehicle = {"transport": "zenoh", "options": {"mode": "peer", "connect": place["endpoints"]}}
    if "far_port" in place:
        vehicle = {"transport": "mqtt5", "options": _mqtt(place["far_port"])}
    return config_of(
        {"vehicle": {**vehicle, "authorities": ["veh1"]}, "cloud": endpoint_of("mqtt5", "cloud", **_mqtt(place["port"]))},
        [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, {"from": "cloud", "to": "vehicle"}],
        authority="gateway",
        metrics={"listen": f"127.0.0.1:{place['admin']}"},
        log={"level": "error"},
        shutdown={"drain_s": 0},
        journal={"path": f"{directory}/journal.db"} if has_journal else None,
        trace={"path": f"{directory}/traces"} if is_traced else None,
        **changes,
    )


def _mqtt(port: int) -> dict[str, Any]:
    return {"broker": f"mqtt://127.0.0.1:{port}", "topics": "off-vehicle"}


class Streamer(Child):
    """A streamer that is ready. ``form``: compiled, or any other for the sources as they are."""

    def __init__(self, form: str, directory: str, config: Mapping[str, Any]) -> None:
        path = Path(directory) / "streamer.yaml"
        path.write_text(json.dumps(config))
        self._admin = config["metrics"]["listen"]
        begin_s = time.monotonic()
        super().__init__("streamer", "run", "--config", str(path), form=form)
        try:
            self._wait_ready()
        except BaseException:
            self.end()
            raise
        self.ready_s = time.monotonic() - begin_s

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            try:
                if b"true" in self.read("readyz") and b"} 1.0\n" in self.read("metrics"):
                    return
            except (urllib.error.URLError, OSError):
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise RuntimeError("the streamer did not become ready")

    def read(self, page: str) -> bytes:
        with urllib.request.urlopen(f"http://{self._admin}/{page}", timeout=30) as answer:
            text: bytes = answer.read()
            return text

    def lags(self) -> dict[float, float]:
        """How often the event loop was late by at most so many seconds."""
        found = re.findall(r'event_loop_lag_seconds_bucket{le="([^"]+)"} (\S+)', self.read("metrics").decode())
        return {float(bound): float(count) for bound, count in found}

    def account(self) -> Counter[str]:
        """What it says about all messages so far."""
        return account(self.read("metrics").decode())


def account(metrics: str) -> Counter[str]:
    """How many messages were received and have which outcome, and how many wait now, on all routes together."""
    names = {"received_messages_total": "received", "queue_messages": "waiting"}
    found: Counter[str] = Counter()
    for name, labels, value in re.findall(r"^ustreamer_(\w+){(.*)} (\S+)$", metrics, re.MULTILINE):
        if name in names:
            found[names[name]] += int(float(value))
        elif name == "outcomes_total" and (outcome := re.search(r'outcome="(\w+)"', labels)):
            found[outcome[1]] += int(float(value))
    return found


def lag_p99_ms(before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """The 99th percentile between two readings: the bucket of the histogram that it lies in."""
    counts = [count - before.get(bound, 0.0) for bound, count in after.items()]
    return list(after)[bisect_left(list(accumulate(counts, max)), 0.99 * counts[-1])] * 1000


class Crossing:
    """Brokers, load and one subject, which runs until the block ends. Directions: up, down, across (`DIRECTIONS`).

    ``subject`` is one of `forms.NAMES`. ``load``: further arguments of sender and receiver. ``others``: further processes of
    load, by name, with all that `load` wants to know but their place. ``changes``: keys of the streamer's configuration.
    """

    def __init__(
        self,
        subject: str,
        direction: str,
        load: Sequence[str] = (),
        others: Mapping[str, Sequence[str]] = MappingProxyType({}),
        **changes: Any,
    ) -> None:
        self.subject_name, self.direction = subject, direction
        self._changes = changes
        sender, receiver = _LOAD[direction]
        self._loads = {"sender": (*sender, *load), "receiver": (*receiver, *load), **others}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            self.place: dict[str, Any] = {
                "port": stack.enter_context(Mosquitto(max_inflight=1000)).port,
                "admin": free_port(),
            }
            if self.direction == "across":
                self.place["far_port"] = stack.enter_context(Mosquitto(max_inflight=1000)).port
            self.place["endpoints"] = []
            self.loads: dict[str, Child] = {}
            for name, (role, *arguments) in self._loads.items():
                child = self.loads[name] = Child("tests.bench.load", role, *self._place_of(name, role), *arguments)
                stack.callback(child.end)
            for child in self.loads.values():
                child.line()
            self.subject = self._start()
            stack.callback(self.subject.end)
            time.sleep(_SPREADS_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _place_of(self, name: str, role: str) -> list[str]:
        if role.startswith("zenoh"):
            self.place["endpoints"].append(f"tcp/127.0.0.1:{free_port()}")
            return ["--endpoint", self.place["endpoints"][-1]]
        is_far = name == "receiver" and self.direction == "across"
        return ["--port", str(self.place["far_port" if is_far else "port"])]

    def _start(self) -> Child:
        place = self.place
        match self.subject_name:
            case "raw" | "bridge" as module:
                ends = ["--port", str(place["port"]), "--endpoint", place["endpoints"][0]]
                child = Child(f"tests.bench.{module}", self.direction, *ends)
                child.line()
                return child
            case "mosquitto":
                from tests.bench.mosquitto import start  # noqa: PLC0415

                return start(self.directory, place["port"], place["far_port"])
            case form:
                config = configuration(self.directory, place, **{"is_traced": form != "streamer", **self._changes})
                return Streamer(form, self.directory, config)

    def warm_up(self, seconds: float = 1.0) -> None:
        """Some traffic that is not counted, and the time to forget it."""
        self.phase(int(_WARM_RATE * seconds), _WARM_RATE, may_lose=True)
        time.sleep(_FLUSHES_S)

    def phase(
        self,
        count: int,
        rate: float = 0,
        observe: Callable[[int], AbstractContextManager[object]] = nullcontext,
        may_lose: bool = False,
    ) -> Figures:
        """Send ``count`` messages, so many a second, or as fast as they go.

        While they pass, the subject is observed: ``observe`` gets its process id. Raises RuntimeError if something is lost,
        which may happen to other bridges, and before subscriptions have spread through Zenoh. It says where: a streamer that
        has received everything has what is missing, or says what became of it.
        """
        subject = self.subject if isinstance(self.subject, Streamer) else None
        before = subject.lags() if subject else {}
        before_account = subject.account() if subject else Counter()
        sender, receiver = self.loads["sender"], self.loads["receiver"]
        before_s = self.subject.cpu_s()
        with observe(self.subject.process.pid):
            receiver.tell(count=count)  # from now on it waits, and gives up after some silence
            sender.tell(count=count, rate=rate)
            result = receiver.result()
        cpu_s = self.subject.cpu_s() - before_s
        sent = sender.result()
        figures = Figures(
            result["arrived"] / max(result["seconds"], 1e-9),
            cpu_s / count * 1e6,
            result["p50_ms"],
            result["p99_ms"],
            result["arrived"] / count,
            rss_mb=self.subject.rss_mb(),
        )
        if subject:
            figures.lag_p99_ms = lag_p99_ms(before, subject.lags())
            figures.ready_s = subject.ready_s
        if figures.arrived < 1 and not may_lose and self.subject_name not in _MAY_LOSE:
            said = subject.account() - before_account if subject else Counter()
            found = "".join(f", {number} {what}" for what, number in said.items())
            links = f", {sent['links_lost']} links of the sender lost" if sent.get("links_lost") else ""
            raise RuntimeError(f"{self.subject_name} {self.direction}: {result['arrived']} of {count} arrived{found}{links}")
        return figures


def measure(
    subject: str,
    direction: str,
    count: int,
    rate: float,
    size: int,
    has_journal: bool,
    observe: Callable[[int], AbstractContextManager[object]] = nullcontext,
    **changes: Any,
) -> Figures:
    """One run of ``subject`` in ``direction``, with one phase after the subject is warm."""
    with Crossing(subject, direction, ("--size", str(size)), has_journal=has_journal, **changes) as crossing:
        crossing.warm_up()
        return crossing.phase(count, rate, observe)
