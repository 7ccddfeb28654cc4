"""Puts messages onto Zenoh from a thread of its own, because a put can block for seconds when a receiver is stalled.

The loop hands over a batch and lends the thread the processor: it waits, without the GIL, until the batch is out, for
2 ms at most. That is the normal case, and cheaper than both threads running and fighting for the GIL (5 ms for each
change of hands). If the batch is not out by then, the sender is *behind*: the loop goes on, later batches only queue,
and a timer lends the processor again and again for as long as that helps.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import zenoh

from streamer.transports.base import Done, Parcel
from streamer.transports.errors import LinkLostError, PermanentError, RefusedError, SendError
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.wire import PRIORITIES, encode_attachment, key_for
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.status import UCode

_LEND_S = 0.002
_LEND_AGAIN_S = 0.001  # between two loans while puts get through
_LOOK_AGAIN_S = 0.02  # while none does
_SMALL = 32

_ROUTES = 8192
_DECLARED = 1024

_Route = tuple[zenoh.KeyExpr, zenoh.Priority]
_ZENOH_PRIORITIES: list[zenoh.Priority] = [getattr(zenoh.Priority, name) for name in PRIORITIES]


class Outlet:
    """Puts single messages; used on the sender's thread only, except for ``usable``.

    The first `_DECLARED` keys are declared to Zenoh, which halves the cost of a put and sends a number instead of the
    text. They stay declared: taking one back could overtake messages that still carry its number. Later keys go as text.
    """

    def __init__(self, session: zenoh.Session, own_authority: str) -> None:
        self.usable = False
        self._session = session
        self._own_authority = own_authority
        self._routes: dict[Attributes, _Route] = {}
        self._declared: dict[str, zenoh.KeyExpr] = {}

    def put(self, message: UMessage) -> SendError | None:
        """Hand one message to Zenoh; can block while a receiver takes nothing. Returns why it could not."""
        if not self.usable:
            return LinkLostError()
        attributes = message.attributes
        try:
            key, priority = self._routes.get(attributes) or self._route(attributes)
        except zenoh.ZError as exc:
            return PermanentError(UCode.INVALID_ARGUMENT, f"no Zenoh key: {exc}")
        try:
            self._session.put(
                key,
                message.payload or b"",
                attachment=encode_attachment(message),
                priority=priority,
                congestion_control=zenoh.CongestionControl.BLOCK,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        except zenoh.ZError as exc:
            if self._session.is_closed():
                return LinkLostError("the Zenoh session is closed")
            return RefusedError(UCode.INTERNAL, f"Zenoh: {exc}")
        return None

    def _route(self, attributes: Attributes) -> _Route:
        text = key_for(attributes, self._own_authority)
        key = self._declared.get(text)
        if key is None:
            key = zenoh.KeyExpr(text)
            if len(self._declared) < _DECLARED:
                key = self._declared[text] = self._session.declare_keyexpr(key)
        route = (key, _ZENOH_PRIORITIES[attributes.priority_class])
        if attributes.is_shared:
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            self._routes[attributes] = route
        return route


class _Batch:
    """What one `submit` brought, how many of it are through, and which of those failed."""

    __slots__ = ("complete", "done", "errors", "parcels", "through")

    def __init__(self, parcels: Sequence[Parcel], done: Done) -> None:
        self.parcels = parcels
        self.done = done
        self.through = 0
        self.errors: dict[int, SendError] = {}
        self.complete = False

    def report(self) -> None:
        """Tell each parcel's outcome, in order; what is not through is lost."""
        through = self.through
        if through == len(self.parcels) and not self.errors:
            self.done(self.parcels, None)
            return
        lost = LinkLostError()
        outcomes = [self.errors.get(n) if n < through else lost for n in range(len(self.parcels))]
        start = 0
        for end in range(1, len(outcomes) + 1):
            if end == len(outcomes) or repr(outcomes[end]) != repr(outcomes[start]):
                self.done(self.parcels[start:end], outcomes[start])
                start = end


class Sender:
    """The thread, its queue, and the reports back to the loop. ``put`` sends one message, on the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[UMessage], SendError | None], name: str) -> None:
        self._loop = loop
        self._put = put
        self._queue: SimpleQueue[list[_Batch] | None] = SimpleQueue()
        self._fresh: list[_Batch] = []  # not handed over yet
        self._unreported: deque[_Batch] = deque()  # handed over
        self._flush_is_due = False
        self._idle = threading.Event()
        self._batches_out = 0
        self._seen = (0, 0)
        self._behind = False
        self._reporting = False
        self._next_look: asyncio.Handle | None = None
        threading.Thread(target=self._run, name=f"{name}-send", daemon=True).start()

    @property
    def is_behind(self) -> bool:
        """Whether a put is blocked, or a backlog is still being worked off."""
        return self._behind

    @property
    def is_empty(self) -> bool:
        """Whether every outcome is reported."""
        return not (self._unreported or self._fresh)

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send these after all earlier ones. ``done`` is called on the loop: before this returns, or later.

        Small batches wait for the end of this turn of the loop: each change of threads costs 20 µs.
        """
        self._fresh.append(_Batch(parcels, done))
        if len(parcels) >= _SMALL and not self._reporting:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_due)

    def stop(self) -> None:
        """End the thread after the put that it is in, and report everything that is not through as lost."""
        self._hand_over()
        self._queue.put(None)
        if self._unreported:
            self._lend()
        for batch in self._unreported:
            batch.complete = True
        self._report()

    # -- loop

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _flush(self) -> None:
        if not self._fresh:
            return
        self._hand_over()
        if self._behind:
            return
        self._lend()
        self._report()
        if self._unreported:
            self._behind = True
            if self._next_look is None:
                self._next_look = self._loop.call_soon(self._look)

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        self._unreported.extend(fresh)
        self._queue.put(fresh)

    def _lend(self) -> None:
        """Wait until everything is out, `_LEND_S` at most: the thread has the processor meanwhile."""
        last = self._unreported[-1]
        deadline = time.monotonic() + _LEND_S
        while not last.complete and (left := deadline - time.monotonic()) > 0:
            self._idle.clear()
            if not last.complete:
                self._idle.wait(left)

    def _report(self) -> None:
        if self._reporting:  # called from a `done`: the outer call goes on
            return
        self._reporting = True
        try:
            while self._unreported and self._unreported[0].complete:
                self._confirm(self._unreported.popleft())
        finally:
            self._reporting = False
        if not self._unreported:
            self._behind = False

    def _confirm(self, batch: _Batch) -> None:
        """A put that returned counts as delivered.

        That is not the whole truth: what was put shortly before a receiver stalls or dies is lost without a word. A
        version that waits for the receiver's lease, and for the key to have kept its subscribers, belongs here.
        """
        batch.report()

    def _look(self) -> None:
        """While behind: lend the processor again if puts got through since the last look."""
        self._next_look = None
        if not self._unreported:
            return
        progress = (self._batches_out, self._unreported[0].through)
        moving = progress != self._seen
        self._seen = progress
        if moving:
            self._lend()
        self._report()
        if self._unreported:
            self._next_look = self._loop.call_later(_LEND_AGAIN_S if moving else _LOOK_AGAIN_S, self._look)

    # -- sender thread

    def _run(self) -> None:
        put = self._put
        while (batches := self._queue.get()) is not None:
            for batch in batches:
                for number, parcel in enumerate(batch.parcels, 1):
                    error = put(parcel.message)
                    if error is not None:
                        batch.errors[number - 1] = error
                    batch.through = number
                self._batches_out += 1
                batch.complete = True
            if self._queue.empty():
                self._idle.set()
            if self._behind:
                tell_loop(self._loop, self._report)
