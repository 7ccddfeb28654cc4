"""Which lane of an egress is next: the lanes that may send, by the priority class of their highest message.

The law of this file:
- A higher class goes first. Lanes of one class take turns.
- A lane whose window is still opening blocks the lower classes until its next confirmation: they would fill the endpoint's
  window while a higher class waits.
- A lane is listed once per class. An entry that no longer holds (the lane has moved to a higher class, or may not send) is
  passed over when its turn comes.

No event loop, no clock, no logger in here.
"""

from collections import deque

from streamer.delivery.lane import CLASSES, Lane


class ReadyLanes:
    """The lanes that may send, and those that could send more if only their window were larger."""

    def __init__(self) -> None:
        self._by_class: list[deque[Lane]] = [deque() for _ in range(CLASSES)]
        self._opening: set[Lane] = set()

    def __len__(self) -> int:
        """How many entries there are, outdated ones included."""
        return sum(map(len, self._by_class))

    def file(self, lane: Lane) -> bool:
        """List a lane under its highest waiting class; False if it has nothing that may be sent."""
        if lane.is_ready:
            top = lane.top
            if top > lane.filed:
                lane.filed = top
                if not lane.listed >> top & 1:
                    lane.listed |= 1 << top
                    self._by_class[top].append(lane)
            return True
        if lane.is_opening:
            self._opening.add(lane)
            return True
        return False

    def floor(self) -> int:
        """The class below which nothing is sent now."""
        if not self._opening:
            return 0
        self._opening = {lane for lane in self._opening if lane.is_opening}
        return max((lane.top for lane in self._opening), default=0)

    def next(self, floor: int) -> Lane | None:
        """Take out the lane whose turn it is, of a class not below ``floor``."""
        for level in range(CLASSES - 1, floor - 1, -1):
            lanes = self._by_class[level]
            while lanes:
                lane = lanes.popleft()
                lane.listed &= ~(1 << level)
                if lane.filed != level:  # it has moved to a higher class since
                    continue
                lane.filed = -1
                if not lane.is_ready:
                    continue
                if lane.top != level:  # its high-class messages have gone or come since it was listed
                    self.file(lane)
                    if lane.top > level:
                        return self.next(floor)
                    continue
                return lane
        return None
