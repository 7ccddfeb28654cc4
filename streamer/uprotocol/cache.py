"""Caches that hostile peers can make neither large nor useless. Pure.

All entries can be computed again. A peer that sends a new value in every message fills one generation after the other;
entries that are in use are carried over from the older to the younger generation.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from streamer.uprotocol.uri import UUri

_ENTRIES = 4096
_BYTES = 4 * 1024 * 1024

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _nothing(key: object) -> int:
    return 0


class Generations(dict[K, V], Generic[K, V]):
    """Two generations, each of at most 4096 entries and 4 MiB. As a dict it is the younger one.

    Read it with ``cache[key]``, which raises KeyError if neither generation has the key. ``size_of`` returns the bytes of a
    key; it is needed where a peer chooses the length of keys.
    """

    def __init__(self, size_of: Callable[[K], int] = _nothing) -> None:
        super().__init__()
        self._size_of = size_of
        self._old: dict[K, V] = {}
        self._bytes = 0

    def __missing__(self, key: K) -> V:
        value = self._old[key]
        self._store(key, value)
        return value

    def _store(self, key: K, value: V) -> None:
        if key not in self:
            size = self._size_of(key)
            if len(self) >= _ENTRIES or self._bytes + size > _BYTES:
                self._old = dict(self)
                super().clear()
                self._bytes = 0
            self._bytes += size
        self[key] = value

    def clear(self) -> None:
        """Remove all entries."""
        super().clear()
        self._old.clear()
        self._bytes = 0


class Cache(Generations[K, V]):
    """A cache of values computed for flows."""

    def remember(self, key: K, value: V) -> None:
        """Store ``value``."""
        self._store(key, value)


class BySource(Generations[K, V]):
    """A cache that knows the source of each entry.

    It is one dict, not one per source, because every message reads it, and entries are rarely removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[UUri, dict[K, None]] = {}
        self._swept = self._old

    def remember(self, source: UUri, key: K, value: V) -> None:
        """Store the value for ``key``, whose messages all come from ``source``."""
        self._store(key, value)
        self._keys.setdefault(source, {})[key] = None
        if self._old is not self._swept:  # a generation was forgotten
            self._sweep()

    def forget(self, source: UUri) -> None:
        """Remove the entries of one source."""
        for key in self._keys.pop(source, ()):
            self.pop(key, None)
            self._old.pop(key, None)

    def _sweep(self) -> None:
        self._swept = self._old
        everything, self._keys = self._keys, {}
        for source, keys in everything.items():
            if kept := {key: None for key in keys if key in self or key in self._old}:
                self._keys[source] = kept

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self._keys.clear()


class Interned(Generations[K, K]):
    """Maps equal objects to one of them."""

    def __call__(self, value: K) -> K:
        """Return the stored object that equals ``value``; store ``value`` if there is none yet."""
        try:
            return self[value]
        except KeyError:
            self._store(value, value)
            return value
