"""The base of the two kinds of Zenoh subscription: they bring the samples of one filter to the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import zenoh

from streamer.transports.listeners import Filter

BATCH: Final = 64
"""The most samples that are taken in one iteration of the event loop."""

_MAX_RETAINED_KEYS: Final = 512

Take = Callable[["KeySubscription", Sequence[zenoh.Sample]], None]
Ended = Callable[["KeySubscription"], None]


class Gate:
    """Says whether subscriptions may deliver. Thousands of them share one gate; those with samples register with `wait`."""

    def __init__(self) -> None:
        self.is_open = True
        self._waiting: list[KeySubscription] = []

    def close(self) -> None:
        """Stop deliveries: samples fill the buffers, then Zenoh applies back-pressure to the senders."""
        self.is_open = False

    def open(self) -> None:
        """Resume deliveries, and have waiting subscriptions drain."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for subscription in waiting:
            subscription.go_on()

    def wait(self, subscription: "KeySubscription") -> None:
        """Have a subscription drain once the gate is open."""
        self._waiting.append(subscription)


class OpenKeys:
    """Retains key numbers that several subscriptions of a session can need. For the control thread.

    Zenoh gives a number to the part of a subscription's key before its first wildcard, and samples come under the longest
    such part of their key. The number ends with its last subscription, and then Zenoh drops samples that are being delivered
    under it, even to another subscription. So the key is declared until the session is closed, if another subscription can
    need it.
    """

    def __init__(self, session: zenoh.Session) -> None:
        self._session = session
        self._wide: list[zenoh.KeyExpr] = []
        self._retained: dict[str, zenoh.KeyExpr] = {}  # Zenoh undeclares an unreferenced key

    def opening(self, key: str) -> None:
        """Record the key of a subscription that is about to be declared."""
        if "*" in key:
            self._wide.append(zenoh.KeyExpr(key))

    def closing(self, key: str) -> None:
        """Retain the number of a subscription's key, if necessary, before the subscription is undeclared."""
        own = zenoh.KeyExpr(key)
        if "*" in key:
            self._wide.remove(own)
        numbered = key.split("*", 1)[0].rstrip("/")
        if numbered in self._retained or len(self._retained) == _MAX_RETAINED_KEYS:
            return
        if any(map(own.intersects, self._wide)):
            self._retained[numbered] = self._session.declare_keyexpr(numbered)


class KeySubscription:
    """The subscription to one filter. ``take`` gets samples on the loop; ``ended`` is called there when no more can come.

    Call `declare` and `undeclare`, which can block, on the control thread, and everything else on the loop. The owner uses
    ``closing``, ``opened`` (a number that grows with each subscription), and ``topics``: the keys of the topics that a wide
    subscription brings, with such a number for each. ``discarded`` counts the samples that came after `abandon`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Ended, gate: Gate, is_wide: bool = False
    ) -> None:
        self.filter = of
        self.opened = 0
        self.topics: dict[str, int] | None = {} if is_wide else None
        self.closing = False
        self.discarded = 0
        self._loop = loop
        self._take = take
        self._ended = ended
        self._subscriber: zenoh.Subscriber[Any] | None = None
        self._gate = gate
        self._abandoned = False

    def opened_for(self, key: str) -> int:
        """Return when the subscription was opened for samples with this key, as a number that grows."""
        return self.opened if self.topics is None else self.topics.get(key, self.opened)

    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe to a key, with room for ``buffer`` samples. Samples that this session puts itself do not arrive."""
        raise NotImplementedError

    def undeclare(self) -> None:
        """Unsubscribe. Waiting samples are still taken, then the subscription ends."""
        if self._subscriber is None:
            self._never_declared()
        else:
            self._subscriber.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type

    def _never_declared(self) -> None:
        """End a subscription that was never declared."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Schedule the delivery of waiting samples. For the gate."""
        self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Deliver some of the waiting samples, unless the gate is closed."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Discard and count all further samples, so that no thread of Zenoh waits for room."""
        raise NotImplementedError
