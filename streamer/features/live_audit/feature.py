"""The record of the live audit: counts at every endpoint, a service that sends or compares rows, a page and a command."""

from collections import deque
from typing import Any

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.delivery.inbound.step import InboundStep, Inlet
from streamer.delivery.router import Additions
from streamer.features.host.service import Service
from streamer.features.live_audit.comparison import RowComparison
from streamer.features.live_audit.config import LiveAuditConfig
from streamer.features.live_audit.counter import CountingStep, MessageCounter
from streamer.features.live_audit.service import LiveAudit
from streamer.features.live_audit.sums import IdCipher
from streamer.features.record import Feature, Metrics, Pages, RunningStreamer, ServiceParts
from streamer.routing.table import homes_of
from streamer.uprotocol.well_known import LOCAL_ENDPOINT


class LiveAuditFeature(Feature):
    """The sums of what a streamer takes in and delivers. ``service`` None: the configuration has no section for it."""

    COMMANDS = ("streamer.features.live_audit.command",)
    KEYS = {"live_audit": LiveAuditConfig}
    EVENTS = ("live_audit",)
    service: LiveAudit | None = None
    _comparison: RowComparison | None = None

    def __init__(self, config: Config, clock: Clock) -> None:
        super().__init__(config, clock)
        self.options = config.section(LiveAuditConfig)
        if self.options is not None:
            cipher = IdCipher(self.options.key())
            self._counter = MessageCounter(cipher.fold)
            if self.options.to is None:
                self._comparison = RowComparison(cipher)

    @property
    def additions(self) -> Additions:
        if self.options is None:
            return Additions()
        interest = () if self._comparison is None else (self._comparison,)
        return Additions(observers=(self._counter,), steps=(self._step,), interest=interest)

    def _step(self, inlet: Inlet) -> InboundStep | None:
        return None if inlet.endpoint == LOCAL_ENDPOINT else CountingStep(inlet.endpoint, self._counter)

    def serve(self, parts: ServiceParts) -> Service | None:
        if self.options is not None:
            self.service = LiveAudit(parts.local, self.options, self._counter, self._comparison, self._homes, self.clock)
        return self.service

    def _homes(self, authority: str) -> tuple[str, ...]:
        homes = homes_of(authority, {name: each.authorities for name, each in self.config.endpoints.items()})
        return () if set(homes) & set(self.config.divided) else homes

    def use(self, config: Config) -> None:
        if self._comparison is not None:
            self._comparison.changed()

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.live_audit.page import routes  # noqa: PLC0415

        return routes(self.service)

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        unread = deque() if self.service is None else self.service.unread
        return [("live_audit", unread.popleft().shown()) for _ in range(len(unread))]

    def families(self) -> Metrics:
        from streamer.features.live_audit.page import families  # noqa: PLC0415

        return () if self.service is None else families(self.service)
