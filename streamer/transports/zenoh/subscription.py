"""One Zenoh subscription: gets its samples onto the event loop, in batches.

Zenoh's Python callbacks would need the GIL for every sample, from a thread of Zenoh. Here samples wait in Zenoh's own
FIFO instead. A *token* says who may take from it:

    watcher   blocks in recv() without the GIL; the first sample that comes passes the token to the loop
    loop      takes what is there without waiting, up to `BATCH` per iteration; when nothing is left it gives the
              token back

So the order is kept and nobody polls.
"""

import asyncio
import threading
from collections.abc import Callable

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.inflow import BATCH, Inflow, Take


class Subscription(Inflow):
    """With a FIFO, and a thread that watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Callable[[Inflow], None]) -> None:
        super().__init__(loop, of, take, ended)
        self._first: zenoh.Sample | None = None
        self._token_is_here = False
        self._token_returned = threading.Event()

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe, and start the watcher."""
        self._subscriber = session.declare_subscriber(
            key, zenoh.handlers.FifoChannel(buffer), allowed_origin=zenoh.Locality.REMOTE
        )
        watcher = threading.Thread(target=self._watch, args=(self._subscriber.handler,), name="zenoh-recv", daemon=True)
        watcher.start()

    def _never_declared(self) -> None:
        tell_loop(self._loop, self._ended, self)

    # -- watcher thread

    def _watch(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        while True:
            try:
                sample = handler.recv()
            except zenoh.ZError:  # undeclared, or the session was closed, and the FIFO is empty
                tell_loop(self._loop, self._ended, self)
                return
            if self._abandoned:
                self.discarded += 1
                continue
            self._first = sample
            self._token_returned.clear()
            if not tell_loop(self._loop, self._arrived, handler):
                self._abandoned = True
            if not self._abandoned:
                self._token_returned.wait()

    # -- loop

    def _arrived(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        self._token_is_here = True
        self._drain(handler)

    def _drain(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        if self._paused or self._abandoned or not self._token_is_here:
            return
        samples = [] if self._first is None else [self._first]
        self._first = None
        more = True
        try:
            while len(samples) < BATCH:
                sample = handler.try_recv()
                if sample is None:
                    more = False
                    break
                samples.append(sample)
        except zenoh.ZError:  # as in the watcher, which finds out as well
            more = False
        if more:
            self._loop.call_soon(self._drain, handler)
        else:
            self._token_is_here = False
            self._token_returned.set()
        if samples:
            self._take(self, samples)

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._paused:
            self._paused = False
            if self._token_is_here and self._subscriber is not None:
                self._loop.call_soon(self._drain, self._subscriber.handler)

    def abandon(self) -> None:
        """From now on the watcher throws away what comes, and counts it: nothing in Zenoh may wait for room."""
        self._abandoned = True
        if self._first is not None:
            self._first = None
            self.discarded += 1
        self._token_returned.set()
