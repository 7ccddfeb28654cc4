"""Reads what the daemon says of itself: each route's account, each endpoint's state, and its role in a pair."""

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT = aiohttp.ClientTimeout(total=2)


@dataclass(slots=True)
class Books:
    """The accepted messages of one route, and their outcomes. Route `none`: messages without a route."""

    route: str
    accepted: int = 0
    queued: int = 0
    oldest_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def balance(self) -> bool:
        """Whether the accounting identity holds: in = sum of outcomes + queued."""
        return self.accepted == sum(self.outcomes.values()) + self.queued


@dataclass(slots=True)
class EndpointState:
    """The state of one endpoint."""

    name: str
    transport: str
    is_up: bool = False
    received: int = 0
    in_flight: int = 0


class PairRole(NamedTuple):
    """The part of one streamer in its pair. ``problem``: why the standby could not take over now; empty: it could."""

    is_active: bool
    epoch: int
    problem: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The daemon's metrics at one moment. ``role``: None if it works alone."""

    books: tuple[Books, ...] = ()
    endpoints: tuple[EndpointState, ...] = ()
    role: PairRole | None = None

    @property
    def is_working(self) -> bool:
        """Whether the streamer carries messages, alone or as the active streamer of a pair."""
        return self.role is None or self.role.is_active

    def is_up(self, endpoint: str) -> bool:
        """Whether messages can be sent through an endpoint."""
        return any(each.name == endpoint and each.is_up for each in self.endpoints)

    @property
    def queued(self) -> int:
        """Return the number of messages without an outcome, on all routes."""
        return sum(books.queued for books in self.books)


def read(text: str) -> Snapshot:
    """Parse `/metrics`."""
    books: dict[tuple[str, str, str], Books] = {}
    endpoints: dict[str, EndpointState] = {}
    outcomes: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels, value = sample.labels, sample.value
            if {"route", "ingress", "egress"} <= labels.keys():
                key = (labels["route"], labels["ingress"], labels["egress"])
                name = f"none (from {key[1]})" if key[0] == "none" else key[0]
                match sample.name:
                    case "ustreamer_accepted_messages_total":
                        books.setdefault(key, Books(name)).accepted = int(value)
                    case "ustreamer_queue_messages":
                        books.setdefault(key, Books(name)).queued = int(value)
                    case "ustreamer_queue_oldest_age_seconds":
                        books.setdefault(key, Books(name)).oldest_s = value
                    case "ustreamer_outcomes_total":
                        outcomes[key][labels["outcome"]] += int(value)
            elif {"endpoint", "transport"} <= labels.keys():
                endpoint = endpoints.setdefault(labels["endpoint"], EndpointState(labels["endpoint"], labels["transport"]))
                match sample.name:
                    case "ustreamer_endpoint_up":
                        endpoint.is_up = bool(value)
                    case "ustreamer_received_messages_total":
                        endpoint.received = int(value)
                    case "ustreamer_in_flight_messages":
                        endpoint.in_flight = int(value)
    for key, counts in outcomes.items():
        books.setdefault(key, Books(key[0])).outcomes = dict(counts)
    return Snapshot(tuple(books.values()), tuple(endpoints.values()))


async def fetch(session: aiohttp.ClientSession, address: str, is_paired: bool) -> Snapshot | None:
    """Read the daemon at ``address``; None if there is no answer."""
    try:
        snapshot = read(await _get(session, f"{address}/metrics"))
        if not is_paired:
            return snapshot
        pair = json.loads(await _get(session, f"{address}/api/v1/pair"))
    except (TimeoutError, aiohttp.ClientError):
        return None
    return replace(snapshot, role=PairRole(pair["role"] == "active", pair["epoch"], pair["problem"]))


async def _get(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, timeout=_TIMEOUT, raise_for_status=True) as response:
        return await response.text()
