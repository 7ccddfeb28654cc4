"""Pages of a list, in the order of the names of its entries, while entries are added and removed.

A cursor is the name of the last entry of an answer. A client that reads all pages sees each entry exactly once if the entry
exists all the time.
"""

import base64
import heapq
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamer.uprotocol.uri import UUri

Key = tuple[Any, ...]
"""The name of an entry: texts and UUris, with () for an absent UUri."""

T = TypeVar("T")


class _Kept(Generic[T]):
    """An entry of the page, ordered for `heapq` so that the highest name is removed first."""

    __slots__ = ("entry", "key")

    def __init__(self, key: Key, entry: T) -> None:
        self.key = key
        self.entry = entry

    def __lt__(self, other: "_Kept[T]") -> bool:
        return bool(self.key > other.key)


class EntryPage(Generic[T]):
    """Collects the ``limit`` entries with the lowest names after a cursor, and counts all entries that are offered."""

    def __init__(self, limit: int, after: Key | None) -> None:
        self.total = 0
        self._limit = limit
        self._after = after
        self._has_more = False
        self._kept: list[_Kept[T]] = []

    def offer(self, key: Key, entry: T) -> None:
        """Count an entry, and keep it if it belongs to the page. Entries may come in any order."""
        self.total += 1
        if self._after is not None and key <= self._after:
            return
        if len(self._kept) < self._limit:
            heapq.heappush(self._kept, _Kept(key, entry))
        else:
            self._has_more = True
            heapq.heappushpop(self._kept, _Kept(key, entry))

    def entries(self) -> list[T]:
        """Return the entries of the page in the order of their names."""
        return [kept.entry for kept in sorted(self._kept, reverse=True)]

    @property
    def next(self) -> str | None:
        """Return the cursor for the next page; None: this page is the last."""
        return cursor_of(self._kept[0].key) if self._has_more else None


def cursor_of(key: Key) -> str:
    """Encode a name as a text for a URL's query."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def cursors(*shape: type) -> Callable[[str], Key]:
    """Return a function that decodes cursors of names with parts of these types. It raises ValueError."""

    def read(cursor: str) -> Key:
        try:
            parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
            if not isinstance(parts, list):
                raise TypeError
            return tuple(_part(part, kind) for part, kind in zip(parts, shape, strict=True))
        except (ValueError, TypeError, RecursionError) as exc:
            raise ValueError("expected the value of `next` in the previous answer") from exc

    return read


def _part(part: Any, kind: type) -> Any:
    if kind is str:
        if not isinstance(part, str):
            raise TypeError
        return part
    if part == []:
        return ()
    uri = UUri(*part)
    if not isinstance(uri.authority, str) or not all(type(number) is int for number in uri[1:]):
        raise TypeError
    return uri
