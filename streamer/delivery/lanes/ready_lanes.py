"""Which lane an egress serves next: the lanes that may send, by the priority class of their highest message.

The law of this file:
- A higher class goes first. But while lower classes wait, they get ``lower_quota`` of the bytes sent; among them again the
  higher class goes first, with the same quota for those below it. So every class makes progress.
- Inside a class the source groups are served round-robin, and inside a group its lanes.
- A lane whose window is still growing blocks the lower classes until its next confirmation, except for their quota:
  otherwise they would fill the endpoint's window while a higher class waits.
- A group that has used up its rate is parked until it may send again; if the route's rate is used up, all its groups are.
- A lane is listed once per class. A stale entry (the lane has moved to a higher class, or may not send) is skipped when it
  is reached.

No event loop, no clock, no logger in here.
"""

from collections import deque
from typing import Any, Final

from streamer.delivery.lanes.lane import CLASSES, Lane
from streamer.delivery.lanes.quotas import SourceGroup
from streamer.due import Due
from streamer.uprotocol.message import OVERHEAD_BYTES

# How many bytes the lower classes must be owed before one of them is served: 8 small messages. So a short burst of urgent
# messages is sent without interruption.
_LEAST_BYTES: Final = 8 * OVERHEAD_BYTES
_ROUNDING_S = 1e-6


class ReadyLanes:
    """The lanes that may send, and those that could send more if only their window were larger.

    About the lane that `next` returned last: ``is_contested``: several classes wait; ``is_below``: it is of a lower class,
    served by its quota, and should send little.
    """

    def __init__(self, lower_quota: float = 0.0) -> None:
        self._ratio = lower_quota / (1 - lower_quota)
        self._by_class: list[deque[SourceGroup]] = [deque() for _ in range(CLASSES)]
        self._waiting = 0  # a bit for each class that has a list
        self._opening: set[Lane] = set()
        self._parked: Due[SourceGroup] = Due()
        self._credit = [0.0] * CLASSES  # by class: the bytes that lower classes may send before it
        self._passed: list[int] = []  # the classes passed over by `_choose`, because of their credit
        self._level = 0  # the class of the lane that `next` returned last
        self.is_below = self.is_contested = False

    def __len__(self) -> int:
        """Return the number of entries, including stale ones, without those of parked groups."""
        return sum(_entries(group, level) for level, ring in enumerate(self._by_class) for group in ring)

    @property
    def is_empty(self) -> bool:
        """Whether no lane might send."""
        return not self._waiting and not self._opening

    def mark_ready(self, lane: Lane) -> bool:
        """List a lane under its highest class; return False if it has no message that may be sent."""
        if lane.is_ready:
            highest = lane.highest_class
            if highest > lane.ready_class:
                lane.ready_class = highest
                if not lane.listed_classes >> highest & 1:
                    lane.listed_classes |= 1 << highest
                    self._add_member(lane.group, lane, highest)
            return True
        if lane.is_opening:
            self._opening.add(lane)
            return True
        return False

    def floor(self) -> int:
        """Return the class below which messages are sent only by their quota."""
        if not self._opening:
            return 0
        self._opening = {lane for lane in self._opening if lane.is_opening}
        return max((lane.highest_class for lane in self._opening), default=0)

    def next(self, floor: int, now_s: float) -> Lane | None:
        """Take out the lane to serve next, of a class not below ``floor`` unless by its quota; None: there is none.

        If `is_contested` then, call `sent` after sending from it.
        """
        while (level := self._choose(floor)) >= 0:
            bit = 1 << level
            ring = self._by_class[level]
            group = ring[0]
            if group.is_parent or group.parked or group.quotas.has_rates:
                lane = self._pop(ring, level, now_s)
            else:  # the same as `_pop`, but faster for the usual case
                ready = group.ready[level]
                lane = ready.popleft()
                if ready:
                    ring.rotate(-1)
                else:
                    group.listed_classes &= ~bit
                    ring.popleft()
            if not ring:
                self._waiting &= ~bit
            if lane is None:
                continue
            lane.listed_classes &= ~bit
            if lane.ready_class != level:  # it has moved to a higher class since
                continue
            lane.ready_class = -1
            if not lane.is_ready:
                continue
            if lane.highest_class != level:  # its highest class has changed since it was listed
                self.mark_ready(lane)
                continue
            self._level = level
            self.is_below = bool(self._passed)
            self.is_contested = self.is_below or self._waiting & (bit - 1) > 0
            return lane
        return None

    def beside(self, lane: Lane) -> int:
        """Return how many lanes of its group wait for their turn with the lane that `next` returned last."""
        return len(lane.group.ready.get(self._level, ()))

    def sent(self, size: int) -> None:
        """Count the bytes that were sent from the lane that `next` returned last."""
        for level in self._passed:
            self._credit[level] -= size
        if self._waiting & ((1 << self._level) - 1):
            self._credit[self._level] += size * self._ratio

    def park(self, group: SourceGroup, until_s: float) -> None:
        """Let a group send nothing until ``until_s``."""
        group.parked = True
        self._parked.set(group, until_s)

    def wake(self, now_s: float) -> None:
        """List the groups again whose time is over."""
        for group in self._parked.take(now_s + _ROUNDING_S):
            group.parked = False
            for level, ready in group.ready.items():
                if ready and not group.listed_classes >> level & 1:
                    self._mark_group_ready(group, level)

    def _choose(self, floor: int) -> int:
        """Return the class to serve next, or -1. Sets `_passed`."""
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

    def _add_member(self, group: SourceGroup, member: Lane | SourceGroup, level: int) -> None:
        """Add a lane, or the group of an unlisted authority, to the members of a group that wait to be served."""
        ready = group.ready.get(level)
        if ready is None:
            ready = group.ready[level] = deque()
        ready.append(member)
        if not group.listed_classes >> level & 1 and not group.parked:
            self._mark_group_ready(group, level)

    def _mark_group_ready(self, group: SourceGroup, level: int) -> None:
        group.listed_classes |= 1 << level
        if group.parent is None:
            self._by_class[level].append(group)
            self._waiting |= 1 << level
        else:
            self._add_member(group.parent, group, level)

    def _pop(self, ring: deque[Any], level: int, now_s: float) -> Lane | None:
        """Return the next lane of the first group that may send; the group goes to the end of the ring."""
        bit = 1 << level
        while ring:
            group: SourceGroup = ring.popleft()
            group.listed_classes &= ~bit
            if group.parked:
                continue
            if group.quotas.has_rates and (wait_s := group.quotas.wait_s(group, now_s)) > 0:
                group.quotas.stats.limited += 1
                self.park(group, now_s + wait_s)
                continue
            ready = group.ready[level]
            lane: Lane | None = self._pop(ready, level, now_s) if group.is_parent else ready.popleft()
            if ready:
                group.listed_classes |= bit
                ring.append(group)
            else:
                del group.ready[level]
            if lane is not None:
                return lane
        return None


def _entries(group: SourceGroup, level: int) -> int:
    members = group.ready.get(level, ())
    return sum(_entries(member, level) for member in members) if group.is_parent else len(members)
