"""The subscription of a filter with much traffic: a thread waits for samples, and the loop takes them in batches.

A Python callback of Zenoh takes the GIL for every sample, on a thread of Zenoh. Here samples wait in Zenoh's own FIFO
instead. The load decides which thread takes samples from the FIFO:

    few    the watcher thread blocks in recv() without the GIL, hands samples to the loop, and waits again
    many   the watcher passes a *token* to the loop and waits for its return. The loop takes up to `BATCH` samples per
           iteration without blocking, and returns the token when it finds the FIFO empty

So a single message wakes the watcher once, and a busy loop is not interrupted. Only one of the two takes samples at any
time, which keeps their order.

recv() wakes up ten times a second to check for signals. So after `_IDLE_S` without a sample the watcher *rests*: the control
thread declares a *bell*, which is a second subscription with a callback, then a fresh FIFO, and undeclares the old FIFO,
which ends recv(). The next sample rings the bell. Then the bell is undeclared, and the watcher waits at the fresh FIFO.
There is always a subscription with this key, so other nodes notice nothing. A sample goes to the old FIFO, or to the bell
and the fresh FIFO. A sample in between goes to all of them and so arrives twice, as any message may.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import zenoh

from streamer.transports.listeners import Filter
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.subscription import BATCH, Ended, Gate, KeySubscription, Take

_FEW = 16
"""The most samples that the watcher takes at a time. If as many wait for the loop, the watcher passes the token."""

_MUCH = 4 * BATCH
"""Samples that the loop fetches at a time. Fetches are large because each one from a full FIFO may wake a Zenoh thread."""

_IDLE_S = 10.0
"""Seconds without a sample after which the watcher rests."""


class FifoSubscription(KeySubscription):
    """A subscription with a FIFO, and a watcher thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        of: Filter,
        take: Take,
        ended: Ended,
        gate: Gate,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """``post`` queues a call on the control thread; any thread may call it."""
        super().__init__(loop, of, take, ended, gate)
        self._post = post
        self._handler: zenoh.Handler[zenoh.Sample] | None = None
        self._fresh: zenoh.Handler[zenoh.Sample] | None = None  # the watcher's next FIFO, once the current one has ended
        self._bell: zenoh.Subscriber[Any] | None = None  # used by the control thread
        self._rung = threading.Event()
        self._has_come = False  # whether samples have come since the last check
        self._waiting: deque[zenoh.Sample] = deque()  # samples from the watcher for the loop
        self._is_drain_scheduled = False
        self._token_is_here = False
        self._token_returned = threading.Event()

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Declare the subscription with the given key, and start the watcher."""
        self._declare_fifo = partial(
            session.declare_subscriber, key, zenoh.handlers.FifoChannel(buffer), allowed_origin=zenoh.Locality.REMOTE
        )
        bell = zenoh.handlers.Callback(self._ring, indirect=False)
        self._declare_bell = partial(session.declare_subscriber, key, bell, allowed_origin=zenoh.Locality.REMOTE)
        subscriber = self._subscriber = self._declare_fifo()
        self._handler = subscriber.handler
        threading.Thread(target=self._watch, args=(subscriber.handler,), name="zenoh-recv", daemon=True).start()
        tell_loop(self._loop, self._look_later)

    def undeclare(self) -> None:
        self._silence()
        super().undeclare()
        self._subscriber = None
        self._rung.set()

    def _never_declared(self) -> None:
        tell_loop(self._loop, self._ended, self)

    def _rest(self) -> None:
        """Have the watcher leave recv() and wait for the bell."""
        old = self._subscriber
        if old is None or self._bell is not None or self._fresh is not None:  # undeclared, or at rest already
            return
        self._rung.clear()
        try:
            self._bell = self._declare_bell()
            self._subscriber = fresh = self._declare_fifo()
        except zenoh.ZError:
            self._silence()
            raise
        self._fresh = fresh.handler
        old.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type

    def _silence(self) -> None:
        """Undeclare the bell, if it is declared."""
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type

    # -- threads of Zenoh

    def _ring(self, _: zenoh.Sample) -> None:
        if not self._rung.is_set():
            self._rung.set()
            self._post(self._silence)

    # -- watcher thread

    def _watch(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        while True:
            self._take_all(handler)
            fresh = self._fresh
            if fresh is None:
                break
            self._handler = handler = fresh
            self._fresh = None
            self._rung.wait()
        if not self._abandoned:
            self._hand_over(with_token=True)  # `_ended` follows the last sample, which may wait for the gate
        if self._abandoned:
            self.discarded += len(self._waiting)
        tell_loop(self._loop, self._ended, self)

    def _take_all(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
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
                    return
            if self._abandoned:
                self.discarded += len(samples)
                continue
            waiting.extend(samples)
            self._hand_over(with_token=len(waiting) >= _FEW)

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

    def _look_later(self) -> None:
        self._has_come = False
        self._loop.call_later(_IDLE_S, self._look)

    def _look(self) -> None:
        """Post `_rest` if no sample has come since the last check, and none waits. Schedule the next check."""
        if self.closing or self._abandoned:
            return
        if not (self._has_come or self._waiting or self._token_is_here):
            self._post(self._rest)
        self._look_later()

    def _drain(self) -> None:
        self._has_come = True
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
        self._rung.set()
