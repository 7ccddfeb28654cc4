"""Caches that hostile peers can neither make large nor useless. Pure.

All entries can be computed again. A peer that sends something new in every message fills one generation after the other;
entries that others use are carried over from the older to the younger generation, and stay.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_ENTRIES = 4096
_BYTES = 4 * 1024 * 1024

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _nothing(key: object) -> int:
    return 0


class Generations(dict[K, V], Generic[K, V]):
    """Two generations, each of at most 4096 entries and 4 MiB. As a dict it is the younger one.

    Read it with ``cache[key]``, which raises KeyError for what neither has. ``size_of`` says how many bytes a key takes; it
    is needed where a peer can make keys as long as it likes.
    """

    def __init__(self, size_of: Callable[[K], int] = _nothing) -> None:
        super().__init__()
        self._size_of = size_of
        self._old: dict[K, V] = {}
        self._bytes = 0

    def __missing__(self, key: K) -> V:
        value = self._old[key]
        self._keep(key, value)
        return value

    def _keep(self, key: K, value: V) -> None:
        if key not in self:
            size = self._size_of(key)
            if len(self) >= _ENTRIES or self._bytes + size > _BYTES:
                self._old = dict(self)
                super().clear()
                self._bytes = 0
            self._bytes += size
        self[key] = value

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._old.clear()
        self._bytes = 0


class Cache(Generations[K, V]):
    """A cache of what was computed for flows."""

    def remember(self, key: K, value: V) -> None:
        """Keep ``value``."""
        self._keep(key, value)


class Interned(Generations[K, K]):
    """One object for all that are equal."""

    def __call__(self, value: K) -> K:
        """The one that is kept; it is ``value`` if there is none yet."""
        try:
            return self[value]
        except KeyError:
            self._keep(value, value)
            return value
