"""A cache of values computed for flows, from which the entries of one source can be removed. Pure."""

from streamer.uprotocol.cache import Generations, K, V
from streamer.uprotocol.uri import UUri


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
