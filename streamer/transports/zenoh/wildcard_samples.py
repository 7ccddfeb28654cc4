"""Counts samples on keys with wildcards, which are not valid for messages.

Zenoh lets any node put on `up/**`, and gives the sample to every subscription whose key matches: one small put brings as
many copies as there are topics. So the samples of callback subscriptions are counted on Zenoh's threads, and one call on the
loop reports many of them.
"""

import asyncio
import threading
from collections.abc import Callable

import zenoh

from streamer.transports.zenoh.control import tell_loop


class WildcardSamples:
    """Counts the wildcard samples of one session. ``found`` gets their number and one of their keys, on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, found: Callable[[int, str], None]) -> None:
        self._loop = loop
        self._found = found
        self._lock = threading.Lock()
        self._number = 0
        self._key = ""

    # -- threads of Zenoh

    def count_if_wildcard(self, sample: zenoh.Sample) -> bool:
        """Count a sample if its key has wildcards. Return whether it has: then the sample must not be delivered."""
        key = str(sample.key_expr)
        if "*" not in key:
            return False
        with self._lock:
            self._number += 1
            is_first = self._number == 1
            self._key = key
        if is_first:
            tell_loop(self._loop, self._tell)
        return True

    # -- loop

    def _tell(self) -> None:
        with self._lock:
            number, self._number = self._number, 0
        self._found(number, self._key)
