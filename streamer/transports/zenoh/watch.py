"""Watches keys: one Zenoh publisher per key, whose matching listener says whether anybody listens.

Runs on the event loop, and declares on the control thread. What the answers mean is in `reach`. Declaring one takes 0.5 ms
(8192 of them: 4 s); after it is undeclared nothing is left of it, here or in other nodes.
"""

import asyncio
import logging
from collections.abc import Callable

import zenoh

from streamer.transports.base import Presence
from streamer.transports.zenoh.control import Control, tell_loop
from streamer.transports.zenoh.reach import GRACE_S, QUESTION_S, OnPresence, Presences

logger = logging.getLogger("ustreamer.zenoh")

MAX_KEYS = 8192

_Declared = tuple[zenoh.Publisher, zenoh.MatchingListener[None]]


class Watch:
    """The watched keys of one session."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop
        self._control: Control
        self._session: zenoh.Session | None = None
        self._reaches = Presences()
        self._declared: dict[str, _Declared] = {}  # control thread
        self._unwatched = 0
        self._timer: asyncio.TimerHandle | None = None
        self._doubtful: set[str] = set()
        self._question: asyncio.TimerHandle | None = None
        self._has_come = False

    def open(self, loop: asyncio.AbstractEventLoop, control: Control, session: zenoh.Session) -> None:
        """The session is open: declare what is watched already."""
        self._loop = loop
        self._control = control
        self._session = session
        for key in self._reaches.keys:
            self._declare(session, key)

    def close(self) -> None:
        """Say nothing any more."""
        self._session = None
        if self._question is not None:
            self._question.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, name: str, on_presence: OnPresence) -> Presence:
        """Watch a key. Beyond `MAX_KEYS` it is not, and counts as heard."""
        if name not in self._reaches.keys and len(self._reaches.keys) >= MAX_KEYS:
            if not self._unwatched:
                logger.warning("zenoh_keys_unwatched endpoint=%s: more than %d flows", self._name, MAX_KEYS)
            self._unwatched += 1
            return Presence.PRESENT
        key, is_new = self._reaches.add(name, on_presence)
        if is_new and self._session is not None:
            self._declare(self._session, name)
        return key.reach

    def remove(self, name: str, on_presence: OnPresence) -> None:
        """The opposite. Unknown ones are ignored."""
        if self._reaches.remove(name, on_presence) and self._session is not None:
            self._control.post(lambda: self._undeclare_blocking(name))

    def nodes(self, are_there: bool) -> None:
        """Whether there is any other node."""
        self._reaches.nodes(are_there)

    def node_lost(self) -> None:
        """A node was lost; a moment later it is known who still listens, or that it is back."""
        if self._session is not None:
            self._reaches.node_lost()
            if self._question is None:
                self._has_come = False
                self._question = self._loop.call_later(QUESTION_S, self._answer)

    def _answer(self) -> None:
        self._question = None
        self._reaches.answer(self._has_come, self._loop.time())
        self._set_timer()

    def node_came(self) -> None:
        """A node came; what it listens to is about to be known."""
        self._has_come = True
        if self._session is not None:
            self._reaches.node_came(self._loop.time())
            self._set_timer()

    def _first_status(self, name: str, is_matched: bool) -> None:
        """What was true when the key was declared, unless the listener has said more since."""
        key = self._reaches.keys.get(name)
        if key is not None and key.matched is None:
            self._reaches.matched(name, is_matched, self._loop.time())
            self._set_timer()

    def _matched(self, name: str, is_matched: bool) -> None:
        """The listener's word. Its calls may come from several threads of Zenoh, so the last one is verified later."""
        if self._session is None:
            return
        self._reaches.matched(name, is_matched, self._loop.time())
        self._set_timer()
        if not self._doubtful:
            self._loop.call_later(GRACE_S, self._verify)
        self._doubtful.add(name)

    def _verify(self) -> None:
        names, self._doubtful = self._doubtful, set()
        if self._session is not None:
            self._control.post(lambda: self._verify_blocking(names))

    def _verified(self, name: str, is_matched: bool) -> None:
        key = self._reaches.keys.get(name)
        if key is not None and key.matched is not is_matched:
            self._matched(name, is_matched)

    def _set_timer(self) -> None:
        if self._timer is None and self._session is not None and (when_s := self._reaches.next_s()) is not None:
            self._timer = self._loop.call_at(when_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._reaches.tick(self._loop.time())
        self._set_timer()

    def _declare(self, session: zenoh.Session, name: str) -> None:
        self._control.post(lambda: self._declare_blocking(session, name))

    # -- control thread

    def _declare_blocking(self, session: zenoh.Session, name: str) -> None:
        if name in self._declared:
            return
        publisher = session.declare_publisher(name, allowed_destination=zenoh.Locality.REMOTE)
        listener = publisher.declare_matching_listener(self._teller(name))
        self._declared[name] = (publisher, listener)
        # A listener is not called while there is no match.
        tell_loop(self._loop, self._first_status, name, is_matching(publisher))

    def _teller(self, name: str) -> Callable[[zenoh.MatchingStatus], None]:
        def on_status(status: zenoh.MatchingStatus) -> None:  # on a thread of Zenoh
            tell_loop(self._loop, self._matched, name, status.matching)

        return on_status

    def _undeclare_blocking(self, name: str) -> None:
        if (declared := self._declared.pop(name, None)) is not None:
            publisher, listener = declared
            listener.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
            publisher.undeclare()  # type: ignore[no-untyped-call]  # the same

    def _verify_blocking(self, names: set[str]) -> None:
        for name in names:
            if (declared := self._declared.get(name)) is not None:
                tell_loop(self._loop, self._verified, name, is_matching(declared[0]))


def is_matching(publisher: zenoh.Publisher) -> bool:
    """Whether somebody listens to what ``publisher`` sends."""
    return bool(publisher.matching_status.matching)  # type: ignore[attr-defined]  # the stubs say bool
