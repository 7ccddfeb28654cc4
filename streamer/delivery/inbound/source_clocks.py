"""How far the clocks of sources are behind ours, estimated from the creation times in the ids of their messages. Pure.

When a message arrives, its age is the time that it was under way, plus what its source's clock is behind. The youngest of
the last minutes had the shortest way, so its age is the estimate. It is too high for a source that has sent nothing new for
that long, such as one whose messages come out of a broker's session.
"""

from collections.abc import Iterable

MOST = 100
"""The most sources with an estimate; further ones wait until one of them has been silent for two windows."""

WORTH_SAYING_S = 2.0
"""A difference below this is the way of the messages rather than the clock."""

_WINDOW_S = 300.0


class SourceClocks:
    """The estimates for the sources of one endpoint, by authority."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._young: dict[str, int] = {}  # the least age in this window, ms; negative: from the future
        self._old: dict[str, int] = {}  # in the window before

    def observe(self, ages_ms: Iterable[tuple[str, int]], now_s: float) -> None:
        """Take the authorities and ages of messages that have arrived now; ``now_s`` is monotonic."""
        if now_s >= self._until_s:
            self._old = self._young if now_s < self._until_s + _WINDOW_S else {}
            self._young, self._until_s = {}, now_s + _WINDOW_S
        young = self._young
        for authority, age_ms in ages_ms:
            known = young.get(authority)
            if known is None and authority not in self._old and len(self._old.keys() | young.keys()) >= MOST:
                continue
            if known is None or age_ms < known:
                young[authority] = age_ms

    def behind_s(self) -> dict[str, float]:
        """Return the estimates in seconds; negative: the source's clock is ahead."""
        found = dict(self._old)
        for authority, age_ms in self._young.items():
            found[authority] = min(age_ms, found.get(authority, age_ms))
        return {authority: age_ms / 1000 for authority, age_ms in found.items()}


def as_text(authority: str, behind_s: float) -> str:
    """Return a sentence about a source's clock; empty if there is nothing worth saying."""
    if abs(behind_s) < WORTH_SAYING_S:
        return ""
    span = f"{abs(behind_s):,.0f}".replace(",", " ")
    which = "behind ours, or its messages are under way for that long" if behind_s > 0 else "ahead of ours"
    return f"the clock of {authority} is {span} s {which} (by the ids of its messages)"
