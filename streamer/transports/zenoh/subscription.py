"""The base of the two kinds of Zenoh subscription: they bring the samples of one filter to the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import zenoh

from streamer.transports.listeners import Filter

BATCH: Final = 64
"""The most samples that are taken in one turn of the loop."""

_MAX_RETAINED_KEYS: Final = 512

Take = Callable[["KeySubscription", Sequence[zenoh.Sample]], None]
Ended = Callable[["KeySubscription"], None]


class Gate:
    """Whether subscriptions may deliver. One for thousands of them, of which few have anything to deliver."""

    def __init__(self) -> None:
        self.is_open = True
        self._waiting: list[KeySubscription] = []

    def close(self) -> None:
        """Have them take nothing: samples fill their buffers, then Zenoh holds the senders back."""
        self.is_open = False

    def open(self) -> None:
        """Go on after `close`."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for subscription in waiting:
            subscription.go_on()

    def wait(self, subscription: "KeySubscription") -> None:
        """Have a subscription go on once the gate is open."""
        self._waiting.append(subscription)


class OpenKeys:
    """The keys of the subscriptions of one session. For the control thread.

    Zenoh gives a number to what a subscription's key has before its first wildcard, and samples come under the longest such
    part of their key. With its last subscription the number goes, and Zenoh drops what is being delivered under it, even to
    another subscription. So it is held, until the session is closed, if another subscription can need it.
    """

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session
        self._wide: list[zenoh.KeyExpr] = []
        self._retained: dict[str, zenoh.KeyExpr] = {}  # a key that nobody holds is undeclared

    def opening(self, key: str) -> None:
        """A subscription is about to be declared."""
        if "*" in key:
            self._wide.append(zenoh.KeyExpr(key))

    def closing(self, key: str) -> None:
        """The subscription is about to be undeclared."""
        own = zenoh.KeyExpr(key)
        if "*" in key:
            self._wide.remove(own)
        numbered = key.split("*", 1)[0].rstrip("/")
        if numbered in self._retained or len(self._retained) == _MAX_RETAINED_KEYS:
            return
        if any(map(own.intersects, self._wide)):
            self._retained[numbered] = self._session.declare_keyexpr(numbered)


class KeySubscription:
    """The samples of one filter. ``take`` gets them on the loop; ``ended`` is called there when no more can come.

    Call `declare` and `undeclare`, which can block, on the control thread, and everything else on the loop. ``closing`` and
    ``opened``, a number that grows with each, are for the owner. So are ``topics``, the keys that a wide subscription is
    for, with such a number for each. ``discarded`` counts the samples that came after `abandon`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Ended, gate: Gate) -> None:
        self.filter = of
        self.opened = 0
        self.topics: dict[str, int] | None = None
        self.closing = False
        self.discarded = 0
        self._loop = loop
        self._take = take
        self._ended = ended
        self._subscriber: zenoh.Subscriber[Any] | None = None
        self._gate = gate
        self._abandoned = False

    def opened_for(self, key: str) -> int:
        """The number for samples with this key."""
        return self.opened if self.topics is None else self.topics.get(key, self.opened)

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe, with room for ``buffer`` samples. What this session sends itself does not arrive."""
        raise NotImplementedError

    def undeclare(self) -> None:
        """Unsubscribe. What is waiting is still taken, then the subscription ends."""
        if self._subscriber is None:
            self._never_declared()
        else:
            self._subscriber.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type

    def _never_declared(self) -> None:
        """End a subscription that was never declared."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Deliver what waits; for the gate."""
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Deliver some of what waits, unless the gate is closed."""
        raise NotImplementedError

    def abandon(self) -> None:
        """From now on discard and count what comes, so that nothing in Zenoh waits for room."""
        raise NotImplementedError
