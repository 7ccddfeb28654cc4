"""How far the clocks of sources are behind ours, estimated from the creation times in the ids of their messages. Pure.

When a message arrives, its age is the time that it was under way, plus what its source's clock is behind. The youngest of
the last minutes had the shortest way, so its age is the estimate. It is too high for a source that has sent nothing new for
that long, such as one whose messages come out of a broker's session. A source is a uEntity: one whose clock is right says
nothing about another at the same authority. The oldest is kept as well, because programs may even share an address.
"""

from collections.abc import Iterable
from typing import NamedTuple

from streamer.uprotocol.uri import UUri

MOST = 100
"""The most sources with an estimate; further ones wait until one of them has been silent for two windows."""

WORTH_SAYING_S = 2.0
"""A difference below this is the way of the messages rather than the clock."""

_WINDOW_S = 300.0

Source = tuple[str, int]
"""Authority and id of a uEntity."""


class SourceClock(NamedTuple):
    """The clock of a source, estimated from its messages of the last five to ten minutes."""

    authority: str
    ue_id: int
    behind_s: float
    """How far it is behind ours: the age of the youngest message; negative: it is ahead."""
    oldest_s: float
    """The age of the oldest message when it arrived."""
    oldest_ago_s: float
    """How long ago that was."""

    @property
    def doubt_s(self) -> float:
        """The greatest difference that was seen."""
        return max(abs(self.behind_s), self.oldest_s)


class _Ages(NamedTuple):
    """The least and the greatest age of messages on arrival, ms, and when the latter was; negative: from the future."""

    youngest_ms: int
    oldest_ms: int
    oldest_at_s: float

    def merged(self, other: "_Ages") -> "_Ages":
        oldest = max(self, other, key=lambda ages: ages.oldest_ms)
        return oldest._replace(youngest_ms=min(self.youngest_ms, other.youngest_ms))


class SourceClocks:
    """The estimates for the sources of one endpoint."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._young: dict[Source, _Ages] = {}  # in this window
        self._old: dict[Source, _Ages] = {}  # in the window before

    def observe(self, ages_ms: Iterable[tuple[Source, int]], now_s: float) -> None:
        """Take the sources and ages of messages that have arrived now; ``now_s`` is monotonic."""
        if now_s >= self._until_s:
            self._old = self._young if now_s < self._until_s + _WINDOW_S else {}
            self._young, self._until_s = {}, now_s + _WINDOW_S
        young = self._young
        for source, age_ms in ages_ms:
            known = young.get(source)
            if known is None:
                if source in self._old or len(self._old.keys() | young.keys()) < MOST:
                    young[source] = _Ages(age_ms, age_ms, now_s)
            elif not known.youngest_ms <= age_ms <= known.oldest_ms:
                young[source] = known.merged(_Ages(age_ms, age_ms, now_s))

    def read(self, now_s: float) -> list[SourceClock]:
        """Return the estimates."""
        found = dict(self._old)
        for source, ages in self._young.items():
            found[source] = ages.merged(found[source]) if source in found else ages
        return [
            SourceClock(*source, ages.youngest_ms / 1000, ages.oldest_ms / 1000, now_s - ages.oldest_at_s)
            for source, ages in found.items()
        ]


def about(source: UUri, clocks: Iterable[SourceClock]) -> list[str]:
    """Return what is worth saying about the clock of a source; if it is not known, about the worst one at its authority."""
    found = [clock for clock in clocks if clock.authority == source.authority]
    own = [clock for clock in found if clock.ue_id == source.ue_id] or found
    if not own:
        return []
    worst = max(own, key=lambda clock: clock.doubt_s)
    name = f"//{worst.authority}/{worst.ue_id:X}"
    if abs(worst.behind_s) >= WORTH_SAYING_S:
        which = "behind ours, or its messages are under way for that long" if worst.behind_s > 0 else "ahead of ours"
        return [f"the clock of {name} is {_span(worst.behind_s)} {which} (by the ids of its messages)"]
    if worst.oldest_s >= WORTH_SAYING_S:
        old, ago = _span(worst.oldest_s), _span(worst.oldest_ago_s)
        why = "it was under way for that long, or two programs with that address have different clocks"
        return [f"a message of {name} was {old} old when it arrived, {ago} ago; others were not: {why}"]
    return []


def _span(span_s: float) -> str:
    return f"{abs(span_s):,.0f} s".replace(",", " ")
