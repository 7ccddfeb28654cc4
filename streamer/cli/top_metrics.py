"""Parses `/metrics` for `streamer top`: samples of routes and endpoints, and figures from several samples."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from prometheus_client.parser import text_string_to_metric_families

RouteKey = tuple[str, str, str]
"""The names of a route, its ingress and its egress."""

_OWN = "core"  # the endpoint of the streamer's own services
_FAILURES = ("expired", "rejected", "dead_lettered")
_LATENCIES = {
    "ustreamer_in_daemon_latency_seconds_bucket": "in_daemon",
    "ustreamer_end_to_end_latency_seconds_bucket": "end_to_end",
}
_OF_ROUTES = {
    "ustreamer_accepted_messages_total": "accepted",
    "ustreamer_queue_messages": "queued",
    "ustreamer_queue_oldest_age_seconds": "oldest_s",
    "ustreamer_paused_messages": "paused",
}
_OF_ENDPOINTS = {
    "ustreamer_endpoint_up": "up",
    "ustreamer_received_messages_total": "received",
    "ustreamer_in_flight_messages": "in_flight",
    "ustreamer_backlog_messages": "backlog",
    "ustreamer_endpoint_problems": "problems",
    "ustreamer_endpoint_state_since_timestamp_seconds": "since_s",
}
_OF_PAIR = {f"ustreamer_pair_{name}": name for name in ("active", "epoch", "link_up", "protected", "differs")}

_BYTES = ("ustreamer_route_wire_bytes_total", "ustreamer_endpoint_wire_bytes_total")
"""Read by direction, ``sent`` and ``received``."""

Buckets = dict[float, float]
"""Upper bound → observations up to it."""


@dataclass(slots=True)
class RouteSample:
    """One route's counters and gauges."""

    accepted: float = 0
    delivered: float = 0
    failed: float = 0
    queued: float = 0
    oldest_s: float = 0
    paused: float = 0
    sent_bytes: float = 0
    received_bytes: float = 0
    in_daemon: Buckets = field(default_factory=dict)
    end_to_end: Buckets = field(default_factory=dict)


@dataclass(slots=True)
class EndpointSample:
    """One endpoint's counters and gauges."""

    transport: str
    up: float = 0
    state: str = ""
    """The state from the administration API; empty if that does not answer."""
    why: str = ""
    """Since when and why the link is not up, from there as well."""
    connected_to: tuple[str, ...] = ()
    """The other ends of its links, from there as well."""
    since_s: float | None = None
    """Since when it is up, or not up, in Unix seconds."""
    received: float = 0
    in_flight: float = 0
    backlog: float = 0
    problems: float = 0
    sent_bytes: float = 0
    received_bytes: float = 0

    def shown(self) -> str:
        """Return the endpoint's state in a word or two."""
        return self.state or ("up" if self.up else "not up")  # the metric has no reason


@dataclass(slots=True)
class PairSample:
    """What one of a pair says of it. ``problem``: why a take-over would fail or lose something, from the API; else empty."""

    active: float = 0
    epoch: float = 0
    link_up: float = 0
    protected: float = 0
    differs: float = 0
    problem: str = ""

    @property
    def role(self) -> str:
        """Return the role in a word."""
        return "active" if self.active else "standby"

    def shown(self) -> str:
        """Return it in one line."""
        link = "" if self.link_up else ", no link to the other one"
        alike = ", the configurations differ" if self.differs else ""
        state = "protected" if self.protected else "not protected"
        return f"pair: {self.role}, epoch {self.epoch:.0f}, {state}{link}{alike}"


@dataclass(slots=True)
class Sample:
    """The values from `/metrics` that are shown, read at ``at_s`` on the monotonic clock."""

    at_s: float
    routes: dict[RouteKey, RouteSample] = field(default_factory=dict)
    endpoints: dict[str, EndpointSample] = field(default_factory=dict)
    version: str = ""
    form: str = ""
    started_s: float | None = None
    """Start of the process in Unix seconds."""
    cpu_s: float = 0.0
    memory_bytes: float = 0.0
    dead_letters: float = 0.0
    journal_fails: bool = False
    pair: PairSample | None = None
    """None: it works alone."""

    @property
    def is_streamer(self) -> bool:
        """Whether the page was a streamer's."""
        return bool(self.endpoints)


def read(text: str, at_s: float) -> Sample:
    """Parse `/metrics`. Raises ValueError if the text is not in the Prometheus format."""
    sample = Sample(at_s)
    for family in text_string_to_metric_families(text):
        for name, labels, value in ((each.name, each.labels, each.value) for each in family.samples):
            if {"route", "ingress", "egress"} <= labels.keys():
                _read_route(sample, name, labels, value)
            elif {"endpoint", "transport"} <= labels.keys() and (name in _OF_ENDPOINTS or name in _BYTES):
                endpoint = sample.endpoints.setdefault(labels["endpoint"], EndpointSample(labels["transport"]))
                if name in _BYTES:
                    _read_bytes(endpoint, labels, value)
                else:
                    setattr(endpoint, _OF_ENDPOINTS[name], value)
            elif name == "ustreamer_build_info":
                sample.version, sample.form = labels.get("version", ""), labels.get("form", "")
            elif name == "ustreamer_dead_letters_total":
                sample.dead_letters += value
            elif name == "ustreamer_journal_up":
                sample.journal_fails = not value
            elif name in _OF_PAIR:
                sample.pair = sample.pair or PairSample()
                setattr(sample.pair, _OF_PAIR[name], value)
            elif name == "process_start_time_seconds":
                sample.started_s = value if isfinite(value) else None
            elif name == "process_cpu_seconds_total":
                sample.cpu_s = value
            elif name == "process_resident_memory_bytes":
                sample.memory_bytes = value
    return sample


def _read_route(sample: Sample, name: str, labels: Mapping[str, str], value: float) -> None:
    route = sample.routes.setdefault((labels["route"], labels["ingress"], labels["egress"]), RouteSample())
    if name in _OF_ROUTES:
        setattr(route, _OF_ROUTES[name], value)
    elif name == "ustreamer_outcomes_total":
        outcome = labels.get("outcome")
        route.delivered += value if outcome == "delivered" else 0
        route.failed += value if outcome in _FAILURES else 0
    elif name in _BYTES:
        _read_bytes(route, labels, value)
    elif name in _LATENCIES:
        getattr(route, _LATENCIES[name])[float(labels.get("le", "nan"))] = value


def _read_bytes(sample: RouteSample | EndpointSample, labels: Mapping[str, str], value: float) -> None:
    match labels.get("direction"):
        case "sent":
            sample.sent_bytes = value
        case "received":
            sample.received_bytes = value


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """The figures of a route. Rates per second. Latencies in seconds: of the last seconds if a message was delivered in
    them, else since the start; None if none was ever delivered.
    """

    name: str
    ingress: str
    egress: str
    accepted_per_s: float
    delivered_per_s: float
    failed_per_s: float
    queued: float
    oldest_s: float
    paused: float
    in_daemon_s: tuple[float | None, float | None]
    end_to_end_s: tuple[float | None, float | None]
    received_bytes_per_s: float = 0
    sent_bytes_per_s: float = 0


@dataclass(frozen=True, slots=True)
class EndpointFigures:
    """The figures of an endpoint. Bytes are those on the wire; 0 if they are not known."""

    name: str
    transport: str
    state: str
    received_per_s: float
    in_flight: float
    backlog: float
    problems: float
    received_bytes_per_s: float = 0
    sent_bytes_per_s: float = 0
    state_age_s: float | None = None
    """For how long it has been up, or not up."""
    why: str = ""
    """Since when and why it is not up; empty if it is, or if that is not known."""
    connected_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingFlow:
    """A flow in which messages wait, from the administration API."""

    route: str
    source: str
    sink: str
    waiting: int
    oldest_s: float | None
    held: tuple[str, ...]


def route_figures(samples: Sequence[Sample]) -> Iterator[RouteFigures]:
    """Yield the figures of every route between two networks, and of the streamer's own routes with messages.

    ``samples``: those of the last seconds, oldest first; the latest two give the rates.
    """
    now = samples[-1]
    before = samples[-2] if len(samples) > 1 else now
    for key, route in now.routes.items():
        name, ingress, egress = key
        is_own = _OWN in (ingress, egress) or not (ingress and egress)
        if is_own and not (route.accepted or route.queued):
            continue
        last, first = before.routes.get(key, RouteSample()), samples[0].routes.get(key, RouteSample())
        yield RouteFigures(
            name,
            ingress,
            egress,
            _rate(last.accepted, route.accepted, before, now),
            _rate(last.delivered, route.delivered, before, now),
            _rate(last.failed, route.failed, before, now),
            route.queued,
            route.oldest_s,
            route.paused,
            _latencies(first.in_daemon, route.in_daemon),
            _latencies(first.end_to_end, route.end_to_end),
            _rate(last.received_bytes, route.received_bytes, before, now),
            _rate(last.sent_bytes, route.sent_bytes, before, now),
        )


def endpoint_figures(samples: Sequence[Sample]) -> Iterator[EndpointFigures]:
    """Yield the figures of every endpoint."""
    now = samples[-1]
    before = samples[-2] if len(samples) > 1 else now
    for name, endpoint in now.endpoints.items():
        last = before.endpoints.get(name) or EndpointSample(endpoint.transport)
        yield EndpointFigures(
            name,
            endpoint.transport,
            endpoint.shown(),
            _rate(last.received, endpoint.received, before, now),
            endpoint.in_flight,
            endpoint.backlog,
            endpoint.problems,
            _rate(last.received_bytes, endpoint.received_bytes, before, now),
            _rate(last.sent_bytes, endpoint.sent_bytes, before, now),
            None if endpoint.since_s is None else max(0.0, time.time() - endpoint.since_s),
            endpoint.why,
            endpoint.connected_to,
        )


def cpu_share(samples: Sequence[Sample]) -> float:
    """Return the share of a processor that the daemon uses."""
    return 0.0 if len(samples) < 2 else _rate(samples[-2].cpu_s, samples[-1].cpu_s, samples[-2], samples[-1])


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return the value below which this share of the observations lies, interpolated linearly within a bucket.

    None: no observations; infinite: above the last bound.
    """
    total = buckets.get(inf, 0)
    if total <= 0:
        return None
    wanted = share * total
    low = below = 0.0
    for bound, count in sorted(buckets.items()):
        if count >= wanted:
            return bound if bound == inf or count <= below else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return inf


def _rate(before: float, now: float, then: Sample, current: Sample) -> float:
    """Return the rate of a counter per second. The counter may have been reset by a restart."""
    span_s = current.at_s - then.at_s
    grown = now - before if now >= before else now
    return grown / span_s if span_s > 0 else 0.0


def _latencies(before: Buckets, now: Buckets) -> tuple[float | None, float | None]:
    recent = {bound: count - before.get(bound, 0) for bound, count in now.items()}
    if min(recent.values(), default=0) < 0 or not recent.get(inf):
        recent = now
    return quantile(recent, 0.5), quantile(recent, 0.99)
