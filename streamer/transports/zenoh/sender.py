"""Puts messages onto Zenoh: on the event loop while no put can block, else on a thread of its own.

A put can block for seconds while a receiver does not read. `link_sockets` says in advance whether it can: the loop checks
that, and puts some kilobytes at a time. If a put would block, the thread puts all messages until it has caught up.

The loop hands over a batch and waits, without the GIL, until the thread has put it, for 2 ms at most. That is cheaper than
two threads that compete for the GIL (5 ms for each switch). If the batch is not complete by then, the sender is *behind*:
the loop goes on, later batches only queue, and a timer repeats the wait for as long as puts make progress.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

import zenoh

from streamer.transports.base import Done, Parcel, Unconfirmed
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, RefusedError, SendError
from streamer.transports.results import ResultRuns
from streamer.transports.zenoh.control import tell_loop
from streamer.transports.zenoh.wire import PRIORITIES, encode_attachment, key_for, sample_bytes
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import OVERHEAD_BYTES, Attributes, UMessage
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.zenoh")

_WAIT_S = 0.002
_WAIT_AGAIN_S = 0.001  # while puts make progress
_CHECK_AGAIN_S = 0.02  # while they make none
_SMALL = 32
_UNASKED_BYTES: Final = 16 * 1024  # put before the sockets are checked again; far less than the room in Zenoh's own queue
_NOT_PUT_BYTES: Final = OVERHEAD_BYTES - 200  # of the size of a message: on the wire its other attributes take about 200

_ROUTES = 8192
_DECLARED = 1024
_OFTEN = 4

_Put = Callable[..., None]
_ZENOH_PRIORITIES: list[zenoh.Priority] = [getattr(zenoh.Priority, name) for name in PRIORITIES]
_HOW: dict[str, Any] = {"congestion_control": zenoh.CongestionControl.BLOCK, "allowed_destination": zenoh.Locality.REMOTE}


class Publishers:
    """Puts single messages. Runs on the loop or on the sender's thread, never on both at once.

    A pair of key and priority that is used for the `_OFTEN`th time gets a publisher: then a put takes a fifth of the time,
    and sends a number instead of the key's text. Publishers are never undeclared, because the undeclaration could overtake
    messages that still carry the number. Beyond `_DECLARED` publishers, keys are sent as text.
    """

    def __init__(self, session: zenoh.Session, own_authority: str, undeclaring: threading.Lock) -> None:
        """``undeclaring`` is locked by other threads while they undeclare a publisher of this session."""
        self._session = session
        self._own_authority = own_authority
        self._undeclaring = undeclaring
        self._puts: Cache[Attributes, _Put] = Cache()
        self._publishers: dict[tuple[str, int], zenoh.Publisher] = {}
        self._counts: dict[tuple[str, int], int] = {}  # uses of pairs without a publisher

    def declared(self, text: str) -> zenoh.Publisher | None:
        """Return the publisher of one priority of a key."""
        found = (self._publishers.get((text, level)) for level in range(len(_ZENOH_PRIORITIES)))
        return next((each for each in found if each is not None), None)

    def put(self, message: UMessage) -> SendError | None:
        """Put one message. Return the error, if any. Can block while a receiver does not read."""
        try:
            return self._try_to_put(message)
        except BaseException as exc:  # a panic in Zenoh is not an Exception; the thread has to put the other messages
            logger.exception("zenoh_put_failed")
            return RefusedError(UCode.INTERNAL, f"Zenoh: {type(exc).__name__}")

    def _try_to_put(self, message: UMessage) -> SendError | None:
        attributes = message.attributes.shared
        try:
            put = self._puts.get(attributes) or self._find_put(attributes)
        except zenoh.ZError as exc:
            return self._failed(exc) or PermanentError(UCode.INVALID_ARGUMENT, f"no Zenoh key: {exc}")
        try:
            put(message.payload or b"", attachment=encode_attachment(message))
        except zenoh.ZError as exc:
            return self._failed(exc) or RefusedError(UCode.INTERNAL, f"Zenoh: {exc}")
        return None

    def _failed(self, exc: zenoh.ZError) -> SendError | None:
        return LinkLostError("the Zenoh session is closed") if self._session.is_closed() else None

    def _find_put(self, attributes: Attributes) -> _Put:
        try:
            return self._puts[attributes]
        except KeyError:
            text = key_for(attributes, self._own_authority)
        level = attributes.priority_class
        publisher = self._publishers.get((text, level))
        put: _Put | None = None if publisher is None else publisher.put
        if put is None:
            count = self._counts.get((text, level), 0) + 1
            has_room = len(self._publishers) < _DECLARED
            if has_room and count >= _OFTEN:
                put = self._declare(text, level)
            if put is None:
                put = partial(self._session.put, zenoh.KeyExpr(text), priority=_ZENOH_PRIORITIES[level], **_HOW)
                if has_room or count < _OFTEN:
                    if len(self._counts) >= _ROUTES:
                        self._counts.clear()
                    self._counts[text, level] = count
                    return put  # not remembered, so that the next use is counted, too
            self._counts.pop((text, level), None)
        self._puts.remember(attributes, put)
        return put

    def _declare(self, text: str, level: int) -> _Put | None:
        """Declare a publisher, and return its put; None while another thread undeclares, which can block."""
        if not self._undeclaring.acquire(blocking=False):
            return None
        try:
            publisher = self._session.declare_publisher(text, priority=_ZENOH_PRIORITIES[level], **_HOW)
        finally:
            self._undeclaring.release()
        self._publishers[text, level] = publisher
        return publisher.put


class _Batch:
    """The parcels of one `submit`; ``through`` of them are put or failed, with ``errors`` by index."""

    __slots__ = ("complete", "done", "errors", "link", "parcels", "reported", "through")

    def __init__(self, parcels: Sequence[Parcel], done: Done, link: object) -> None:
        self.parcels = parcels
        self.done = done
        self.link = link
        self.through = 0
        self.reported = 0
        self.errors: dict[int, SendError] = {}
        self.complete = not parcels

    def report(self, success: Unconfirmed | None) -> None:
        """Report the results that were not reported yet, in order. In a complete batch, the remaining parcels are lost."""
        start, through = self.reported, self.through
        end = len(self.parcels) if self.complete else through
        self.reported = end
        if start == 0 and through == len(self.parcels) and not self.errors:
            self.done(self.parcels, success)
            return
        lost = LinkLostError()
        results = ResultRuns()
        for number in range(start, end):
            results.add(self.done, self.parcels[number], self.errors.get(number, success) if number < through else lost)
        results.report()


class Sender:
    """Puts batches of parcels in order, on the loop or on its thread, and reports their results on the loop.

    ``put`` sends one message, and ``was_slow`` is called after a put that took ``slow_s``, both on the thread or on the
    loop, never on both at once. ``has_room`` returns on the loop whether the next `_UNASKED_BYTES` can be put without
    blocking. ``success`` is the result of a put that has returned.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[UMessage], SendError | None],
        name: str,
        *,
        success: Unconfirmed | None,
        slow_s: float,
        was_slow: Callable[[], None],
        has_room: Callable[[], bool],
        now_ms: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._put = put
        self._success = success
        self._slow_s = slow_s
        self._was_slow = was_slow
        self._has_room = has_room
        self._now_ms = now_ms
        self._now_s = now_s
        self._link: object | None = None
        self._queue: SimpleQueue[list[_Batch] | None] = SimpleQueue()
        self._fresh: list[_Batch] = []  # batches not handed over yet
        self._unreported: deque[_Batch] = deque()  # batches handed over, without a complete report
        self._flush_is_due = False
        self._idle = threading.Event()
        self._batches_out = 0
        self._seen = (0, 0)
        self._behind = False
        self._room_bytes = 0  # what the loop may put before it checks `has_room` again
        self._reporting = False
        self._next_look: asyncio.Handle | None = None
        threading.Thread(target=self._run, name=f"{name}-send", daemon=True).start()

    @property
    def is_empty(self) -> bool:
        """Whether all results have been reported."""
        return not (self._unreported or self._fresh)

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Put parcels after all earlier ones. ``done`` is called on the loop, before this returns or later.

        Small batches for the thread wait for the end of this iteration of the loop, because each switch of threads costs
        20 µs. Batches without a link wait, too: if they were lost at once, the router would submit them again at once, and
        the loop would never process the event of a new link.
        """
        link = self._link
        batch = _Batch(parcels, done, link or object())
        if link is not None and self.is_empty and not self._reporting and self._put_here(batch):
            self._unreported.append(batch)
            self._report()
            return
        self._fresh.append(batch)
        if link is not None and len(parcels) >= _SMALL and not self._reporting:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_due)

    def resume(self) -> None:
        """Put the parcels that are submitted from now on: there is a link."""
        if self._link is None:
            self._link = object()

    def break_off(self) -> None:
        """Count all parcels that are not through as lost with the link, until `resume`. May be called on any thread."""
        self._link = None

    def stop(self) -> None:
        """End the thread after the current put, and report all parcels that are not through as lost."""
        self.break_off()
        self._hand_over()
        self._queue.put(None)
        if self._unreported:
            self._wait_for_thread()
        for batch in self._unreported:
            batch.complete = True
        self._report()

    def report_through(self) -> None:
        """Report the parcels that are through, also of an incomplete batch, because all sent messages may be lost."""
        self._report()
        if self._unreported and not self._reporting:
            self._reporting = True
            try:
                self._unreported[0].report(self._success)
            finally:
                self._reporting = False

    # -- loop

    def _put_here(self, batch: _Batch) -> bool:
        """Put the parcels of a batch while no put can block. Return whether the batch is complete."""
        while not batch.complete:
            size = _put_bytes(batch.parcels[batch.through].message)
            if size > self._room_bytes:
                if size > _UNASKED_BYTES or not self._has_room():
                    return False
                self._room_bytes = _UNASKED_BYTES
            self._room_bytes = self._put_some(batch, self._room_bytes)
        return True

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _flush(self) -> None:
        if not self._fresh:
            return
        if not self._unreported:
            while self._fresh and self._put_here(self._fresh[0]):
                self._unreported.append(self._fresh.pop(0))
        if self._fresh:
            self._hand_over()
            if self._behind:
                return
            self._wait_for_thread()
        self._report()
        if self._unreported:
            self._behind = True
            if self._next_look is None:
                self._next_look = self._loop.call_soon(self._look)

    def _hand_over(self) -> None:
        self._room_bytes = 0
        fresh, self._fresh = self._fresh, []
        self._unreported.extend(fresh)
        self._queue.put(fresh)

    def _wait_for_thread(self) -> None:
        """Wait until the thread has put everything, for `_WAIT_S` at most. Meanwhile the thread has the GIL."""
        last = self._unreported[-1]
        deadline = time.monotonic() + _WAIT_S
        while not last.complete and (left := deadline - time.monotonic()) > 0:
            self._idle.clear()
            if not last.complete:
                self._idle.wait(left)

    def _report(self) -> None:
        if self._reporting:  # called from within a `done`: the outer call continues
            return
        self._reporting = True
        try:
            while self._unreported and self._unreported[0].complete:
                self._unreported.popleft().report(self._success)
        finally:
            self._reporting = False
        if not self._unreported:
            self._behind = False

    def _look(self) -> None:
        """While behind: wait for the thread again if puts made progress since the last check."""
        self._next_look = None
        if not self._unreported:
            return
        progress = (self._batches_out, self._unreported[0].through)
        moving = progress != self._seen
        self._seen = progress
        if moving:
            self._wait_for_thread()
        self._report()
        if self._unreported:
            self._next_look = self._loop.call_later(_WAIT_AGAIN_S if moving else _CHECK_AGAIN_S, self._look)

    # -- sender thread

    def _run(self) -> None:
        while (batches := self._queue.get()) is not None:
            for batch in batches:
                while not batch.complete:
                    self._put_some(batch, _UNASKED_BYTES)
                self._batches_out += 1
            if self._queue.empty():
                self._idle.set()
            if self._behind:
                tell_loop(self._loop, self._report)

    # -- loop or sender thread

    def _put_some(self, batch: _Batch, left: int) -> int:
        """Put the next message of a batch, and more while ``left`` bytes last. Return how many bytes are left."""
        put, now_s = self._put, self._now_s
        parcels = batch.parcels
        at = batch.through
        size = _put_bytes(parcels[at].message)
        began_s = now_s()
        while True:
            message = parcels[at].message
            error: SendError | None = None
            if self._behind and message.is_expired(self._now_ms(), now_s() - parcels[at].since_s):
                error = LinkLostError("its TTL passed behind a put that was blocked")  # the egress checks it again
            elif batch.link is not self._link:
                error = LinkLostError()
            else:
                error = put(message)
                if error is None:
                    parcels[at].wire_bytes += sample_bytes(message)
                if batch.link is not self._link:
                    error = LinkLostError() if error else MayHaveArrivedError()
            if error is not None:
                batch.errors[at] = error
            left -= size
            at += 1
            batch.through = at
            ended_s = now_s()
            if ended_s - began_s >= self._slow_s:
                self._was_slow()
                ended_s = now_s()
            began_s = ended_s
            if at == len(parcels):
                batch.complete = True
                return left
            size = _put_bytes(parcels[at].message)
            if size > left:
                return left


def _put_bytes(message: UMessage) -> int:
    """Return roughly how many bytes a message takes in Zenoh's queue."""
    return message.size - _NOT_PUT_BYTES
