"""Limits how many lines are written about repeated events. Pure: time on the monotonic clock is passed in.

The law of this file:
- In a window, a bounded number of lines is written of one kind, and of all kinds together.
- Suppressed lines are counted, and the last one of its kind is kept. Once the window is over it is to be written, with the
  number of those before it. So the last line of a kind may come late, but it always comes, even if nothing else happens.
- A kept line is dropped if a later one of its kind is written: it would contradict that one.
- The number of kinds with a kept line is bounded. Further kinds share one.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
Kept = TypeVar("Kept")


class LeftOut(NamedTuple, Generic[Kind, Kept]):
    """What a kind had no line for in a window: ``times``, with the last one. ``kind`` is None for the kinds that
    share one.
    """

    kind: Kind | None
    times: int
    last: Kept


class Limit(Generic[Kind, Kept]):
    """In ``window_s`` seconds at most ``lines`` lines, and ``kinds`` kinds of which what is left out is counted."""

    __slots__ = ("_kept", "_kinds", "_lines", "_total", "_until_s", "_window_s", "_written")

    def __init__(self, window_s: float, lines: int, kinds: int) -> None:
        self._window_s = window_s
        self._lines = lines
        self._kinds = kinds
        self._until_s = 0.0
        self._total = 0
        self._written: dict[Kind | None, int] = {}
        self._kept: dict[Kind | None, tuple[int, Kept]] = {}

    def has_line(self, kind: Kind, now_s: float, most: int = 1) -> bool:
        """Whether one more of a kind is to be written, if there may be ``most`` of them in a window. If not, `leave_out`."""
        written = self._written.get(kind, 0)
        if written >= most or self._total >= self._lines:
            return False
        if not self._written and not self._kept:
            self._until_s = now_s + self._window_s
        self._written[kind] = written + 1
        self._total += 1
        return True

    def left_out(self, kind: Kind) -> int:
        """How many of a kind were left out before one that is written now; they are not counted any more."""
        kept = self._kept.pop(kind, None) if self._kept else None
        return 0 if kept is None else kept[0]

    def leave_out(self, kind: Kind, last: Kept, now_s: float) -> None:
        """One of a kind is not written."""
        kept = self._kept.get(kind)
        if kept is not None:
            self._kept[kind] = (kept[0] + 1, last)
            return
        if not self._written and not self._kept:
            self._until_s = now_s + self._window_s
        shared = kind if len(self._kept) < self._kinds else None
        self._kept[shared] = (self._kept[shared][0] + 1 if shared in self._kept else 1, last)

    @property
    def is_idle(self) -> bool:
        """Whether it is as if nothing had ever happened."""
        return not self._written and not self._kept

    def over(self, now_s: float, is_end: bool = False) -> list[LeftOut[Kind, Kept]]:
        """If the window is over, or at the end of the process: what was left out in it, to be written now.

        That begins a window, in which it counts as one line of each kind.
        """
        if self.is_idle or (now_s < self._until_s and not is_end):
            return []
        kept, self._kept = self._kept, {}
        self._written = dict.fromkeys(kept, 1)
        self._total = len(kept)
        self._until_s = now_s + self._window_s
        return [LeftOut(kind, count, last) for kind, (count, last) in kept.items()]
