"""The subscription of a filter with much traffic: a thread waits for samples, and the loop takes them in batches.

A Python callback of Zenoh takes the GIL for every sample, on a thread of Zenoh. Here samples wait in Zenoh's own FIFO
instead. The load decides which thread takes samples from the FIFO:

    few    the watcher thread blocks in recv() without the GIL, hands samples to the loop, and waits again
    many   the watcher passes a *token* to the loop and waits for its return. The loop takes up to `BATCH` samples per
           iteration without blocking, and returns the token when it finds the FIFO empty

So a single message wakes the watcher once, and a busy loop is not interrupted. Only one of the two takes samples at any
time, which keeps their order.

recv() wakes up ten times a second to check for signals, which takes 0.03 to 0.06 % of a core for each filter.
"""

import asyncio
import threading
from collections import deque

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.subscription import BATCH, Ended, Gate, KeySubscription, Take

_FEW = 16
"""The most samples that the watcher takes at a time. If as many wait for the loop, the watcher passes the token."""

_MUCH = 4 * BATCH
"""Samples that the loop fetches at a time. Fetches are large because each one from a full FIFO may wake a Zenoh thread."""


class FifoSubscription(KeySubscription):
    """A subscription with a FIFO, and a watcher thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Ended, gate: Gate, is_wide: bool = False
    ) -> None:
        super().__init__(loop, of, take, ended, gate, is_wide)
        self._handler: zenoh.Handler[zenoh.Sample] | None = None
        self._waiting: deque[zenoh.Sample] = deque()  # samples from the watcher for the loop
        self._is_drain_scheduled = False
        self._token_is_here = False
        self._token_returned = threading.Event()

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Declare the subscription with the given key, and start the watcher."""
        subscriber = self._subscriber = session.declare_subscriber(
            key, zenoh.handlers.FifoChannel(buffer), allowed_origin=zenoh.Locality.REMOTE
        )
        self._handler = subscriber.handler
        threading.Thread(target=self._watch, args=(subscriber.handler,), name="zenoh-recv", daemon=True).start()

    def _never_declared(self) -> None:
        tell_loop(self._loop, self._ended, self)

    # -- watcher thread

    def _watch(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        """Hand over samples to the loop until the FIFO has ended."""
        waiting, recv, try_recv = self._waiting, handler.recv, handler.try_recv
        while True:
            samples: list[zenoh.Sample] = []
            try:
                sample: zenoh.Sample | None = recv()
                while sample is not None:
                    samples.append(sample)
                    sample = try_recv() if len(samples) < _FEW else None
            except zenoh.ZError:  # the FIFO was undeclared or the session closed, and the FIFO is empty
                if not samples:
                    break
            if self._abandoned:
                self.discarded += len(samples)
                continue
            waiting.extend(samples)
            self._hand_over(with_token=len(waiting) >= _FEW)
        if not self._abandoned:
            self._hand_over(with_token=True)  # `_ended` follows the last sample, which may wait for the gate
        if self._abandoned:
            self.discarded += len(waiting)
        tell_loop(self._loop, self._ended, self)

    def _hand_over(self, with_token: bool) -> None:
        """Schedule `_drain` on the loop, unless that is done already. With the token, wait for its return."""
        if with_token:
            self._token_returned.clear()
            self._token_is_here = True
        if not self._is_drain_scheduled:
            self._is_drain_scheduled = True
            if not tell_loop(self._loop, self._drain):
                self._abandoned = True
        if with_token and not self._abandoned:
            self._token_returned.wait()

    # -- loop

    def _drain(self) -> None:
        if self._abandoned:
            return
        if not self._gate.is_open:
            self._gate.wait(self)
            return
        self._is_drain_scheduled = False  # before taking samples: later ones schedule it again
        has_token = self._token_is_here  # before taking samples: those that waited when the token was passed come first
        waiting = self._waiting
        is_empty = not has_token or self._handler is None or self._fetch(self._handler)
        samples: list[zenoh.Sample] = []
        while waiting and len(samples) < BATCH:  # without the token there are few, and the watcher may be adding
            samples.append(waiting.popleft())
        if has_token:
            if waiting or not is_empty:
                self._is_drain_scheduled = True
                self._loop.call_soon(self._drain)
            else:
                self._token_is_here = False
                self._token_returned.set()
        if samples:
            self._take(self, samples)

    def _fetch(self, handler: zenoh.Handler[zenoh.Sample]) -> bool:
        """Fetch samples from the FIFO, up to `_MUCH`, unless a batch waits already. Return whether the FIFO is empty.

        For the loop, while it has the token.
        """
        waiting = self._waiting
        if len(waiting) >= BATCH:
            return False
        try:
            while len(waiting) < _MUCH:
                sample = handler.try_recv()
                if sample is None:
                    return True
                waiting.append(sample)
        except zenoh.ZError:  # the FIFO has ended; the watcher notices that as well
            return True
        return False

    def abandon(self) -> None:
        """Have the watcher discard and count all further samples, so that no thread of Zenoh waits for room."""
        self._abandoned = True
        self._token_returned.set()
