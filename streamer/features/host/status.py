"""Publishes the streamer's status on a topic of core.ustreamer, at regular intervals and when its health changes.

A status is a Publish like any other: it goes to the networks inside the device, and to subscribers elsewhere. A stale one is
worthless, so it expires after some intervals. This and the limited rate of changes bound how many statuses wait for a
network that is down.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Annotated, Protocol

from pydantic import Field

from streamer.clock import Clock
from streamer.config.models import FeatureSection
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Options, UPayloadFormat, publish
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.well_known import STATUS, USTREAMER

LIFETIME = 3
"""The intervals after which a status expires."""

_LOOK_S = 1.0  # between two checks of the health; `health_changed` causes one at once
_CHANGES = 10  # most changes of health per interval that are published without waiting for its end

logger = logging.getLogger("ustreamer.status")


class StatusConfig(FeatureSection):
    """The status that the streamer publishes on ``//AUTHORITY/4/1/8002``."""

    every_s: Annotated[float, Field(ge=1, le=14 * 86_400)] = 60  # three times that is a TTL: 32 bits of ms
    """The interval. A change of health is published at once, at most ten times in it. A status expires after three."""


class StreamerView(Protocol):
    """Reads the streamer's present condition."""

    def health(self) -> Sequence[str]:
        """Return the streamer's present problems, as texts. Cheap."""

    def status(self) -> pb.Status:
        """Return the whole status message."""


class StatusService:
    """Publishes the status as long as there are options; None: off."""

    def __init__(
        self, transport: LocalTransport, options: StatusConfig | None, view: StreamerView | None, clock: Clock
    ) -> None:
        self._transport = transport
        self._options = options
        self._view = view
        self._clock = clock
        self._published_s = 0.0
        self._health: Sequence[str] | None = None  # in the last published status
        self._woken = asyncio.Event()

    def use(self, options: StatusConfig | None) -> None:
        """Publish by these options from now on."""
        if options != self._options:
            self._options, self._health = options, None
            self._woken.set()

    def health_changed(self) -> None:
        """Check the health at once: it may have changed."""
        if self._options is not None:
            self._woken.set()

    async def run(self) -> None:
        """Publish until cancelled; return at once if there is no view."""
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
        """Publish a status if one is due or the health has changed."""
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
