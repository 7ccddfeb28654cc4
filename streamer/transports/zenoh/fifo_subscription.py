"""The subscription of a filter that much traffic comes through: a thread waits for samples, the loop takes them in batches.

A Python callback of Zenoh takes the GIL for every sample, on a thread of Zenoh. Here samples wait in Zenoh's own FIFO
instead. Who may take them from there depends on the load:

    few    the watcher blocks in recv() without the GIL, hands what is there to the loop, and goes back to waiting
    many   the watcher leaves the rest to the loop: it passes a *token* and waits until the loop, which takes up to `BATCH`
           per turn without waiting, has found the FIFO empty and returns the token

So a single message wakes the watcher once, and a loop that is busy is not interrupted. This keeps the order, because only
one of the two takes samples at any time, and nobody polls.
"""

import asyncio
import threading
from collections import deque

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.subscription import BATCH, Ended, Gate, KeySubscription, Take

_FEW = 16
"""The most samples that the watcher takes at a time, and that wait for the loop before it passes the token."""

_MUCH = 4 * BATCH
"""What the loop fetches at once: each time that it takes from a full FIFO, a thread of Zenoh may wake up to fill it."""


class FifoSubscription(KeySubscription):
    """A subscription with a FIFO, and a thread that watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Ended, gate: Gate) -> None:
        super().__init__(loop, of, take, ended, gate)
        self._handler: zenoh.Handler[zenoh.Sample] | None = None
        self._waiting: deque[zenoh.Sample] = deque()  # from the watcher, for the loop
        self._is_told = False
        self._token_is_here = False
        self._token_returned = threading.Event()

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe, and start the watcher."""
        self._subscriber = session.declare_subscriber(
            key, zenoh.handlers.FifoChannel(buffer), allowed_origin=zenoh.Locality.REMOTE
        )
        self._handler = self._subscriber.handler
        threading.Thread(target=self._watch, args=(self._handler,), name="zenoh-recv", daemon=True).start()

    def _never_declared(self) -> None:
        tell_loop(self._loop, self._ended, self)

    # -- watcher thread

    def _watch(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        waiting, recv, try_recv = self._waiting, handler.recv, handler.try_recv
        while True:
            samples: list[zenoh.Sample] = []
            try:
                sample: zenoh.Sample | None = recv()
                while sample is not None:
                    samples.append(sample)
                    sample = try_recv() if len(samples) < _FEW else None
            except zenoh.ZError:  # it was undeclared or the session closed, and the FIFO is empty
                if not samples:
                    break
            if self._abandoned:
                self.discarded += len(samples)
                continue
            waiting.extend(samples)
            self._hand_over(with_token=len(waiting) >= _FEW)
        if not self._abandoned:
            self._hand_over(with_token=True)  # the end comes after the last sample, which may wait for the gate
        if self._abandoned:
            self.discarded += len(waiting)
        tell_loop(self._loop, self._ended, self)

    def _hand_over(self, with_token: bool) -> None:
        """Tell the loop that samples are waiting, unless it has been told already; wait until the token is back."""
        if with_token:
            self._token_returned.clear()
            self._token_is_here = True
        if not self._is_told:
            self._is_told = True
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
        self._is_told = False  # before taking: what comes later is told again
        has_token = self._token_is_here  # before taking: what waited when it was passed comes first
        waiting = self._waiting
        is_empty = not has_token or self._handler is None or self._fetch(self._handler)
        samples: list[zenoh.Sample] = []
        while waiting and len(samples) < BATCH:  # without the token they are few, and the watcher may be adding
            samples.append(waiting.popleft())
        if has_token:
            if waiting or not is_empty:
                self._is_told = True
                self._loop.call_soon(self._drain)
            else:
                self._token_is_here = False
                self._token_returned.set()
        if samples:
            self._take(self, samples)

    def _fetch(self, handler: zenoh.Handler[zenoh.Sample]) -> bool:
        """The loop has the token: fetch much at once if little is left here. Returns whether nothing is left there."""
        waiting = self._waiting
        if len(waiting) >= BATCH:
            return False
        try:
            while len(waiting) < _MUCH:
                sample = handler.try_recv()
                if sample is None:
                    return True
                waiting.append(sample)
        except zenoh.ZError:  # as in the watcher, which notices it as well
            return True
        return False

    def abandon(self) -> None:
        """From now on the watcher discards and counts what comes, so that nothing in Zenoh waits for room."""
        self._abandoned = True
        self._token_returned.set()
