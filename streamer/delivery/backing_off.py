"""Lanes that wait out a back-off before their next attempt. No event loop, no clock."""

import heapq
from collections.abc import Iterator

from streamer.delivery.lane import Hold, Lane


class BackingOff:
    """Lanes that are held (`Hold.BACKOFF`) until a moment of the monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Lane]] = []
        self._sequence = 0  # lanes cannot be compared

    def hold(self, lane: Lane, until_s: float) -> None:
        """Hold a lane, unless it is backing off already."""
        if not lane.hold & Hold.BACKOFF:
            lane.set_hold(lane.hold | Hold.BACKOFF)
            self._sequence += 1
            heapq.heappush(self._heap, (until_s, self._sequence, lane))

    def release(self, now_s: float) -> Iterator[Lane]:
        """Let go of the lanes whose moment has come."""
        while self._heap and self._heap[0][0] <= now_s:
            lane = heapq.heappop(self._heap)[2]
            lane.set_hold(lane.hold & ~Hold.BACKOFF)
            yield lane
