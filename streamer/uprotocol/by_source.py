"""A cache of what was computed for flows: bounded, and cleared source by source. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from streamer.uprotocol.uri import UUri

_SIZE = 8192

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BySource(dict[K, V], Generic[K, V]):
    """Read it as a dict. When it is full it is emptied: everything in it can be computed again.

    It is one dict, not one per source: every message reads it, entries are removed only when something changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[UUri, list[K]] = {}

    def remember(self, source: UUri, key: K, value: V) -> None:
        """Keep the value for ``key``, whose messages all come from ``source``."""
        if key not in self:
            if len(self) >= _SIZE:
                self.clear()
            self._keys.setdefault(source, []).append(key)
        self[key] = value

    def forget(self, source: UUri) -> None:
        """Remove the entries of one source."""
        for key in self._keys.pop(source, ()):
            del self[key]

    def clear(self) -> None:
        """Remove everything."""
        super().clear()
        self._keys.clear()
