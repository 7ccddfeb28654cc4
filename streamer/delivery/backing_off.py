"""Holds lanes until their back-off is over. No event loop, no clock."""

import heapq
from collections.abc import Iterator

from streamer.delivery.lane import Hold, Lane


class BackingOff:
    """Lanes that are held (`Hold.BACKOFF`), each until a time on the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Lane]] = []
        self._sequence = 0  # breaks ties: lanes cannot be compared

    def hold(self, lane: Lane, until_s: float) -> None:
        """Hold a lane until ``until_s``, unless it is backing off already."""
        if not lane.hold & Hold.BACKOFF:
            lane.set_hold(lane.hold | Hold.BACKOFF)
            self._sequence += 1
            heapq.heappush(self._heap, (until_s, self._sequence, lane))

    def release(self, now_s: float) -> Iterator[Lane]:
        """Release the lanes whose back-off is over, and yield each: the caller marks it ready."""
        while self._heap and self._heap[0][0] <= now_s:
            lane = heapq.heappop(self._heap)[2]
            lane.set_hold(lane.hold & ~Hold.BACKOFF)
            yield lane
