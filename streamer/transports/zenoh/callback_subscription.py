"""The subscription of a filter with little traffic, such as one topic among thousands: Zenoh calls back for each sample,
which waits here for the loop.

A `FifoSubscription` has a thread, which wakes up ten times a second while samples come now and then. That suits the few
filters that most traffic comes through, but not thousands of others. The price is that each sample takes the GIL on one of
Zenoh's threads.
"""

import asyncio
import threading
from collections import deque

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.subscription import BATCH, Ended, Gate, KeySubscription, Take
from streamer.transports.zenoh.wildcard_samples import WildcardSamples

_LOOK_S = 1.0  # how often a blocked thread of Zenoh checks whether there is room, in case the event is missed


class CallbackSubscription(KeySubscription):
    """A subscription with a callback."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        of: Filter,
        take: Take,
        ended: Ended,
        gate: Gate,
        wildcard_samples: WildcardSamples,
        is_wide: bool = False,
    ) -> None:
        super().__init__(loop, of, take, ended, gate, is_wide)
        self._wildcard_samples = wildcard_samples
        self._samples: deque[zenoh.Sample] = deque()
        self._buffer = 0
        self._has_room = threading.Event()
        self._is_drain_scheduled = False
        self._dropped = False

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Declare the subscription with the given key; ``buffer`` samples may wait."""
        self._buffer = buffer
        handler = zenoh.handlers.Callback(self._arrived, self._drop, indirect=False)
        self._subscriber = session.declare_subscriber(key, handler, allowed_origin=zenoh.Locality.REMOTE)

    def _never_declared(self) -> None:
        self._drop()

    # -- Zenoh's threads

    def _arrived(self, sample: zenoh.Sample) -> None:
        if self._wildcard_samples.count_if_wildcard(sample):
            return
        if self._abandoned:
            self.discarded += 1
            return
        self._samples.append(sample)
        if not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            if not tell_loop(self._loop, self._drain):
                self._abandoned = True
        while len(self._samples) >= self._buffer and not self._abandoned:
            self._has_room.clear()
            self._has_room.wait(_LOOK_S)  # back-pressure on the sender

    def _drop(self) -> None:
        tell_loop(self._loop, self._end)

    # -- loop

    def _drain(self) -> None:
        if self._abandoned:
            return
        if not self._gate.is_open:
            self._gate.wait(self)
            return
        self._is_drain_scheduled = False  # before taking samples: the next sample schedules it again
        samples: list[zenoh.Sample] = []
        while self._samples and len(samples) < BATCH:
            samples.append(self._samples.popleft())
        self._has_room.set()
        if self._samples and not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            self._loop.call_soon(self._drain)
        if samples:
            self._take(self, samples)
        if self._dropped and not self._samples:
            self._end()

    def _end(self) -> None:
        """Note that Zenoh will not call back again. Report the end once no sample waits."""
        self._dropped = True
        if self._abandoned or not self._samples:
            ended, self._ended = self._ended, _once
            ended(self)

    def abandon(self) -> None:
        """Discard and count all further samples, so that no thread of Zenoh waits for room."""
        self._abandoned = True
        self.discarded += len(self._samples)
        self._samples.clear()
        self._has_room.set()
        if self._dropped:
            self._end()


def _once(subscription: KeySubscription) -> None:
    """Do nothing: the subscription has ended already."""
