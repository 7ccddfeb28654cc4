"""Caches that hostile peers can make neither large nor useless. Pure.

All entries can be computed again. A peer that sends a new value in every message fills one generation after the other;
entries that are in use are carried over from the older to the younger generation.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from streamer.uprotocol.uri import UUri

_ENTRIES = 4096
_BYTES = 4 * 1024 * 1024

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _nothing(key: object) -> int:
    return 0


class Cache(dict[K, V], Generic[K, V]):
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

    def remember(self, key: K, value: V) -> None:
        """Store ``value``."""
        self._store(key, value)

    def _store(self, key: K, value: V) -> None:
        if key not in self:
            self._old.pop(key, None)
            size = self._size_of(key)
            if len(self) >= _ENTRIES or self._bytes + size > _BYTES:
                dropped, self._old = self._old, dict(self)
                super().clear()
                self._bytes = 0
                self._dropped(dropped)
            self._bytes += size
        self[key] = value

    def _dropped(self, keys: Iterable[K]) -> None:
        """Do what has to be done when the older generation is forgotten."""

    def clear(self) -> None:
        """Remove all entries."""
        super().clear()
        self._old.clear()
        self._bytes = 0


class BySource(Cache[K, V]):
    """A cache that finds the entries of one source; ``source_of`` returns the source of a key.

    It is one dict, not one per source, because every message reads it, and entries are rarely removed.
    """

    def __init__(self, source_of: Callable[[K], UUri]) -> None:
        super().__init__()
        self._source_of = source_of
        self._keys: dict[UUri, dict[K, None]] = {}

    def remember(self, key: K, value: V) -> None:
        """Store the value for ``key``."""
        self._keys.setdefault(self._source_of(key), {})[key] = None
        self._store(key, value)

    def forget(self, source: UUri) -> None:
        """Remove the entries of one source."""
        for key in self._keys.pop(source, ()):
            self.pop(key, None)
            self._old.pop(key, None)

    def _dropped(self, keys: Iterable[K]) -> None:
        for key in keys:
            source = self._source_of(key)
            of_source = self._keys[source]
            del of_source[key]
            if not of_source:
                del self._keys[source]

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self._keys.clear()
