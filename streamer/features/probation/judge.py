"""Judges a configuration by what the streamer was like before it. Pure.

- A link that was up, before or since, has to be up, one that was alone connected. Removed endpoints are not judged.
- More messages may fail than the earlier share explains, by ten and three standard deviations. A route that had no outcome
  before is unknown: it is judged with all routes together.
- A link or unconfirmed bytes are worse only if they stay so for the whole patience; what fails meanwhile does not count.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streamer.transports.base import LinkState

_RANK = {LinkState.DOWN: 0, LinkState.ALONE: 1, LinkState.UP: 2}
MORE_BYTES = 1 << 20


class Measured(NamedTuple):
    """A streamer at a moment: links and unconfirmed bytes by endpoint; settled and failed messages by route, and of all."""

    links: Mapping[str, LinkState]
    unconfirmed: Mapping[str, int]
    outcomes: Mapping[str, tuple[int, int]]


class ProbationJudge:
    """``before``: the reading before the reload; ``after``: that with which it begins. ``links``: the best state of each."""

    def __init__(self, before: Measured, after: Measured, patience_s: float) -> None:
        self._before, self._after, self._patience_s = before, after, patience_s
        self._since_s: Mapping[str, float] = {}
        self.links = {**before.links}

    def look(self, now: Measured, now_s: float) -> str:
        """Return why it is worse than before; empty: it is not."""
        self._since_s = {text: self._since_s.get(text, now_s) for text in self._worse(now)}
        if self._since_s:  # what fails meanwhile fails for that reason
            self._after = now
        lasting = (text for text, since_s in self._since_s.items() if now_s - since_s >= self._patience_s)
        return next(lasting, "") or next(self._failing(now), "")

    def _worse(self, now: Measured) -> Iterator[str]:
        for name, state in now.links.items():
            was = self.links[name] = max(self.links.get(name, state), state, key=_RANK.__getitem__)
            if state is not was:
                yield f"{name} was {was.value} and stays {state.value}"
        for name, waited in self._before.unconfirmed.items():
            if now.unconfirmed.get(name, 0) > (most := 2 * waited + MORE_BYTES):
                yield f"endpoint {name} has more than {most} unconfirmed bytes"

    def _failing(self, now: Measured) -> Iterator[str]:
        for name, (settled_before, failed_before) in self._before.outcomes.items():
            after, last = self._after.outcomes.get(name, (0, 0)), now.outcomes.get(name, (0, 0))
            settled, failed = last[0] - after[0], last[1] - after[1]
            expected = settled * failed_before / settled_before if settled_before and settled > 0 else math.inf
            if failed > 10 + expected + 3 * math.sqrt(expected):
                yield f"{failed} of {settled} messages have failed on {name}; before, {failed_before} of {settled_before}"
