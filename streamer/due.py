"""Things, each with the time at which it is due. No clock."""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_SPARE = 64

T = TypeVar("T", bound=Hashable)


class Due(Generic[T]):
    """At most one time for each thing, in the caller's unit. Setting and removing one costs O(log n)."""

    def __init__(self) -> None:
        self._times: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []  # also has times that were replaced
        self._number = 0  # breaks ties: things cannot be compared

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[T]:
        return iter(self._times)

    def set(self, thing: T, time: float | None) -> None:
        """Set the time at which a thing is due, in place of an earlier one; None: never."""
        if time is None:
            self._times.pop(thing, None)
        elif self._times.get(thing) != time:
            self._times[thing] = time
            self._number += 1
            heapq.heappush(self._heap, (time, self._number, thing))
        if len(self._heap) > 2 * len(self._times) + _SPARE:
            self._heap = [(time, number, thing) for number, (thing, time) in enumerate(self._times.items())]
            heapq.heapify(self._heap)

    def take(self, until: float) -> Iterator[T]:
        """Remove and yield everything that is due at ``until``, earliest first."""
        while (first := self.next()) is not None and first <= until:
            thing = heapq.heappop(self._heap)[2]
            del self._times[thing]
            yield thing

    def next(self) -> float | None:
        """Return the earliest time; None: nothing has one."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._times.clear()
        self._heap.clear()
