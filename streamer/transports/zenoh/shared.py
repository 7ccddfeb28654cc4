"""The nodes of a Zenoh session by their ids, and a side channel for short messages that may be lost.

Anybody on the network can publish on the side channel, so what comes is bounded, and nothing here believes it.
"""

import asyncio
import threading
from collections.abc import Callable, Collection

import zenoh

from streamer.transports.shared_network import SharedNetwork
from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.nodes import Nodes

KEY = "ustreamer/aside"
"""The key expression of the side channel, up to the authority."""

_MAX_BYTES = 1024
_MAX_WAITING = 64


class ZenohNetwork(SharedNetwork):
    """One endpoint's network. ``take`` of `listen` is called on the event loop."""

    def __init__(self, own: str, authority: str) -> None:
        self.own = own
        self._key = f"{KEY}/{authority}"
        self._take: Callable[[bytes], None] | None = None
        self._heard = threading.Semaphore(_MAX_WAITING)  # what waits for the event loop
        self._said = threading.Semaphore(_MAX_WAITING)  # what waits for the control thread
        self._subscriber: object = None
        self._open: tuple[asyncio.AbstractEventLoop, ControlThread, zenoh.Session, Nodes] | None = None

    def others(self) -> Collection[str]:
        return () if self._open is None else {zid for zid, _ in self._open[3].present}

    def listen(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def say(self, payload: bytes) -> None:
        if self._open is not None and self._subscriber is not None and self._said.acquire(blocking=False):
            _, control, session, _ = self._open
            control.post(lambda: self._put(session, payload))

    async def open(
        self, loop: asyncio.AbstractEventLoop, control: ControlThread, session: zenoh.Session, nodes: Nodes
    ) -> None:
        """Use an open session from now on."""
        self._open = loop, control, session, nodes
        if self._take is not None:
            await control.ask(lambda: self._subscribe(session))

    def close(self) -> None:
        """Say nothing more."""
        self._open = None

    # -- control thread

    def _subscribe(self, session: zenoh.Session) -> None:
        self._subscriber = session.declare_subscriber(self._key, self._on_sample, allowed_origin=zenoh.Locality.REMOTE)

    def _put(self, session: zenoh.Session, payload: bytes) -> None:
        try:
            session.put(
                self._key,
                payload,
                congestion_control=zenoh.CongestionControl.DROP,
                priority=zenoh.Priority.REAL_TIME,
                express=True,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        finally:
            self._said.release()

    # -- threads of Zenoh

    def _on_sample(self, sample: zenoh.Sample) -> None:
        opened = self._open
        if opened is not None and len(sample.payload) <= _MAX_BYTES and self._heard.acquire(blocking=False):
            tell_loop(opened[0], self._hear, bytes(sample.payload))

    # -- loop

    def _hear(self, payload: bytes) -> None:
        self._heard.release()
        if self._take is not None:
            self._take(payload)
