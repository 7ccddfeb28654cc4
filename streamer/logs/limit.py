"""Limits how many lines are written about repeated events. Pure: time on the monotonic clock is passed in.

The law of this file:
- In a window, a bounded number of lines is written of one kind, and of all kinds together.
- Suppressed lines are counted, and the last one of its kind is kept. Once the window is over, the caller writes it, with the
  number of those before it. So the last line of a kind may be late, but it is always written, even if nothing else happens.
- A kept line is dropped if a later one of its kind is written: it would contradict that one.
- The number of kinds with a kept line is bounded. Further kinds share one.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind", bound=Hashable)
Kept = TypeVar("Kept")


class LeftOut(NamedTuple, Generic[Kind, Kept]):
    """The suppressed lines of a kind in a window: their number ``times``, and the last one. ``kind`` None: of all kinds that
    share one count.
    """

    kind: Kind | None
    times: int
    last: Kept


class Limit(Generic[Kind, Kept]):
    """Allows at most ``lines`` lines in ``window_s`` seconds, and counts the others separately for ``kinds`` kinds."""

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
        """Whether the caller may write one more line of a kind, of ``most`` in a window. If not, it calls `leave_out`."""
        written = self._written.get(kind, 0)
        if written >= most or self._total >= self._lines:
            return False
        if not self._written and not self._kept:
            self._until_s = now_s + self._window_s
        self._written[kind] = written + 1
        self._total += 1
        return True

    def left_out(self, kind: Kind) -> int:
        """Return, and reset, how many lines of a kind were left out before the one that is written now."""
        kept = self._kept.pop(kind, None) if self._kept else None
        return 0 if kept is None else kept[0]

    def leave_out(self, kind: Kind, last: Kept, now_s: float) -> None:
        """Count a line of a kind that is not written, and keep it as the last one."""
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
        """Whether the limit is in its initial state: nothing is counted or kept."""
        return not self._written and not self._kept

    def over(self, now_s: float, is_end: bool = False) -> list[LeftOut[Kind, Kept]]:
        """Once the window is over, or at the end of the process, return its left-out lines for the caller to write.

        This begins a window, in which they count as one line of each kind.
        """
        if self.is_idle or (now_s < self._until_s and not is_end):
            return []
        kept, self._kept = self._kept, {}
        self._written = dict.fromkeys(kept, 1)
        self._total = len(kept)
        self._until_s = now_s + self._window_s
        return [LeftOut(kind, count, last) for kind, (count, last) in kept.items()]
