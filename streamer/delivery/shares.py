"""How much of a route each source authority may use: its part of the queue, its rate, and its turn.

- A *party* is all messages of one source authority on one route. Parties take turns (`ReadyLanes`), so that nobody gains by
  having many flows.
- *Strangers* are authorities that the route's source endpoint does not list by name. Together they are one party and take
  turns inside it, so that nobody gains by inventing authorities, as long as the honest ones are listed. The last part of the
  queue is not for them.

No event loop, no clock, no logger in here.
"""

from collections import deque
from collections.abc import Container
from typing import Any

from streamer.config.models import QueuePolicy
from streamer.config.types import RateConfig
from streamer.delivery.stats import RouteStats
from streamer.rate import ByKey, Pace

# Source authorities with a rate of their own, per route. Further ones share one.
_MAX_PACES = 4096
# The part of a queue that one authority may use if it has a rate: what it has to wait for must not hold up the others.
_PACED_PART = 0.5


class Party:
    """The lanes of one source authority in one queue; or, with ``is_group``, the parties of the strangers there.

    ``ready`` are its members that have a turn, lanes or parties, by priority class; ``listed`` has a bit for each class in
    whose list it is itself; while it is ``parked`` its rate lets it send nothing. `ReadyLanes` keeps all three.
    ``lanes`` counts its lanes, ``messages`` and ``bytes`` what it has in the queue, if its part of it is bounded.
    """

    __slots__ = ("authority", "bytes", "group", "is_group", "lanes", "listed", "messages", "parked", "ready", "shares")

    def __init__(self, shares: "Shares", authority: str, group: "Party | None" = None, is_group: bool = False) -> None:
        self.shares = shares
        self.authority = authority
        self.group = group
        self.is_group = is_group
        self.ready: dict[int, deque[Any]] = {}
        self.listed = 0
        self.parked = False
        self.lanes = 0
        self.messages = 0
        self.bytes = 0

    def clear(self) -> None:
        """Remove it from the turns."""
        self.ready.clear()
        self.listed = 0
        self.parked = False

    def add(self, messages: int, size: int) -> None:
        """Count what comes into the queue; negative numbers for what leaves it."""
        self.messages += messages
        self.bytes = self.bytes + size if self.messages else 0


class Shares:
    """The parties of one queue. ``named``: the authorities that are no strangers; None: nobody is one.

    ``counts``: parties count what they have in the queue. ``is_paced``: there is a rate.
    """

    def __init__(self, policy: QueuePolicy, stats: RouteStats, named: Container[str] | None) -> None:
        self.stats = stats
        self.parties: dict[str, Party] = {}
        self._strangers = Party(self, "", is_group=True)
        self.use(policy, named)

    def use(self, policy: QueuePolicy, named: Container[str] | None) -> None:
        """Take other bounds and names from now on; rates begin anew."""
        self._named = named
        self._bounds = policy.queue
        rate, each = policy.rate, policy.rate_per_authority
        self._pace = None if rate is None else _pace(rate)
        self._paces = None if each is None else ByKey(lambda: _pace(each), _MAX_PACES)
        self.is_paced = rate is not None or each is not None
        part = policy.queue.per_authority
        self._part = (1.0 if each is None else _PACED_PART) if part is None else part
        self._open = policy.queue.strangers if named else 1.0
        self.counts = self._part < 1
        self.has_bounds = min(self._part, self._open) < 1

    def party(self, authority: str) -> Party:
        """The party of a source authority."""
        party = self.parties.get(authority)
        if party is None:
            party = self.parties[authority] = Party(self, authority, self._group_of(authority))
        return party

    def regroup(self) -> None:
        """Forget all turns; authorities may have become strangers or listed. The caller lists all lanes anew."""
        self._strangers.clear()
        for party in self.parties.values():
            party.clear()
            party.group = self._group_of(party.authority)

    def _group_of(self, authority: str) -> Party | None:
        return None if self._named is None or authority in self._named else self._strangers

    # -- rates

    def wait_s(self, party: Party, now_s: float) -> float:
        """How long the rates keep a party from sending; 0 if it may. A stranger's group has the route's rate, it its own."""
        wait_s = 0.0
        if self._pace is not None and party.group is None:
            wait_s = self._pace.ready_in(now_s)
        if self._paces is not None and not party.is_group:
            wait_s = max(wait_s, self._paces.of(party.authority, now_s).ready_in(now_s))
        return wait_s

    def spend(self, party: Party, size: int, now_s: float) -> None:
        """A party has sent a message."""
        if self._pace is not None:
            self._pace.spend(1, size)
        if self._paces is not None:
            self._paces.of(party.authority, now_s).spend(1, size)

    # -- parts of the queue

    def are_used_up(self, authority: str, messages: int, size: int, counted: int, counted_bytes: int, stalled: int) -> bool:
        """Whether a source authority has used up its part, or the queue is too full for strangers, for so much more.

        ``counted`` is what is in the queue and counts towards its bounds, ``stalled`` the messages that do not. What has no
        room here is rejected. It does not wait outside the queue, where it would hold up everybody else's messages.
        """
        bounds = self._bounds
        is_tight = counted + messages > bounds.messages * self._open or counted_bytes + size > bounds.bytes * self._open
        if is_tight and self._open < 1 and self._group_of(authority) is not None:
            return True
        party = self.parties.get(authority)
        if not self.counts or party is None or not party.messages:
            return False
        room = self._part * (1 + stalled / bounds.messages)
        return party.messages + messages > bounds.messages * room or party.bytes + size > bounds.bytes * room


def _pace(rate: RateConfig) -> Pace:
    return Pace(rate.messages, rate.bytes, rate.burst_s)
