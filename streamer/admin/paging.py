"""Pages of a list, in the order of the names of its entries, while entries are added and removed.

A cursor is the name of the last entry of an answer. A client that pages through the list sees each entry once that exists
throughout.
"""

import base64
import heapq
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streamer.uprotocol.uri import UUri

Key = tuple[Any, ...]
"""The name of an entry: texts, addresses, and () for an address that it does not have."""

T = TypeVar("T")


class _Kept(Generic[T]):
    """An entry of the page. The highest is the first to go, as `heapq` needs it."""

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
        """One entry, in any order."""
        self.total += 1
        if self._after is not None and key <= self._after:
            return
        if len(self._kept) < self._limit:
            heapq.heappush(self._kept, _Kept(key, entry))
        else:
            self._has_more = True
            heapq.heappushpop(self._kept, _Kept(key, entry))

    def entries(self) -> list[T]:
        """The entries of the page, in order."""
        return [kept.entry for kept in sorted(self._kept, reverse=True)]

    @property
    def next(self) -> str | None:
        """The cursor for the next page; None: there is none."""
        return cursor_of(self._kept[0].key) if self._has_more else None


def cursor_of(key: Key) -> str:
    """A name as a text that can stand in a query."""
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def cursors(*shape: type) -> Callable[[str], Key]:
    """Reads cursors for names of this shape: `str`, or `UUri`, which may be (). Raises ValueError."""

    def read(cursor: str) -> Key:
        try:
            parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
            if not isinstance(parts, list):
                raise TypeError
            return tuple(_part(part, kind) for part, kind in zip(parts, shape, strict=True))
        except (ValueError, TypeError, RecursionError) as exc:
            raise ValueError("expected what `next` of the answer before was") from exc

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
