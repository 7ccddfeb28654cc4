"""What both kinds of subscription have in common: samples of one filter, on their way to the event loop."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import zenoh

from streamer.transports.listeners import Filter

BATCH = 256
"""Samples that are taken in one turn of the loop."""

Take = Callable[["Inflow", Sequence[zenoh.Sample]], None]


class Inflow(ABC):
    """Samples of one filter. ``take`` gets them on the loop; ``ended`` is called there when no more can come.

    ``declare`` and ``undeclare`` can block and are for the control thread; everything else is for the loop. ``closing`` is
    its owner's; ``discarded`` counts what came after `abandon`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, of: Filter, take: Take, ended: Callable[["Inflow"], None]) -> None:
        self.filter = of
        self.closing = False
        self.discarded = 0
        self._loop = loop
        self._take = take
        self._ended = ended
        self._subscriber: zenoh.Subscriber[Any] | None = None
        self._paused = False
        self._abandoned = False

    @abstractmethod
    def declare(self, session: zenoh.Session, key: str, buffer: int) -> None:
        """Subscribe; at most ``buffer`` samples wait. What this session itself sends does not come."""

    def undeclare(self) -> None:
        """Unsubscribe. What waits still comes, then it ends."""
        if self._subscriber is None:
            self._never_declared()
        else:
            self._subscriber.undeclare()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type

    @abstractmethod
    def _never_declared(self) -> None:
        """It ends without having begun."""

    def pause(self) -> None:
        """Take nothing more: what waits fills its room, then Zenoh holds the sender back."""
        self._paused = True

    @abstractmethod
    def resume(self) -> None:
        """Go on after `pause`."""

    @abstractmethod
    def abandon(self) -> None:
        """From now on throw away what comes, and count it: nothing in Zenoh may wait for room."""
