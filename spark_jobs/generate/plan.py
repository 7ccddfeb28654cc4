"""What the generator plays: a chain of streamers, the flows through it, a timeline, and planted faults.

    cloud ── gateway.cloud ── gateway.edge ── gateway.veh1 ── vehicle

Nothing here is random, and nothing is written. `simulate` plays it.
"""

import datetime as dt
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US

DAY_CURVE = np.array([3, 2, 2, 2, 2, 3, 5, 8, 9, 8, 7, 7, 7, 7, 7, 8, 9, 10, 9, 8, 6, 5, 4, 3], dtype=np.float64)
"""Relative traffic of each hour in UTC."""

PUBLISH, NOTIFICATION, REQUEST, RESPONSE = "publish", "notification", "request", "response"
DEAD_LETTER_RESOURCE = 0x8001


class Uri(NamedTuple):
    authority: str
    ue_id: int
    version: int
    resource_id: int


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """Messages that take the same way. ``path``: the numbers of the streamers, in order."""

    source: Uri
    sink: Uri | None
    kind: str
    path: tuple[int, ...]
    route: str
    weight: float
    priority: str = "CS1"
    ttl_ms: int | None = None
    payload_bytes: int = 200
    answer: int = -1
    """For Requests: the number of the flow of the Responses."""
    upward: bool = True
    """Towards the cloud, which is next to streamer 0."""
    entry: str | None = None
    """The endpoint of the first streamer through which it comes in, if that is not one of the chain."""
    exit: str | None = None
    """The endpoint of the last streamer through which it leaves, likewise."""
    end: str = "delivered"
    """The outcome at the last streamer if nothing goes wrong."""


@dataclass(frozen=True, slots=True)
class Surge:
    """One unusual hour of one route."""

    day: int
    hour: int
    route: str
    factor: float = 5.0
    rejected_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Faults:
    """The planted faults, and how often over all days. Days are numbered from the first of the timeline."""

    lost: int = 0
    duplicate: int = 0
    delivered_twice: int = 0
    expired: int = 0
    dead_lettered: int = 0
    rejected: int = 0
    untraced: int = 0
    over_midnight: int = 0
    skew_ms: dict[str, int] = field(default_factory=dict)
    """By streamer: its clock minus the true time."""
    outages: tuple[tuple[str, int, int], ...] = ()
    """Streamer, day, hour of its own clock: it does not run in that hour, and messages to it wait where they are."""
    restarts: tuple[tuple[str, int, int], ...] = ()
    """Streamer, day, true minute of the day: a new run starts immediately."""
    surges: tuple[Surge, ...] = ()
    held: tuple[tuple[str, int, int], ...] = ()
    """Streamer, day, hour: these files are held back until `write.release`."""
    not_before: int = 0
    """The first day on which counted faults are planted."""


@dataclass(frozen=True, slots=True)
class Plan:
    first: dt.date
    records_per_day: tuple[int, ...]
    streamers: tuple[str, ...]
    seed: int
    faults: Faults

    @property
    def start_us(self) -> int:
        return int(dt.datetime.combine(self.first, dt.time(), dt.UTC).timestamp()) * 1_000_000

    @property
    def end_us(self) -> int:
        return self.start_us + len(self.records_per_day) * DAY_US


def flows(streamers: int) -> list[PlannedFlow]:
    """The flows through a chain of streamers: up and down, with and without a sink, some through a part of it only."""
    all_up, all_down = tuple(reversed(range(streamers))), tuple(range(streamers))
    cloud, vehicle, edge = "cloud.fleet", "veh1", "edge.site"
    made: list[PlannedFlow] = []

    def publish(
        authority: str, path: tuple[int, ...], topics: int, weight: float, route: str, upward: bool, entry: str | None = None
    ) -> None:
        for topic in range(topics):
            source = Uri(authority, 0x0001_2000 + topic % 5, 1, 0x8000 + topic)
            share, ttl_ms, size = weight / (1 + topic % 4) / topics, (None, 30_000, 10_000)[topic % 3], 80 + 60 * (topic % 7)
            about = (source, None, PUBLISH, path, route, share, f"CS{topic % 3}", ttl_ms, size)
            made.append(PlannedFlow(*about, upward=upward, entry=entry))

    def notify(source: str, sink: str, path: tuple[int, ...], weight: float, upward: bool) -> None:
        for number in range(4):
            uris = Uri(source, 0x0003_4000 + number, 1, 0x8100 + number), Uri(sink, 0x0002_3000 + number, 1, 0)
            route = "to-cloud" if upward else "to-vehicle"
            made.append(PlannedFlow(*uris, NOTIFICATION, path, route, weight / 4, "CS2", None, 150, upward=upward))

    def call(source: str, sink: str, path: tuple[int, ...], weight: float, upward: bool, entry: str | None = None) -> None:
        there, back = ("to-cloud", "to-vehicle") if upward else ("to-vehicle", "to-cloud")
        for number in range(4):
            caller, method = Uri(source, 0x0002_3000 + number, 1, 0), Uri(sink, 0x0003_4000 + number, 1, 1 + number)
            ttl_ms, share, answer = 5_000 * (number + 1), weight / 4, len(made) + 1
            request = PlannedFlow(caller, method, REQUEST, path, there, share, "CS4", ttl_ms, 120, answer, upward, entry)
            response = PlannedFlow(
                method, caller, RESPONSE, path[::-1], back, 0.0, "CS4", ttl_ms, 260, upward=not upward, exit=entry
            )
            made.extend((request, response))

    publish(vehicle, all_up, 12, 60, "telemetry", True)
    publish(cloud, all_down, 4, 6, "campaigns", False)
    unwanted = Uri(vehicle, 0x0001_2009, 1, 0x8200)
    made.append(PlannedFlow(unwanted, None, PUBLISH, (streamers - 1,), "none", 1.0, end="unwanted"))
    notify(vehicle, cloud, all_up, 6, True)
    notify(cloud, vehicle, all_down, 4, False)
    call(cloud, vehicle, all_down, 7, False)
    call(vehicle, cloud, all_up, 3, True)
    if streamers > 2:
        publish(edge, tuple(reversed(range(streamers - 1))), 4, 5, "telemetry", True, "site")
        call(edge, vehicle, tuple(range(1, streamers)), 2, False, "site")
    return made


def endpoints(streamer: int, streamers: int) -> list[tuple[str, str]]:
    """Name and transport of a streamer's endpoints: towards the cloud, towards the vehicle, and to its own site."""
    vehicle = ("vehicle", "zenoh") if streamer == streamers - 1 else ("downlink", "mqtt5")
    return [("cloud" if streamer == 0 else "uplink", "mqtt5"), vehicle, ("site", "zenoh")]


def times(plan: Plan, messages: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Creation times of so many messages per day: µs since 1970, ascending."""
    share = DAY_CURVE / DAY_CURVE.sum()
    hours = np.concatenate([rng.multinomial(count, share) for count in messages])
    made = np.repeat(np.arange(len(hours), dtype=np.int64) * HOUR_US, hours)
    made += rng.integers(0, HOUR_US, len(made))
    made.sort()
    return made + plan.start_us
