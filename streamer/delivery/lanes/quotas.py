"""How much of a route each source authority may use: its quota of the queue, and its rate.

- A *source group* is all messages of one source authority on one route. Groups are served round-robin (`ReadyLanes`), so
  that nobody gains by having many flows.
- *Unlisted authorities* are those that the route's source endpoint does not list by name, where it lists others. Together
  they are one group, inside which they are served round-robin, so that nobody gains by inventing authorities, as long as the
  honest ones are listed. Their quota (``queue.strangers``) leaves the last part of the queue to the others.

No event loop, no clock, no logger in here.
"""

from collections import deque
from collections.abc import Container
from typing import Any

from streamer.config.models import QueuePolicy
from streamer.config.types import RateConfig
from streamer.delivery.stats import RouteStats
from streamer.rate import ByKey, Pace

# Source authorities with a rate of their own, per route. Further ones have one rate together.
_MAX_PACES = 4096
# The default quota of an authority with a rate: messages that wait for the rate must not fill the queue for others.
_RATED_QUOTA = 0.5


class SourceGroup:
    """The lanes of one source authority in one queue; with ``is_parent``, the groups of all unlisted authorities there.

    ``ready`` has the members that wait to be served, lanes or groups, by priority class; ``listed_classes`` has a bit for
    each class in whose list this group is itself; while it is ``parked``, its rate lets it send nothing. `ReadyLanes` sets
    these three. ``lanes`` counts its lanes; ``messages`` and ``bytes`` count what it has in the queue, if it has a quota.
    """

    __slots__ = (
        "authority",
        "bytes",
        "is_parent",
        "lanes",
        "listed_classes",
        "messages",
        "parent",
        "parked",
        "quotas",
        "ready",
    )

    def __init__(
        self, quotas: "Quotas", authority: str, parent: "SourceGroup | None" = None, is_parent: bool = False
    ) -> None:
        self.quotas = quotas
        self.authority = authority
        self.parent = parent
        self.is_parent = is_parent
        self.ready: dict[int, deque[Any]] = {}
        self.listed_classes = 0
        self.parked = False
        self.lanes = 0
        self.messages = 0
        self.bytes = 0

    def clear(self) -> None:
        """Remove the group from all lists of `ReadyLanes`."""
        self.ready.clear()
        self.listed_classes = 0
        self.parked = False

    def add(self, messages: int, size: int) -> None:
        """Count messages and bytes that enter the queue; negative numbers count those that leave it."""
        self.messages += messages
        self.bytes = self.bytes + size if self.messages else 0


class Quotas:
    """The source groups of one queue. ``named``: the listed authorities; None: there are no unlisted ones.

    ``counts_usage``: groups count what they have in the queue. ``has_quotas``, ``has_rates``: there are any.
    """

    def __init__(self, policy: QueuePolicy, stats: RouteStats, named: Container[str] | None) -> None:
        self.stats = stats
        self.groups: dict[str, SourceGroup] = {}
        self._unlisted = SourceGroup(self, "", is_parent=True)
        self.use(policy, named)

    def use(self, policy: QueuePolicy, named: Container[str] | None) -> None:
        """Use other bounds and listed authorities from now on; rates begin anew."""
        self._named = named
        self._bounds = policy.queue
        rate, each = policy.rate, policy.rate_per_authority
        self._pace = None if rate is None else _pace(rate)
        self._paces = None if each is None else ByKey(lambda: _pace(each), _MAX_PACES)
        self.has_rates = rate is not None or each is not None
        quota = policy.queue.per_authority
        self._quota = (1.0 if each is None else _RATED_QUOTA) if quota is None else quota
        self._unlisted_quota = policy.queue.strangers if named else 1.0
        self.counts_usage = self._quota < 1
        self.has_quotas = min(self._quota, self._unlisted_quota) < 1

    def group(self, authority: str) -> SourceGroup:
        """Return the group of a source authority, created if there is none."""
        group = self.groups.get(authority)
        if group is None:
            group = self.groups[authority] = SourceGroup(self, authority, self._group_of(authority))
        return group

    def regroup(self) -> None:
        """Clear all lists, after authorities may have become listed or unlisted. The caller marks all lanes ready again."""
        self._unlisted.clear()
        for group in self.groups.values():
            group.clear()
            group.parent = self._group_of(group.authority)

    def _group_of(self, authority: str) -> SourceGroup | None:
        return None if self._named is None or authority in self._named else self._unlisted

    # -- rates

    def wait_s(self, group: SourceGroup, now_s: float) -> float:
        """Return for how many seconds the rates keep a group from sending.

        The rate of the route applies to groups without a parent, ``rate_per_authority`` to every group of one authority.
        """
        wait_s = 0.0
        if self._pace is not None and group.parent is None:
            wait_s = self._pace.ready_in(now_s)
        if self._paces is not None and not group.is_parent:
            wait_s = max(wait_s, self._paces.of(group.authority, now_s).ready_in(now_s))
        return wait_s

    def spend(self, group: SourceGroup, size: int, now_s: float) -> None:
        """Count a sent message of ``size`` bytes against the rates of a group."""
        if self._pace is not None:
            self._pace.spend(1, size)
        if self._paces is not None:
            self._paces.of(group.authority, now_s).spend(1, size)

    # -- quotas of the queue

    def are_exceeded_by(
        self, authority: str, messages: int, size: int, counted: int, counted_bytes: int, stalled: int
    ) -> bool:
        """Whether ``messages`` more, of ``size`` bytes, would exceed the quota of a source authority.

        ``counted`` and ``counted_bytes`` are what counts towards the queue's bounds, ``stalled`` the messages that do not.
        Messages beyond a quota are rejected: in the backlog they would hold up those of other authorities.
        """
        bounds = self._bounds
        is_tight = (
            counted + messages > bounds.messages * self._unlisted_quota
            or counted_bytes + size > bounds.bytes * self._unlisted_quota
        )
        if is_tight and self._unlisted_quota < 1 and self._group_of(authority) is not None:
            return True
        group = self.groups.get(authority)
        if not self.counts_usage or group is None or not group.messages:
            return False
        room = self._quota * (1 + stalled / bounds.messages)
        return group.messages + messages > bounds.messages * room or group.bytes + size > bounds.bytes * room


def _pace(rate: RateConfig) -> Pace:
    return Pace(rate.messages, rate.bytes, rate.burst_s)
