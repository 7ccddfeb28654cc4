"""The subscription of a filter that much traffic comes through: a thread waits for samples, the loop takes them in batches.

A Python callback of Zenoh takes the GIL for every sample, on a thread of Zenoh. Here samples wait in Zenoh's own FIFO
instead. Who may take them from there depends on the load:

    few    the watcher blocks in recv() without the GIL, hands what is there to the loop, and goes back to waiting
    many   the watcher leaves the rest to the loop: it passes a *token* and waits until the loop, which takes up to `BATCH`
           per turn without waiting, has found the FIFO empty and returns the token

So a single message wakes the watcher once, and a loop that is busy is not interrupted. This keeps the order, because only
one of the two takes samples at any time.

recv() wakes up ten times a second to look for signals. So after `_IDLE_S` without a sample the watcher is sent to *rest*: a
*bell*, a second subscription with a callback, is declared, then a fresh FIFO, and the old one is undeclared, which ends the
recv(). The first sample that comes rings the bell. It is then undeclared, and the watcher waits at the fresh FIFO. There is
always a subscription with this key, so other nodes notice nothing, and a sample goes to the old FIFO, or to the bell and
the fresh FIFO. One that comes in between goes to all of them and so arrives twice, as any message may.
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
"""The most samples that the watcher takes at a time, and that wait for the loop before it passes the token."""

_MUCH = 4 * BATCH
"""What the loop fetches at once: each time that it takes from a full FIFO, a thread of Zenoh may wake up to fill it."""

_IDLE_S = 10.0
"""How long nothing has to come before the watcher rests."""


class FifoSubscription(KeySubscription):
    """A subscription with a FIFO, and a thread that watches it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        of: Filter,
        take: Take,
        ended: Ended,
        gate: Gate,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """``post`` has the control thread call something. It may be called on any thread."""
        super().__init__(loop, of, take, ended, gate)
        self._post = post
        self._handler: zenoh.Handler[zenoh.Sample] | None = None
        self._fresh: zenoh.Handler[zenoh.Sample] | None = None  # for the watcher, once the one that it waits at has ended
        self._bell: zenoh.Subscriber[Any] | None = None  # control thread
        self._rung = threading.Event()
        self._has_come = False  # something, since the last look
        self._waiting: deque[zenoh.Sample] = deque()  # from the watcher, for the loop
        self._is_drain_scheduled = False
        self._token_is_here = False
        self._token_returned = threading.Event()

    # -- control thread

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe, and start the watcher."""
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
        """Nothing comes: have the watcher leave recv(), and wait for the bell."""
        old = self._subscriber
        if old is None or self._bell is not None or self._fresh is not None:  # undeclared meanwhile, or resting already
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
        """Undeclare the bell, if there is one."""
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
            self._hand_over(with_token=True)  # the end comes after the last sample, which may wait for the gate
        if self._abandoned:
            self.discarded += len(self._waiting)
        tell_loop(self._loop, self._ended, self)

    def _take_all(self, handler: zenoh.Handler[zenoh.Sample]) -> None:
        """Hand over what comes, until the FIFO has ended."""
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
                    return
            if self._abandoned:
                self.discarded += len(samples)
                continue
            waiting.extend(samples)
            self._hand_over(with_token=len(waiting) >= _FEW)

    def _hand_over(self, with_token: bool) -> None:
        """Tell the loop that samples are waiting, unless it has been told already; wait until the token is back."""
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
        """Send the watcher to rest if nothing has come since the last look, and nothing waits."""
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
        self._is_drain_scheduled = False  # before taking: what comes later is told again
        has_token = self._token_is_here  # before taking: what waited when it was passed comes first
        waiting = self._waiting
        is_empty = not has_token or self._handler is None or self._fetch(self._handler)
        samples: list[zenoh.Sample] = []
        while waiting and len(samples) < BATCH:  # without the token they are few, and the watcher may be adding
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
        self._rung.set()
