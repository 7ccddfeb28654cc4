"""What was found out about flows, to be asked for again: bounded, and forgotten source by source. Pure."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from streamer.uprotocol.uri import UUri

_SIZE = 8192

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BySource(dict[K, V], Generic[K, V]):
    """Read it as a dict. It starts anew when it is full: all of it can be found out again.

    One dict, not one per source: reading is for every message, forgetting only for what changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[UUri, list[K]] = {}

    def remember(self, source: UUri, key: K, value: V) -> None:
        """Keep what was found out about ``key``, whose messages all come from ``source``."""
        if key not in self:
            if len(self) >= _SIZE:
                self.clear()
            self._keys.setdefault(source, []).append(key)
        self[key] = value

    def forget(self, source: UUri) -> None:
        """Keep nothing about one source."""
        for key in self._keys.pop(source, ()):
            del self[key]

    def clear(self) -> None:
        """Keep nothing."""
        super().clear()
        self._keys.clear()
