"""Declares the keys on which most samples arrive, so that Zenoh need not search their subscribers for every sample.

For a sample on an undeclared key, Zenoh searches all declarations: that takes 4 µs, and 0.2 µs more for each declared key.
So each declaration makes samples on other keys slower, and only keys with enough samples are declared.

Keys stay declared as long as the session lives: Zenoh drops a sample that it is delivering under the number of a key while
that key is undeclared.
"""

from collections.abc import Sequence
from functools import partial
from random import random
from typing import Final

import zenoh

from streamer.transports.zenoh.control import ControlThread

_ONE_OF: Final = 16
"""One of this many samples is counted, and at least one of each batch."""

_ROUND: Final = 1024
"""Counted samples after which keys are chosen. Counts of earlier rounds are halved."""

_OFTEN: Final = 8
"""The least number of counted samples of a key that is declared."""

_MOST: Final = 128
"""The most declared keys."""
_LONGEST: Final = 1024
"""The longest key that is declared, in characters."""

_NEVER: Final = "**"
"""Stands in the counts for all keys that are never declared: long ones, and those with wildcards."""

_OUTWEIGHED_BY: Final = 20
"""A sample on a declared key saves as much time as this many declared keys cost one sample on another key."""


class FrequentKeys:
    """Counts and declares the frequent keys of one session. Runs on the loop, except for `_declare_blocking`."""

    def __init__(self, session: zenoh.Session, control: ControlThread) -> None:
        self._session = session
        self._control = control
        self._counted = 0
        self._counts: dict[str, int] = {}
        self._chosen: set[str] = set()
        self._declared: list[zenoh.KeyExpr] = []  # used by the control thread. Zenoh undeclares an unreferenced key

    def look(self, samples: Sequence[zenoh.Sample]) -> None:
        """Count the keys of some samples of a batch, which is not empty, and choose keys to declare if it is time."""
        if len(self._chosen) == _MOST:
            return
        counts = self._counts
        first = int(random() * min(len(samples), _ONE_OF))  # a fixed offset would miss flows whose samples alternate
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
        """Declare a key. For the control thread."""
        self._declared.append(self._session.declare_keyexpr(key))


def worth_declaring(counts: dict[str, int], most: int) -> list[str]:
    """Return those of the most frequent keys, at most ``most``, whose declaration saves most time; possibly none."""
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
