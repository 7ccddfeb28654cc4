"""Timers: keys, each with the time at which it is due. Pure."""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_SPARE = 64

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """At most one time per key, in milliseconds. Setting and removing one costs O(log n)."""

    def __init__(self) -> None:
        self._times: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._number = 0

    def set(self, key: Key, time_ms: int | None) -> None:
        """Set the time at which ``key`` is due, in place of an earlier one; None: never."""
        if time_ms is None:
            self._times.pop(key, None)
        elif self._times.get(key) != time_ms:
            self._times[key] = time_ms
            self._push(key, time_ms)
            if len(self._heap) > 2 * len(self._times) + _SPARE:  # mostly times that were replaced
                self._heap = []
                for each, its_ms in self._times.items():
                    self._push(each, its_ms, heapify=False)
                heapq.heapify(self._heap)

    def due(self, now_ms: int) -> Iterator[Key]:
        """Remove and yield every key that is due at ``now_ms``, earliest first."""
        while (first := self.next_ms()) is not None and first <= now_ms:
            key = heapq.heappop(self._heap)[2]
            del self._times[key]
            yield key

    def next_ms(self) -> int | None:
        """Return the earliest time; None: no key has one."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._times.clear()
        self._heap.clear()

    def _push(self, key: Key, time_ms: int, heapify: bool = True) -> None:
        self._number += 1
        entry = (time_ms, self._number, key)
        if heapify:
            heapq.heappush(self._heap, entry)
        else:
            self._heap.append(entry)
