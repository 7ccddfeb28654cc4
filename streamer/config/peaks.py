"""How busy routes and endpoints were at most, to be set beside the bounds of a configuration. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

MINUTE_S, HOUR_S = 60, 3600
WEEK_HOURS = 7 * 24

_MOST_NAMES = 1000
"""Routes and endpoints that are remembered. A configuration has fewer, but files of others may have any number."""
_NO_ROUTE = "none"


class Place(NamedTuple):
    """Where messages were counted: a route and its endpoints. An empty name means that there is none."""

    route: str
    ingress: str
    egress: str


@dataclass(slots=True)
class Peak:
    """The busiest moments of one route, or of one endpoint in one direction, from the arrival times of its messages.

    Bytes are those that queues and rates count: the payload, and 600 bytes for each message. ``at_s``: when the busiest hour
    began, Unix s, by bytes. ``largest_bytes``: the largest payload. ``confirm_s``: how long a confirmation took on average,
    counted from when the message was sent; None: nothing was delivered.
    """

    minute_messages_per_s: float = 0.0
    minute_bytes_per_s: float = 0.0
    hour_messages_per_s: float = 0.0
    hour_bytes_per_s: float = 0.0
    at_s: int = 0
    messages: int = 0
    largest_bytes: int = 0
    longest_wait_s: float = 0.0
    delivered: int = 0
    confirmed_after_s: float = 0.0

    @property
    def confirm_s(self) -> float | None:
        return self.confirmed_after_s / self.delivered if self.delivered else None

    def add(self, span_s: int, at_s: int, messages: int, size: int) -> None:
        if span_s == HOUR_S:
            self.messages += messages
            self.hour_messages_per_s = max(self.hour_messages_per_s, messages / span_s)
            if size / span_s > self.hour_bytes_per_s:
                self.hour_bytes_per_s, self.at_s = size / span_s, at_s
        else:
            self.minute_messages_per_s = max(self.minute_messages_per_s, messages / span_s)
            self.minute_bytes_per_s = max(self.minute_bytes_per_s, size / span_s)


class Peaks:
    """The peaks of routes, and of endpoints by direction. A message with two destinations counts twice where it came in.

    ``hours``: of the period.
    """

    def __init__(self, hours: float = WEEK_HOURS) -> None:
        self._hours = hours
        self.routes: dict[str, Peak] = {}
        self.ingresses: dict[str, Peak] = {}
        self.egresses: dict[str, Peak] = {}

    @property
    def whose(self) -> str:
        """The period, in words that stand before its busiest hour."""
        if self._hours == WEEK_HOURS:
            return "last week's"
        if self._hours % 24 == 0:
            return "the last day's" if self._hours == 24 else f"the last {self._hours / 24:g} days'"
        return f"the last {self._hours:.3g} hours'"

    def add(self, span_s: int, at_s: int, counts: Mapping[Place, tuple[int, int]]) -> None:
        """Add a minute or an hour that began at ``at_s``: the messages and bytes of every place in it."""
        for names, position in ((self.routes, 0), (self.ingresses, 1), (self.egresses, 2)):
            sums: dict[str, tuple[int, int]] = {}
            for place, (messages, size) in counts.items():
                so_far = sums.get(place[position], (0, 0))
                sums[place[position]] = so_far[0] + messages, so_far[1] + size
            for name, (messages, size) in sums.items():
                if (peak := _of(names, name)) is not None:
                    peak.add(span_s, at_s, messages, size)

    def add_extremes(
        self, place: Place, largest_bytes: int, wait_s: float, delivered: int, confirmed_after_s: float
    ) -> None:
        """Add the largest payload and the longest wait of messages, and the sum of the times until they were confirmed."""
        for names, position in ((self.routes, 0), (self.ingresses, 1), (self.egresses, 2)):
            if (peak := _of(names, place[position])) is not None:
                peak.largest_bytes = max(peak.largest_bytes, largest_bytes)
                peak.longest_wait_s = max(peak.longest_wait_s, wait_s)
                peak.delivered += delivered
                peak.confirmed_after_s += confirmed_after_s


def _of(names: dict[str, Peak], name: str) -> Peak | None:
    if name in names:
        return names[name]
    if name in ("", _NO_ROUTE) or len(names) >= _MOST_NAMES:
        return None
    return names.setdefault(name, Peak())
