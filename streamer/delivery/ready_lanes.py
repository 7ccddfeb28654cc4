"""Which lane an egress serves next: the lanes that may send, by the priority class of their highest message.

The law of this file:
- A higher class goes first. But while lower classes wait, they get ``lower_share`` of the bytes sent; among them again the
  higher class goes first, with the same share for those below it. So every class makes progress.
- Inside a class the parties (source authorities of a route) take turns, and inside a party its lanes.
- A lane whose window is still growing blocks the lower classes until its next confirmation, except for their share:
  otherwise they would fill the endpoint's window while a higher class waits.
- A party that has used up its rate is parked until it may send again; if the route's rate is used up, all its parties are.
- A lane is listed once per class. An outdated entry (the lane has moved to a higher class, or may not send) is skipped when
  its turn comes.

No event loop, no clock, no logger in here.
"""

import heapq
from collections import deque
from typing import Any, Final

from streamer.delivery.lane import CLASSES, Lane
from streamer.delivery.shares import Party
from streamer.uprotocol.message import OVERHEAD_BYTES

# What the lower classes have to be owed before one of them has a turn: 8 small messages. So a burst of urgent ones stays
# together, and only what lasts gives way.
_LEAST_BYTES: Final = 8 * OVERHEAD_BYTES
_ROUNDING_S = 1e-6


class ReadyLanes:
    """The lanes that may send, and those that could send more if only their window were larger.

    About the last turn: ``is_contested`` if several classes wait; ``is_below`` if it was one of a lower class, by its share,
    and is to be short.
    """

    def __init__(self, lower_share: float = 0.0) -> None:
        self._ratio = lower_share / (1 - lower_share)
        self._by_class: list[deque[Party]] = [deque() for _ in range(CLASSES)]
        self._waiting = 0  # a bit for each class in which somebody is listed
        self._opening: set[Lane] = set()
        self._parked: list[tuple[float, int, Party]] = []
        self._parkings = 0
        self._credit = [0.0] * CLASSES  # by class: the bytes that the classes below it may send before it
        self._passed: list[int] = []  # the classes that the last turn went below, by their credit
        self._level = 0  # the class of the last turn
        self.is_below = self.is_contested = False

    def __len__(self) -> int:
        """How many entries there are, outdated ones included, without those of parked parties."""
        return sum(_entries(party, level) for level, ring in enumerate(self._by_class) for party in ring)

    @property
    def is_empty(self) -> bool:
        """Whether no lane is listed that might send."""
        return not self._waiting and not self._opening

    def file(self, lane: Lane) -> bool:
        """List a lane under its highest waiting class; False if it has nothing that may be sent."""
        if lane.is_ready:
            top = lane.top
            if top > lane.filed:
                lane.filed = top
                if not lane.listed >> top & 1:
                    lane.listed |= 1 << top
                    self._join(lane.party, lane, top)
            return True
        if lane.is_opening:
            self._opening.add(lane)
            return True
        return False

    def floor(self) -> int:
        """The class below which nothing is sent now, except for its share."""
        if not self._opening:
            return 0
        self._opening = {lane for lane in self._opening if lane.is_opening}
        return max((lane.top for lane in self._opening), default=0)

    def next(self, floor: int, now_s: float) -> Lane | None:
        """Take out the lane whose turn it is, of a class not below ``floor`` unless by its share.

        If that `is_contested`, tell `sent` afterwards.
        """
        while (level := self._choose(floor)) >= 0:
            bit = 1 << level
            ring = self._by_class[level]
            party = ring[0]
            if party.is_group or party.parked or party.shares.is_paced:
                lane = self._pop(ring, level, now_s)
            else:  # as `_pop` does, for those who come by most often
                ready = party.ready[level]
                lane = ready.popleft()
                if ready:
                    ring.rotate(-1)
                else:
                    party.listed &= ~bit
                    ring.popleft()
            if not ring:
                self._waiting &= ~bit
            if lane is None:
                continue
            lane.listed &= ~bit
            if lane.filed != level:  # it has moved to a higher class since
                continue
            lane.filed = -1
            if not lane.is_ready:
                continue
            if lane.top != level:  # its high-class messages have gone or come since it was listed
                self.file(lane)
                continue
            self._level = level
            self.is_below = bool(self._passed)
            self.is_contested = self.is_below or self._waiting & (bit - 1) > 0
            return lane
        return None

    def sent(self, size: int) -> None:
        """Count the bytes that were sent from the lane that `next` gave last."""
        for level in self._passed:
            self._credit[level] -= size
        if self._waiting & ((1 << self._level) - 1):
            self._credit[self._level] += size * self._ratio

    def park(self, party: Party, until_s: float) -> None:
        """A party may send nothing until then."""
        party.parked = True
        self._parkings += 1
        heapq.heappush(self._parked, (until_s, self._parkings, party))

    def wake(self, now_s: float) -> None:
        """Parties whose time has come take turns again."""
        parked = self._parked
        while parked and parked[0][0] <= now_s + _ROUNDING_S:
            party = heapq.heappop(parked)[2]
            party.parked = False
            for level, ready in party.ready.items():
                if ready and not party.listed >> level & 1:
                    self._list(party, level)

    def _choose(self, floor: int) -> int:
        """The class whose turn it is; -1: none. Sets `_passed`."""
        if self._passed:
            self._passed.clear()
        waiting, credit = self._waiting, self._credit
        level = waiting.bit_length() - 1
        if level < floor:
            level = floor
        elif level < 0:
            return -1
        while credit[level] >= _LEAST_BYTES:
            lower = (waiting & ((1 << level) - 1)).bit_length() - 1
            if lower < 0:
                credit[level] = 0.0
                break
            self._passed.append(level)
            level = lower
        return level if waiting >> level & 1 else -1

    def _join(self, party: Party, member: Lane | Party, level: int) -> None:
        """A lane, or a stranger, has a turn in its party."""
        ready = party.ready.get(level)
        if ready is None:
            ready = party.ready[level] = deque()
        ready.append(member)
        if not party.listed >> level & 1 and not party.parked:
            self._list(party, level)

    def _list(self, party: Party, level: int) -> None:
        party.listed |= 1 << level
        if party.group is None:
            self._by_class[level].append(party)
            self._waiting |= 1 << level
        else:
            self._join(party.group, party, level)

    def _pop(self, ring: deque[Any], level: int, now_s: float) -> Lane | None:
        """The lane whose turn it is among parties; the one that it belongs to goes to the end."""
        bit = 1 << level
        while ring:
            party: Party = ring.popleft()
            party.listed &= ~bit
            if party.parked:
                continue
            if party.shares.is_paced and (wait_s := party.shares.wait_s(party, now_s)) > 0:
                party.shares.stats.limited += 1
                self.park(party, now_s + wait_s)
                continue
            ready = party.ready[level]
            lane: Lane | None = self._pop(ready, level, now_s) if party.is_group else ready.popleft()
            if ready:
                party.listed |= bit
                ring.append(party)
            else:
                del party.ready[level]
            if lane is not None:
                return lane
        return None


def _entries(party: Party, level: int) -> int:
    members = party.ready.get(level, ())
    return sum(_entries(member, level) for member in members) if party.is_group else len(members)
