"""Watches who listens: one Zenoh publisher per watch, whose matching listener says whether anybody does.

Runs on the event loop, and declares on the control thread. `presence` says what the answers mean.

A matching listener takes 0.4 ms of processor time to declare, and more the more there are (2 ms at 1000); one for a
sink also makes each put of a new key slower (0.2 µs for each). Therefore watches are few, and nobody can have many made
at once. Undeclaring them leaves nothing behind, here or in other nodes.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import islice

import zenoh

from streamer.transports.base import Presence
from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.presence import (
    GRACE_S,
    OVERVIEW,
    RECHECK_S,
    OnPresence,
    Watches,
    is_topic,
    watch_for,
)
from streamer.transports.zenoh.watch_budget import WatchBudget

_PROMOTE_S = 0.25
_PROMOTED_AT_ONCE = 64

_Declared = tuple[zenoh.Publisher, zenoh.MatchingListener[None]]


class PresenceWatch:
    """The watched flows of one session. ``now_s`` is a monotonic clock, for budgets."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._loop: asyncio.AbstractEventLoop
        self._control: ControlThread
        self._session: zenoh.Session | None = None
        self._watches = Watches()
        self._declared: dict[str, _Declared] = {}  # control thread
        self._budget = WatchBudget()
        self._waiting: dict[str, None] = {}  # flows without a watch of their own, the one that has waited longest first
        self._promotion: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unverified: set[str] = set()
        self._recheck: asyncio.TimerHandle | None = None
        self._has_come = False

    def open(self, loop: asyncio.AbstractEventLoop, control: ControlThread, session: zenoh.Session) -> None:
        """The session is open: declare the watches that are there already."""
        self._loop = loop
        self._control = control
        self._session = session
        for key in self._watches.watches:
            self._declare(session, key)
        self._promote_later()

    def close(self) -> None:
        """Tell nothing from now on."""
        self._session = None
        for timer in (self._recheck, self._timer, self._promotion):
            if timer is not None:
                timer.cancel()

    def add(self, key: str, on_presence: OnPresence) -> Presence:
        """Watch a flow, by the key that its messages are put on."""
        watch = None if key in self._watches.flows else self._find_watch(key)
        is_new = watch is not None and watch not in self._watches.watches
        flow = self._watches.add(key, watch, on_presence)
        if watch is not None and is_new:
            self._made(watch)
        return flow.presence

    def _find_watch(self, key: str) -> str | None:
        """The watch for a new flow: its own if there is one or may be one, else that of all, or none for a topic."""
        own = watch_for(key)
        if own in self._watches.watches or self._may_make(own, key):
            return own
        self._waiting[key] = None
        self._promote_later()
        return None if is_topic(key) else OVERVIEW

    def _may_make(self, watch: str, flow: str) -> bool:
        return self._budget.make(watch, flow.split("/", 2)[1], self._now_s())

    def _made(self, watch: str) -> None:
        if self._session is not None:
            self._declare(self._session, watch)

    def _forgotten(self, watch: str | None) -> None:
        if watch is not None:
            self._budget.forget(watch)
            if self._session is not None:
                self._control.post(lambda: self._undeclare_blocking(watch))

    def remove(self, key: str, on_presence: OnPresence) -> None:
        """The opposite of `add`. A flow that is not watched is ignored."""
        self._forgotten(self._watches.remove(key, on_presence))
        if key not in self._watches.flows:
            self._waiting.pop(key, None)

    def nodes(self, are_there: bool) -> None:
        """Whether there is any other node."""
        self._watches.nodes(are_there)

    # -- watches for flows that have waited

    def _promote_later(self) -> None:
        if self._waiting and self._promotion is None and self._session is not None:
            self._promotion = self._loop.call_later(_PROMOTE_S, self._promote)

    def _promote(self) -> None:
        """Give watches of their own to flows that have waited, as far as the budget goes. Each is looked at in turn."""
        self._promotion = None
        for key in list(islice(self._waiting, _PROMOTED_AT_ONCE)):
            if key not in self._waiting:  # who was told of an earlier one has forgotten it
                continue
            own = watch_for(key)
            is_there = own in self._watches.watches
            del self._waiting[key]
            if not is_there and not self._may_make(own, key):
                self._waiting[key] = None
                continue
            self._forgotten(self._watches.move(key, own))
            if not is_there and own in self._watches.watches:
                self._made(own)
        self._promote_later()

    # -- nodes

    def node_lost(self) -> None:
        """A node was lost. A moment later it is known who still listens, or that the node is back."""
        if self._session is not None:
            self._watches.node_lost()
            if self._recheck is None:
                self._has_come = False
                self._recheck = self._loop.call_later(RECHECK_S, self._end_recheck)

    def _end_recheck(self) -> None:
        self._recheck = None
        self._watches.end_recheck(self._has_come, self._loop.time())
        self._set_timer()

    def node_came(self) -> None:
        """A node came. Its subscriptions are about to be known."""
        self._has_come = True
        if self._session is not None:
            self._watches.node_came(self._loop.time())
            self._set_timer()

    # -- matches

    def _first_status(self, key: str, is_matched: bool) -> None:
        """The status when the key was declared, unless the listener was called since."""
        watch = self._watches.watches.get(key)
        if watch is not None and watch.matched is None:
            self._watches.matched(key, is_matched, self._loop.time())
            self._set_timer()

    def _matched(self, key: str, is_matched: bool) -> None:
        """The listener was called. Several threads of Zenoh may call it in any order, so the status is verified later."""
        if self._session is None:
            return
        self._watches.matched(key, is_matched, self._loop.time())
        self._set_timer()
        if not self._unverified:
            self._loop.call_later(GRACE_S, self._verify)
        self._unverified.add(key)

    def _verify(self) -> None:
        keys, self._unverified = self._unverified, set()
        if self._session is not None:
            self._control.post(lambda: self._verify_blocking(keys))

    def _verified(self, key: str, is_matched: bool) -> None:
        watch = self._watches.watches.get(key)
        if watch is not None and watch.matched is not is_matched:
            self._matched(key, is_matched)

    def _set_timer(self) -> None:
        if self._timer is None and self._session is not None and (when_s := self._watches.next_s()) is not None:
            self._timer = self._loop.call_at(when_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._watches.tick(self._loop.time())
        self._set_timer()

    # -- control thread

    def _declare(self, session: zenoh.Session, key: str) -> None:
        self._control.post(lambda: self._declare_blocking(session, key))

    def _declare_blocking(self, session: zenoh.Session, key: str) -> None:
        if key in self._declared:
            return
        publisher = session.declare_publisher(key, allowed_destination=zenoh.Locality.REMOTE)
        listener = publisher.declare_matching_listener(self._listener(key))
        self._declared[key] = (publisher, listener)
        # The listener is not called while there is no match.
        tell_loop(self._loop, self._first_status, key, is_matching(publisher))

    def _listener(self, key: str) -> Callable[[zenoh.MatchingStatus], None]:
        def on_status(status: zenoh.MatchingStatus) -> None:  # on a thread of Zenoh
            tell_loop(self._loop, self._matched, key, status.matching)

        return on_status

    def _undeclare_blocking(self, key: str) -> None:
        if (declared := self._declared.pop(key, None)) is not None:
            publisher, listener = declared
            listener.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
            publisher.undeclare()  # type: ignore[no-untyped-call]  # the same

    def _verify_blocking(self, keys: set[str]) -> None:
        for key in keys:
            if (declared := self._declared.get(key)) is not None:
                tell_loop(self._loop, self._verified, key, is_matching(declared[0]))


def is_matching(publisher: zenoh.Publisher) -> bool:
    """Whether somebody listens to what ``publisher`` sends."""
    return bool(publisher.matching_status.matching)  # type: ignore[attr-defined]  # the stubs say bool
