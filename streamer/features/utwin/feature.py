"""The record of uTwin: the steps that fill the last values, core.utwin, and the initial values of subscribers."""

import asyncio

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.delivery.inbound.step import InboundStep, Inlet
from streamer.delivery.router import Additions
from streamer.features.host.access import Access, SubscriptionSection
from streamer.features.host.rpc import RpcService
from streamer.features.host.service import Service
from streamer.features.record import Feature, Metrics, Pages, RunningStreamer, ServiceParts
from streamer.features.utwin.config import UtwinConfig
from streamer.features.utwin.initial_values import InitialValues
from streamer.features.utwin.last_values import LastValues
from streamer.features.utwin.remembering import Remembering
from streamer.features.utwin.service import UTwin
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, UTWIN, EntityId


class UtwinFeature(Feature):
    """The last Publish of each topic that a router takes from its networks, and those that it sends to new subscribers.

    ``last_values`` and ``service`` None: there is no section for uTwin.
    """

    COMMANDS = ("streamer.features.utwin.command",)
    KEYS = {"utwin": UtwinConfig}
    TABLES = UTwin.TABLES
    last_values: LastValues | None = None
    service: UTwin | None = None

    def __init__(self, config: Config, clock: Clock) -> None:
        super().__init__(config, clock)
        if (options := config.section(UtwinConfig)) is not None:
            bounds = options.max_topics, options.max_bytes
            self.last_values = LastValues(*bounds, config.listed_authorities, asyncio.Event())
            self.initial_values = InitialValues(self.last_values, clock)
            self._use_initial_topics(config)

    @classmethod
    def entities(cls, config: Config) -> tuple[EntityId, ...]:
        return () if config.section(UtwinConfig) is None else (UTWIN,)

    @property
    def additions(self) -> Additions:
        if self.last_values is None:
            return Additions()
        return Additions(steps=(self._step,), interest=(self.initial_values,), tasks=(self.initial_values,))

    def serve(self, parts: ServiceParts) -> Service | None:
        if self.last_values is not None and (options := self.config.section(UtwinConfig)) is not None:
            access = Access.from_config(self.config)
            self.service = UTwin(parts.state, self.last_values, options, access, self.clock)
            RpcService(parts.local, UTWIN, self.service.own_methods())
        return self.service

    def use(self, config: Config) -> None:
        if self.last_values is not None:
            self._use_initial_topics(config)
        if self.service is not None and (options := config.section(UtwinConfig)) is not None:
            self.service.use(options, Access.from_config(config), config.listed_authorities)

    def _use_initial_topics(self, config: Config) -> None:
        section = config.section(SubscriptionSection)
        self.initial_values.use([] if section is None else section.initial_topics)

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.utwin.page import LastValuePages  # noqa: PLC0415

        return LastValuePages(lambda: self.service, self.clock).routes()

    def families(self) -> Metrics:
        from streamer.features.utwin.page import families  # noqa: PLC0415

        return () if self.last_values is None else families(self.last_values)

    def _step(self, inlet: Inlet) -> InboundStep | None:
        if inlet.endpoint == LOCAL_ENDPOINT or self.last_values is None:
            return None
        return Remembering(self.last_values)
