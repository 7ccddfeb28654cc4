"""Declares the keys on which most samples arrive, so that Zenoh need not look up their subscribers for every sample.

For a sample on any other key, Zenoh searches all declarations: that takes 4 µs, and 0.2 µs more for each declared key. So a
declared key makes samples on other keys slower, and only keys that are worth that are declared.

Keys stay declared as long as the session lives: Zenoh drops a sample that it is about to deliver under the number of a key
that is just undeclared.
"""

from collections.abc import Sequence
from functools import partial
from random import random
from typing import Final

import zenoh

from streamer.transports.zenoh.control import ControlThread

_ONE_OF: Final = 16
"""One sample of so many is looked at, and at least one of each batch."""

_ROUND: Final = 1024
"""After so many that were looked at, keys are chosen. What came before counts half."""

_OFTEN: Final = 8
"""How many samples a key has to have to be declared."""

_MOST: Final = 128
_LONGEST: Final = 1024
"""In characters."""

_NEVER: Final = "**"
"""What keys count as that are never declared: long ones, and those with wildcards."""

_OUTWEIGHED_BY: Final = 20
"""What a sample saves whose key is declared is what another one pays if so many keys are declared."""


class FrequentKeys:
    """The frequent keys of one session. Everything except the declaring itself runs on the loop."""

    def __init__(self, session: zenoh.Session, control: ControlThread) -> None:
        self._session = session
        self._control = control
        self._counted = 0
        self._counts: dict[str, int] = {}
        self._chosen: set[str] = set()
        self._declared: list[zenoh.KeyExpr] = []  # the control thread's. A key that nobody holds is undeclared

    def look(self, samples: Sequence[zenoh.Sample]) -> None:
        """Count some samples of a batch that has come, which is not empty."""
        if len(self._chosen) == _MOST:
            return
        counts = self._counts
        first = int(random() * min(len(samples), _ONE_OF))  # so that flows that take turns are all seen
        for sample in samples[first::_ONE_OF]:
            key = str(sample.key_expr)
            if len(key) > _LONGEST or "*" in key:
                key = _NEVER
            counts[key] = counts.get(key, 0) + 1
            self._counted += 1
        if self._counted >= _ROUND:
            self._choose()

    def _choose(self) -> None:
        others = {key: count for key, count in self._counts.items() if key not in self._chosen}
        for key in worth_declaring(others, _MOST - len(self._chosen)):
            self._chosen.add(key)
            self._control.post(partial(self._declare_blocking, key))
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
        self._counted = 0

    def _declare_blocking(self, key: str) -> None:
        """For the control thread."""
        self._declared.append(self._session.declare_keyexpr(key))


def worth_declaring(counts: dict[str, int], most: int) -> list[str]:
    """The most frequent keys, by their number of samples: as many as save most, which can be none."""
    often = [key for key, count in counts.items() if count >= _OFTEN and key != _NEVER]
    often.sort(key=lambda key: -counts[key])
    others = sum(counts.values())
    covered = best = chosen = 0
    for number, key in enumerate(often[:most], 1):
        covered += counts[key]
        others -= counts[key]
        saved = covered * _OUTWEIGHED_BY - others * number
        if saved > best:
            chosen, best = number, saved
    return often[:chosen]
