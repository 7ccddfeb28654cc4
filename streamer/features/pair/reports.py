"""Compare the reports that the two streamers send each other: age, answers, clocks, nodes.

Pure: time is passed in. The law of this file:
- A report older than `STALE_S` counts as unknown.
- The link carries both ways while the peer names a report of this streamer that was sent less than `STALE_S` and the round
  trip ago. A peer that names none is of an earlier version: then its report is enough.
- A difference between the clocks is known up to half of the time that the report and its answer have taken.
- Nodes are compared that both report: those with a link to an endpoint, and the broker of one. What is behind a router is
  not among them. A node that is new to the active one has `GRACE_S` to connect to the standby, too.
- A program may have a session of its own for each of the two. So nodes that the standby has never had are not lacking while
  it has as many that the active one has never had: they are *separate*. One that both have had is lacking once it is lost.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from streamer.uprotocol.proto import pair_v1_pb2 as pb

STALE_S = 3.0
"""Reports come five times a second. A source waits longer than this for a standby that does not write."""

MOST_APART_S = 5.0
"""By how much the wall clocks may differ."""

GRACE_S = 5.0
"""A program connects to both, and tries again after up to four seconds."""

_MOST_NAMED = 5
_LONGEST_ROUND_TRIP_S = 5.0  # as of the lease: beyond that, the active one is alone
_KEPT = 64  # sent ones whose answer may still come


class ClockDifference(NamedTuple):
    """By how much the peer's wall clock is ahead of the one here, give or take ``error_s``."""

    ahead_s: float
    error_s: float

    @property
    def text(self) -> str:
        """Return that the clocks are too far apart, as a text; empty if they are not, as far as it is known."""
        if abs(self.ahead_s) - self.error_s <= MOST_APART_S:
            return ""
        way = "ahead of" if self.ahead_s > 0 else "behind"
        apart = f"the other one's clock is about {abs(self.ahead_s):.0f} s {way} this one's"
        return f"{apart}: after a take-over, messages would expire too early or too late"


BROKER = "the broker"
"""Stands for the broker of an endpoint among the nodes."""


class Lacking:
    """The foreign nodes and brokers that the active streamer is connected to, and the standby is not.

    ``separate``: how many nodes are connected to the active streamer only, and as many others to the standby only.
    """

    def __init__(self) -> None:
        self.separate = 0
        self._since_s: dict[tuple[str, str], float] | None = None
        self._lacks: list[tuple[str, str]] = []
        self._common: set[tuple[str, str]] = set()  # both have had them, and one of the two still has

    def __len__(self) -> int:
        return len(self._lacks)

    def forget(self) -> None:
        """Forget the nodes of both, because those of one are not known any more."""
        self._since_s, self._lacks, self.separate = None, [], 0

    def look(self, active: Mapping[str, Collection[str]], standby: Mapping[str, Collection[str]], now_s: float) -> None:
        """Compare the nodes of both, by endpoint. Those of an endpoint that one of them does not name are unknown."""
        before = self._since_s
        nodes = {(endpoint, node) for endpoint, nodes in active.items() if endpoint in standby for node in nodes}
        there = {(endpoint, node) for endpoint, nodes in standby.items() for node in nodes}
        new_s = -math.inf if before is None else now_s  # what it has at first it may have had for long
        self._since_s = {each: new_s if before is None else before.get(each, new_s) for each in nodes}
        self._common = (self._common & (nodes | there)) | (nodes & there)
        lacks = {each for each in nodes - there if now_s - self._since_s[each] >= GRACE_S}
        separate = set()
        for endpoint in active.keys() & standby.keys():
            only_here = {each for each in lacks - self._common if each[0] == endpoint}
            only_there = {each for each in there - nodes - self._common if each[0] == endpoint}
            if len(only_there) >= len(only_here):
                separate |= only_here
        self.separate = len(separate)
        self._lacks = sorted(lacks - separate)

    @property
    def text(self) -> str:
        """Return the nodes that the standby lacks, as a text; empty if none is known.

        This rests on the links of both, on the standby's attempts to connect to brokers, and on the last report.
        """
        if not self._lacks:
            return ""
        named = ", ".join(f"{node} at endpoint {endpoint}" for endpoint, node in self._lacks[:_MOST_NAMED])
        more = f" and {len(self._lacks) - _MOST_NAMED} more" if len(self._lacks) > _MOST_NAMED else ""
        return f"the standby has no link to nodes that the active one is connected to: {named}{more}"


def nodes_of(report: pb.Report) -> dict[str, Collection[str]]:
    """Return the nodes that a report names, by endpoint."""
    return {nodes.endpoint: set(nodes.ids) for nodes in report.nodes if nodes.count == len(nodes.ids)}


class Reports:
    """The reports of one link, both ways. ``latest``: the peer's last report; ``clocks``: None: not known yet."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all reports, because the link is gone, or another link has begun."""
        self.latest = pb.Report()
        self.clocks: ClockDifference | None = None
        self._number = 0
        self._sent: dict[int, tuple[float, int]] = {}  # when, by both clocks
        self._heard_s = self._answered_s = -math.inf

    def numbered(self, report: pb.Report, now_s: float, wall_ms: int) -> pb.Report:
        """Return a report, ready to be sent now."""
        self._number += 1
        self._sent[self._number] = now_s, wall_ms
        if len(self._sent) > _KEPT:
            del self._sent[next(iter(self._sent))]
        report.number, report.heard_number, report.wall_ms = self._number, self.latest.number, wall_ms
        return report

    def heard(self, report: pb.Report, now_s: float) -> None:
        """Take a report of the peer."""
        self.latest = report
        self._heard_s = now_s
        sent = self._sent.get(report.heard_number)
        if sent is not None and sent[0] > self._answered_s:
            sent_s, sent_ms = sent
            self._answered_s = sent_s
            error_s = (now_s - sent_s) / 2  # it was sent some time between the two
            self.clocks = ClockDifference((report.wall_ms - sent_ms) / 1000 - error_s, error_s)
        elif not report.number:
            self._answered_s = now_s

    def expire(self) -> None:
        """Forget the peer's last report, because something has changed there since."""
        self.latest = pb.Report(number=self.latest.number)
        self._heard_s = -math.inf

    def is_known(self, now_s: float) -> bool:
        """Return whether `latest` is recent enough to be true still."""
        return now_s - self._heard_s < STALE_S

    def is_answered(self, now_s: float) -> bool:
        """Return whether the link carries both ways."""
        round_trip_s = 0.0 if self.clocks is None else min(2 * self.clocks.error_s, _LONGEST_ROUND_TRIP_S)
        return now_s - self._answered_s < STALE_S + round_trip_s
