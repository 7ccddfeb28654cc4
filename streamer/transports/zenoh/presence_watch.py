"""Gets the matching status of each flow: polls a publisher, or has a matching listener report changes.

Runs on the event loop, and declares on the control thread. `presence` defines what the results mean.

A flow is *watched* if there is room for a matching listener. Each listener makes every declaration slower (by 0.7 µs): where
a node subscribes to everything, Zenoh goes through all listeners whenever a publisher is declared. Therefore the number of
watches and their rate are bounded. All other flows are *polled*: when they are added, when a node comes or is lost, and in
rotation. A poll takes 1 µs if there is a publisher: flows with much traffic have one (`sender`), and others are *kept* here.
A kept publisher takes 4 KiB and makes every new flow slower (by 0.15 µs), so their number is bounded as well; beyond it a
publisher is declared for each poll. Undeclaring leaves nothing behind between peers. As a client of a router, each key that
was declared costs memory for the life of the session (docs/troubleshooting.md, "What Zenoh keeps").
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from math import ceil

import zenoh

from streamer.rate import ByKey, TokenBucket
from streamer.transports.base import Presence
from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.presence import GRACE_S, RECHECK_S, OnPresence, WatchedFlows

logger = logging.getLogger("ustreamer.zenoh")

_POLLS_PER_S = 4
_FLOWS_PER_POLL = 64
"""The most flows in one call on the control thread, and in one round of `_poll_unwatched`, of which there are
`_POLLS_PER_S`. So a flow is polled once a second, or less often."""

MAX_WATCHES = 256
MAX_WATCHES_PER_AUTHORITY = MAX_WATCHES // 2
"""So that half of the watches are left for other authorities."""

BURST = 64  # watches that may be made at once; `_WATCHES_PER_S` after that
BURST_PER_AUTHORITY = 32
_WATCHES_PER_S = 16.0
_WATCHES_PER_S_PER_AUTHORITY = 8.0
_AUTHORITIES = 256

MAX_KEPT = 128
"""The most publishers that are kept for flows without a watch."""

Find = Callable[[str], zenoh.Publisher | None]

Answers = dict[str, bool | None]
"""Whether somebody listens to each key; None if Zenoh has failed to answer."""

_Declared = tuple[zenoh.Publisher, zenoh.MatchingListener[None]]


class WatchBudget:
    """Limits how many flows are watched, and how fast watches are made: in total, and per source authority.

    A sender may invent authorities. With many of them it still gets no more than the total.
    """

    def __init__(self) -> None:
        self._authorities: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._bucket = TokenBucket(_WATCHES_PER_S, BURST)
        self._buckets = ByKey(lambda: TokenBucket(_WATCHES_PER_S_PER_AUTHORITY, BURST_PER_AUTHORITY), _AUTHORITIES)

    def make(self, flow: str, now_s: float) -> bool:
        """Count one more watch of a flow, identified by its key. Return False if it is not allowed now."""
        authority = flow.split("/", 2)[1]
        if len(self._authorities) >= MAX_WATCHES or self._counts[authority] >= MAX_WATCHES_PER_AUTHORITY:
            return False
        if self._bucket.left(now_s) < 1 or not self._buckets.of(authority, now_s).take(now_s):
            return False
        self._bucket.spend(1)
        self._authorities[flow] = authority
        self._counts[authority] += 1
        return True

    def forget(self, flow: str) -> bool:
        """Remove a flow. Return whether it was watched."""
        authority = self._authorities.pop(flow, None)
        if authority is None:
            return False
        self._counts[authority] -= 1
        if not self._counts[authority]:
            del self._counts[authority]
        return True


class _StatusPolls:
    """Polls the matching status of keys on the control thread, `_FLOWS_PER_POLL` at a time, and reports the answers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        blocking: Callable[[list[str]], Answers],
        answered: Callable[[Answers], None],
    ) -> None:
        """``blocking`` is called on the control thread, and returns the answers for some keys."""
        self._loop = loop
        self._control = control
        self._blocking = blocking
        self._answered = answered
        self._keys: dict[str, None] = {}
        self._is_asking = False
        self._is_open = True

    def close(self) -> None:
        """Stop polling."""
        self._is_open = False

    def ask(self, keys: Iterable[str]) -> None:
        """Add keys to those that are polled soon."""
        self._keys.update(dict.fromkeys(keys))
        if self._keys and not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask_some)

    def forget(self, key: str) -> None:
        """Remove a key that was not polled yet."""
        self._keys.pop(key, None)

    def _ask_some(self) -> None:
        keys = list(islice(self._keys, _FLOWS_PER_POLL))
        if not self._is_open or not keys:
            self._is_asking = False
            return
        for key in keys:
            del self._keys[key]
        self._control.post(lambda: self._ask_blocking(keys))

    def _ask_blocking(self, keys: list[str]) -> None:
        tell_loop(self._loop, self._tell, self._blocking(keys))

    def _tell(self, answers: Answers) -> None:
        if self._is_open:
            self._answered(answers)
        self._ask_some()


class PresenceWatch:
    """Watches and polls the flows of one session, beginning with those that are in ``flows``.

    ``sending`` returns the publisher with which messages are put on a key, or None. It is called on the control thread.
    ``undeclaring`` is locked while a publisher is undeclared: if another publisher with the same key were declared
    meanwhile, Zenoh would take back the number of the key, and the first messages would be lost. ``now_s`` is a monotonic
    clock, for budgets.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        sending: Find,
        undeclaring: threading.Lock,
        flows: WatchedFlows,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._control = control
        self._session = session
        self._sending = sending
        self._undeclaring = undeclaring
        self._flows = flows
        self._now_s = now_s
        self._is_closed = False
        self._declared: dict[str, _Declared] = {}  # of watched flows; used on the control thread
        self._kept: dict[str, zenoh.Publisher] = {}  # of other flows; used on the control thread
        self._budget = WatchBudget()
        self._without_status: set[str] = set()  # watched flows whose first status has not come yet
        self._unwatched: dict[str, None] = {}  # the flow to poll next comes first
        self._polls = _StatusPolls(loop, control, self._ask_blocking, self._answered)
        self._ends_of_grace = _StatusPolls(loop, control, self._ask_blocking, self._answered_after_grace)
        self._next_poll: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unverified: set[str] = set()
        self._recheck: asyncio.TimerHandle | None = None
        self._lost: set[str] = set()
        self._is_back = False
        for key in flows.by_key:
            self._follow(key)

    def close(self) -> None:
        """Stop reporting."""
        self._is_closed = True
        for polls in (self._polls, self._ends_of_grace):
            polls.close()
        for timer in (self._recheck, self._timer, self._next_poll):
            if timer is not None:
                timer.cancel()

    def add(self, key: str, on_presence: OnPresence) -> Presence:
        """Return the presence of a flow, identified by its key, and report later changes to ``on_presence``."""
        flow, is_new = self._flows.add(key, on_presence)
        if is_new and not self._is_closed:
            self._follow(key)
        return flow.presence

    def remove(self, key: str, on_presence: OnPresence) -> None:
        """Stop reporting a flow to ``on_presence``. An unknown flow is ignored."""
        if not self._flows.remove(key, on_presence):
            return
        self._unwatched.pop(key, None)
        self._polls.forget(key)
        self._ends_of_grace.forget(key)
        self._without_status.discard(key)
        self._budget.forget(key)
        if not self._is_closed:
            self._control.post(lambda: self._undeclare_blocking(key))

    def _follow(self, key: str) -> None:
        if not self._watch(key):
            self._unwatched[key] = None
            self._polls.ask([key])
            self._schedule_poll()

    def _watch(self, key: str) -> bool:
        """Watch a flow, if the budget allows it. Return whether it does."""
        if not self._budget.make(key, self._now_s()):
            return False
        self._without_status.add(key)
        self._control.post(lambda: self._declare_blocking(key))
        return True

    def _watch_failed(self, key: str) -> None:
        """Poll a flow that could not be watched."""
        if key in self._flows.by_key and not self._is_closed:
            self._budget.forget(key)
            self._without_status.discard(key)
            self._unwatched[key] = None
            self._schedule_poll()

    # -- flows without a watch

    def _schedule_poll(self) -> None:
        if self._unwatched and self._next_poll is None and not self._is_closed:
            self._next_poll = self._loop.call_later(1 / _POLLS_PER_S, self._poll_unwatched)

    def _poll_unwatched(self) -> None:
        """Watch the next flows as far as the budget allows, and poll the others."""
        self._next_poll = None
        if self._is_closed:
            return
        for key in list(islice(self._unwatched, min(_FLOWS_PER_POLL, ceil(len(self._unwatched) / _POLLS_PER_S)))):
            del self._unwatched[key]
            if not self._watch(key):
                self._unwatched[key] = None
                self._polls.ask([key])
        self._schedule_poll()

    def _unwatched_but(self, matched: bool) -> list[str]:
        """Return the flows without a watch whose matching status is not ``matched``."""
        return [key for key in self._unwatched if self._flows.by_key[key].matched is not matched]

    def _answered(self, answers: Answers) -> None:
        now_s = self._loop.time()
        for key, is_matched in answers.items():
            if key in self._unwatched and is_matched is not None:
                self._flows.matched(key, is_matched, now_s)
        self._set_timer()

    # -- nodes

    def node_lost(self, node: str) -> None:
        """Recheck all flows, because a node was lost. `_end_recheck` follows, `RECHECK_S` after the first of several."""
        if not self._is_closed:
            self._lost.add(node)
            self._flows.node_lost()
            for key in self._unwatched_but(False):
                self._flows.invalidate(key)
            if self._recheck is None:
                self._recheck = self._loop.call_later(RECHECK_S, self._end_recheck)

    def _end_recheck(self) -> None:
        self._recheck = None
        self._flows.end_recheck(self._is_back, self._loop.time())
        self._lost.clear()
        self._is_back = False
        self._polls.ask(self._unwatched_but(False))
        self._set_timer()

    def node_came(self, node: str) -> None:
        """Wait for the subscriptions of a node that came."""
        self._is_back |= node in self._lost
        if not self._is_closed:
            self._flows.node_came(self._loop.time())
            for key in self._unwatched_but(True):
                self._flows.invalidate(key)
            self._set_timer()

    def node_settled(self) -> None:
        """Poll flows without a match: the subscriptions of a node that came are known."""
        if not self._is_closed:
            self._polls.ask(self._unwatched_but(True))

    # -- matches

    def _first_status(self, key: str, is_matched: bool) -> None:
        """Record the status from when a flow's watch began, unless the listener was called since."""
        if key in self._without_status:
            self._without_status.discard(key)
            self._flows.matched(key, is_matched, self._loop.time())
            self._set_timer()

    def _matched(self, key: str, is_matched: bool) -> None:
        """Record what a listener reported. Threads of Zenoh may call it in any order, so the status is verified later."""
        if self._is_closed:
            return
        self._without_status.discard(key)
        self._flows.matched(key, is_matched, self._loop.time())
        self._set_timer()
        if not self._unverified:
            self._loop.call_later(GRACE_S, self._verify)
        self._unverified.add(key)

    def _verify(self) -> None:
        keys, self._unverified = self._unverified, set()
        if not self._is_closed:
            self._control.post(lambda: self._verify_blocking(keys))

    def _verified(self, key: str, is_matched: bool) -> None:
        flow = self._flows.by_key.get(key)
        if flow is not None and flow.matched is not is_matched:
            self._matched(key, is_matched)

    def _set_timer(self) -> None:
        if self._timer is None and not self._is_closed and (when_s := self._flows.next_s()) is not None:
            self._timer = self._loop.call_at(when_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._ends_of_grace.ask(self._flows.take_ended_graces(self._loop.time()))
        self._set_timer()

    def _answered_after_grace(self, answers: Answers) -> None:
        for key, is_matched in answers.items():
            self._flows.poll_answered(key, bool(is_matched))

    # -- control thread

    def _declare_blocking(self, key: str) -> None:
        if key in self._declared:
            return
        # Zenoh would start a thread for a plain function.
        callback = zenoh.handlers.Callback(self._listener(key), indirect=False)
        try:
            publisher = self._kept[key] = self._kept.get(key) or _publisher(self._session, key)
            self._declared[key] = (publisher, publisher.declare_matching_listener(callback))
            del self._kept[key]
        except zenoh.ZError as exc:
            logger.warning("zenoh_call_failed error=%s", exc)
            tell_loop(self._loop, self._watch_failed, key)
            return
        # The listener is not called while there is no match.
        tell_loop(self._loop, self._first_status, key, is_matching(publisher))

    def _listener(self, key: str) -> Callable[[zenoh.MatchingStatus], None]:
        def on_status(status: zenoh.MatchingStatus) -> None:  # on a thread of Zenoh
            tell_loop(self._loop, self._matched, key, status.matching)

        return on_status

    def _undeclare_blocking(self, key: str) -> None:
        publisher = self._kept.pop(key, None)
        if (declared := self._declared.pop(key, None)) is not None:
            publisher, listener = declared
            listener.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
        if publisher is not None:
            with self._undeclaring:
                _undeclare(publisher)

    def _ask_blocking(self, keys: list[str]) -> Answers:
        answers: Answers = dict.fromkeys(keys)
        for key in keys:
            try:
                known = self._declared[key][0] if key in self._declared else self._kept.get(key) or self._sending(key)
                if known is None and len(self._kept) < MAX_KEPT:
                    known = self._kept[key] = _publisher(self._session, key)
                answers[key] = is_matching(known) if known else self._is_matching_now(key)
            except zenoh.ZError as exc:
                logger.warning("zenoh_call_failed error=%s", exc)
        return answers

    def _is_matching_now(self, key: str) -> bool:
        with self._undeclaring:
            publisher = _publisher(self._session, key)
            try:
                return is_matching(publisher)
            finally:
                _undeclare(publisher)

    def _verify_blocking(self, keys: set[str]) -> None:
        for key in keys:
            if (declared := self._declared.get(key)) is not None:
                tell_loop(self._loop, self._verified, key, is_matching(declared[0]))


def is_matching(publisher: zenoh.Publisher) -> bool:
    """Return whether somebody listens to the messages of ``publisher``."""
    return bool(publisher.matching_status.matching)  # type: ignore[attr-defined]  # the stubs say bool


def _publisher(session: zenoh.Session, key: str) -> zenoh.Publisher:
    return session.declare_publisher(key, allowed_destination=zenoh.Locality.REMOTE)


def _undeclare(publisher: zenoh.Publisher) -> None:
    publisher.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
