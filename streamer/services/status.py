"""Publishes the streamer's status on a topic of core.ustreamer, at regular intervals and when its health changes.

It is a Publish like any other: it goes to the networks inside the device, and to subscribers elsewhere. An old status is
worthless, so it expires after some intervals; that, and the rate of changes, bounds how many wait for a network that is
away.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from streamer.clock import Clock
from streamer.config.push import StatusConfig
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Options, UPayloadFormat, publish
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.well_known import STATUS, USTREAMER

LIFETIME = 3
"""After so many intervals a status expires."""

_LOOK_S = 1.0  # how often health is looked at; what is told by `health_changed` is seen at once
_CHANGES = 10  # per interval: how many changes of health are told at once

logger = logging.getLogger("ustreamer.status")


class StreamerView(Protocol):
    """How the streamer is now."""

    def health(self) -> Sequence[str]:
        """What is wrong with it, in words. Cheap."""

    def status(self) -> pb.Status:
        """All that is told."""


class StatusService:
    """Publishes while there are options; None: off."""

    def __init__(
        self, transport: LocalTransport, options: StatusConfig | None, view: StreamerView | None, clock: Clock
    ) -> None:
        self._transport = transport
        self._options = options
        self._view = view
        self._clock = clock
        self._published_s = 0.0
        self._health: Sequence[str] | None = None  # as it was told last
        self._woken = asyncio.Event()

    def use(self, options: StatusConfig | None) -> None:
        """Publish as these options say from now on."""
        if options != self._options:
            self._options, self._health = options, None
            self._woken.set()

    def health_changed(self) -> None:
        """The health may have changed."""
        if self._options is not None:
            self._woken.set()

    async def run(self) -> None:
        """Serve until cancelled. Without a view there is nothing to do."""
        while self._view is not None:
            self._woken.clear()
            try:
                self.run_once()
            except Exception:  # a fault in here must not end the daemon
                logger.exception("status_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._options is None else _LOOK_S):
                    await self._woken.wait()

    def run_once(self) -> None:
        """Publish a status if it is time."""
        options = self._options
        if options is None or self._view is None:
            return
        now_s = self._clock.monotonic_s()
        since_s = now_s - self._published_s
        is_due = self._health is None or since_s >= options.every_s
        if not is_due and since_s < options.every_s / _CHANGES:
            return
        health = self._view.health()
        if not is_due and health == self._health:
            return
        self._published_s, self._health = now_s, health
        status = self._view.status()
        status.interval_ms = round(options.every_s * 1000)
        topic = USTREAMER.at(self._transport.context.authority, STATUS)
        described = Options(ttl=status.interval_ms * LIFETIME, payload_format=UPayloadFormat.PROTOBUF)
        message = publish(self._transport.context.now_ms(), topic, status.SerializeToString(), described)
        self._transport.emit([message])
