"""The subscription of a filter that much traffic comes through: a thread waits for samples, the loop takes them in batches.

A Python callback of Zenoh takes the GIL for every sample, on a thread of Zenoh. Here samples wait in Zenoh's own FIFO
instead, and a *token* says who may take them:

    watcher   blocks in recv() without the GIL; with the first sample it passes the token to the loop
    loop      takes what is there without waiting, up to `BATCH` per turn; when nothing is left it returns the token

This keeps the order, and nobody polls.
"""

import asyncio
import threading

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.subscription import BATCH, Ended, KeySubscription, Take


class FilterSubscription(KeySubscription):
    """A subscription with a FIFO, and a thread that watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Ended) -> None:
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
            except zenoh.ZError:  # it was undeclared or the session closed, and the FIFO is empty
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
        except zenoh.ZError:  # as in the watcher, which notices it as well
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
        """From now on the watcher discards and counts what comes, so that nothing in Zenoh waits for room."""
        self._abandoned = True
        if self._first is not None:
            self._first = None
            self.discarded += 1
        self._token_returned.set()
