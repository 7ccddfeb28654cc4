"""The router's counters: plain integers, incremented in place. `admin.metrics` turns them into metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from streamer.routing.outcome import Outcome
from streamer.transports.base import NO_BYTES, ByteCounts, LinkFailure, LinkStatus, Received
from streamer.transports.errors import Malformed, Unwanted
from streamer.uprotocol.status import UCode

# Seconds: finely spaced in the range of a vehicle's control loops, coarsely in that of a cloud link.
LATENCY_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_INF: Final = math.inf
_UP_TO_S: Final[list[float]] = [*LATENCY_BOUNDS, _INF]  # by bucket


class Histogram:
    """Counts per bucket (the last one has no upper bound) and the sum of all values."""

    __slots__ = ("_above_s", "_bucket", "_up_to_s", "counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS) + 1)
        self.sum = 0.0
        self._bucket = 0  # that of the last value, and its bounds; mostly the next value is in it as well
        self._above_s, self._up_to_s = -_INF, LATENCY_BOUNDS[0]

    def observe(self, value_s: float) -> None:
        if not self._above_s < value_s <= self._up_to_s:
            self._find(value_s)
        self.counts[self._bucket] += 1
        self.sum += value_s

    def _find(self, value_s: float) -> None:
        bucket = self._bucket  # the one sought is mostly a neighbour
        while value_s > _UP_TO_S[bucket]:
            bucket += 1
        while bucket > 0 and value_s <= _UP_TO_S[bucket - 1]:
            bucket -= 1
        self._bucket = bucket
        self._above_s = _UP_TO_S[bucket - 1] if bucket > 0 else -_INF
        self._up_to_s = _UP_TO_S[bucket]

    def copy(self) -> "Histogram":
        """Return a copy that later values do not change."""
        copy = Histogram()
        copy.counts = self.counts.copy()
        copy.sum = self.sum
        return copy


class RouteStats:
    """One route's account. At any time: accepted = sum of outcomes + messages in its queue.

    It has all counters of a route. It begins and ends with the route, and begins anew when the route is renamed.
    """

    __slots__ = (
        "accepted",
        "dead_letters",
        "end_to_end",
        "in_daemon",
        "limited",
        "outcomes",
        "received_payload_bytes",
        "received_wire_bytes",
        "retries",
        "sent_payload_bytes",
        "sent_wire_bytes",
    )

    def __init__(self) -> None:
        self.accepted = 0
        self.received_wire_bytes = self.received_payload_bytes = 0  # of the accepted messages that arrived in this process
        self.sent_wire_bytes = self.sent_payload_bytes = 0  # of the messages that were sent, whatever became of them
        self.outcomes: dict[tuple[Outcome, UCode], int] = {}
        self.dead_letters: dict[UCode, int] = {}  # made of its messages, reported or not
        self.retries = 0
        self.limited = 0  # how often the route, or a source authority on it, had to wait for its rate
        self.in_daemon = Histogram()
        self.end_to_end = Histogram()

    def accept(self, received: Received) -> None:
        """Count an accepted message, and its bytes."""
        self.accepted += 1
        self.received_wire_bytes += received.wire_bytes
        self.received_payload_bytes += received.message.payload_bytes

    def count(self, outcome: Outcome, code: UCode = UCode.OK, number: int = 1) -> None:
        """Add ``number`` messages to an outcome."""
        key = (outcome, code)
        self.outcomes[key] = self.outcomes.get(key, 0) + number

    def count_dead_letter(self, code: UCode) -> None:
        """Count a dead letter that was made of a failure."""
        self.dead_letters[code] = self.dead_letters.get(code, 0) + 1

    @property
    def wire_bytes(self) -> ByteCounts:
        """The packets of its messages, as the networks carried them."""
        return ByteCounts(self.sent_wire_bytes, self.received_wire_bytes)

    @property
    def payload_bytes(self) -> ByteCounts:
        """The payload of its messages."""
        return ByteCounts(self.sent_payload_bytes, self.received_payload_bytes)

    @property
    def settled(self) -> int:
        """The number of messages that have an outcome."""
        return sum(self.outcomes.values())

    def copy(self) -> "RouteStats":
        """Return a copy of the account as it is now."""
        copy = RouteStats()
        copy.accepted, copy.retries, copy.limited = self.accepted, self.retries, self.limited
        copy.received_wire_bytes, copy.received_payload_bytes = self.received_wire_bytes, self.received_payload_bytes
        copy.sent_wire_bytes, copy.sent_payload_bytes = self.sent_wire_bytes, self.sent_payload_bytes
        copy.outcomes, copy.dead_letters = self.outcomes.copy(), self.dead_letters.copy()
        copy.in_daemon, copy.end_to_end = self.in_daemon.copy(), self.end_to_end.copy()
        return copy


@dataclass(frozen=True, slots=True)
class RouteAccount:
    """One route's counters and queue, for metrics and reports."""

    name: str
    source: str
    target: str
    stats: RouteStats
    queued: int
    bytes: int
    oldest_age_s: float
    unconfirmed: int = 0
    """Part of ``queued``: sent, and not confirmed by the destination yet."""
    paused_lanes: int | None = None
    """Flows that are paused; None for a route whose flows cannot be paused."""
    paused_messages: int = 0

    @property
    def has_moved(self) -> bool:
        """Whether anything was ever accepted."""
        return bool(self.stats.accepted or self.queued)


class EndpointStats:
    """One endpoint's account of packets. At any time: packets = received + sum of malformed + sum of unwanted.

    ``replaced_wire_bytes``: what transports of the endpoint have carried that a reload has replaced.
    """

    __slots__ = (
        "malformed",
        "packets",
        "received",
        "received_payload_bytes",
        "reconnects",
        "replaced_wire_bytes",
        "unwanted",
    )

    def __init__(self) -> None:
        self.received_payload_bytes = 0  # of the messages in `received`
        self.replaced_wire_bytes = NO_BYTES
        self.packets = 0
        self.received = 0
        self.reconnects = 0
        self.malformed: dict[str, int] = {}
        self.unwanted: dict[str, int] = {}

    def count_malformed(self, reason: Malformed, number: int = 1) -> None:
        """Count ``number`` packets that were not valid messages."""
        self.malformed[reason.value] = self.malformed.get(reason.value, 0) + number

    def count_unwanted(self, reason: Unwanted, number: int = 1) -> None:
        """Count ``number`` packets that no listener took."""
        self.unwanted[reason.value] = self.unwanted.get(reason.value, 0) + number


@dataclass(frozen=True, slots=True)
class EndpointAccount:
    """One endpoint's counters, backlog and link."""

    name: str
    transport: str
    stats: EndpointStats
    backlog: int
    in_flight: int
    link: LinkStatus
    problems: Sequence[str]
    """The problems that keep the endpoint from working although its link is up."""
    figures: Mapping[str, float]
    """Measurements of its transport."""
    errors: Mapping[LinkFailure, int]
    """How often its link failed, by reason."""
    unconfirmed_bytes: int = 0
    unconfirmed_max_bytes: int | None = None
    """The bytes of unconfirmed messages, and the bound on them. None: the network confirms."""
    payload_bytes: ByteCounts = NO_BYTES
    """The payload of the messages that were handed over, or were sent, whatever became of them."""
    wire_bytes: ByteCounts | None = None
    """The bytes that the endpoint has sent and received on its network. None: its transport does not know."""


@dataclass(frozen=True, slots=True)
class RouterAccount:
    """The router's counters that are in no account of a route or endpoint."""

    remembered_ids: int
    interest_topics: int
    refused_topics: int
    pause_rules: int
    spilled: int
    redriven: int
    dead_letters: int
    """Dead letters that were made since the start."""
    reports_suppressed: Mapping[str, int] = field(default_factory=dict)
    """Failures that were not reported because there were too many, by the endpoint where they came in."""
    token_problem: str | None = None
    """Why the token verifier may not know which tokens are valid; empty if nothing is wrong, None without a verifier."""
