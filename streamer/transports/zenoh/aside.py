"""What the streamers of one authority say to each other beside all messages: little, often, and it may be lost.

Anybody on the network can publish there, so what comes is bounded, and nothing here believes it.
"""

import asyncio
import threading
from collections.abc import Callable

import zenoh

from streamer.transports.zenoh.control import ControlThread, tell_loop

KEY = "ustreamer/aside"
"""The key expression up to the authority."""

_MAX_BYTES = 1024
_MAX_WAITING = 64


class Aside:
    """Listens and speaks for one session. ``take`` is called on the event loop with what others have said."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        authority: str,
        take: Callable[[bytes], None],
    ) -> None:
        self._loop = loop
        self._control = control
        self._session = session
        self._key = f"{KEY}/{authority}"
        self._take = take
        self._heard = threading.Semaphore(_MAX_WAITING)  # what waits for the event loop
        self._said = threading.Semaphore(_MAX_WAITING)  # what waits for the control thread
        self._subscriber: object = None

    def listen(self) -> None:
        """Subscribe. For the control thread."""
        self._subscriber = self._session.declare_subscriber(self._key, self._on_sample, allowed_origin=zenoh.Locality.REMOTE)

    def say(self, payload: bytes) -> None:
        """Publish, unless that is slow."""
        if self._said.acquire(blocking=False):
            self._control.post(lambda: self._put(payload))

    def _put(self, payload: bytes) -> None:
        try:
            self._session.put(
                self._key,
                payload,
                congestion_control=zenoh.CongestionControl.DROP,
                priority=zenoh.Priority.REAL_TIME,
                express=True,
                allowed_destination=zenoh.Locality.REMOTE,
            )
        finally:
            self._said.release()

    def _on_sample(self, sample: zenoh.Sample) -> None:
        """On one of Zenoh's threads."""
        if len(sample.payload) <= _MAX_BYTES and self._heard.acquire(blocking=False):
            tell_loop(self._loop, self._hear, bytes(sample.payload))

    def _hear(self, payload: bytes) -> None:
        self._heard.release()
        self._take(payload)
