"""The record of uSubscription: core.usubscription, or the follower of an external one."""

from collections.abc import Mapping

from streamer.config.models import Config
from streamer.features.host.access import Access
from streamer.features.host.service import Service
from streamer.features.record import Feature, Metrics, Pages, RunningStreamer, ServiceParts
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.follow import Follower
from streamer.features.usubscription.service import USubscription
from streamer.uprotocol.well_known import USUBSCRIPTIONS, EntityId


class UsubscriptionFeature(Feature):
    """The streamer's uSubscription service, if it is configured. ``service`` None: it is not."""

    KEYS = {"usubscription": UsubscriptionConfig}
    TABLES = {**USubscription.TABLES, **Follower.TABLES}
    service: USubscription | Follower | None = None

    @classmethod
    def entities(cls, config: Config) -> tuple[EntityId, ...]:
        return () if config.section(UsubscriptionConfig) is None else USUBSCRIPTIONS

    def serve(self, parts: ServiceParts) -> Service | None:
        options = self.config.section(UsubscriptionConfig)
        if options is not None:
            kind = USubscription if options.external is None else Follower
            self.service = kind(*parts, options, Access.from_config(self.config), self.clock)
        return self.service

    def use(self, config: Config) -> None:
        if self.service is not None and (options := config.section(UsubscriptionConfig)) is not None:
            self.service.use(options, Access.from_config(config))

    def gauges(self) -> Mapping[str, int]:
        """Return the number of entries by kind."""
        return {} if self.service is None else self.service.gauges()

    def families(self) -> Metrics:
        from streamer.features.usubscription.page import families  # noqa: PLC0415

        return families(self.gauges())

    def pages(self, running: RunningStreamer) -> Pages:
        from streamer.features.usubscription.page import SubscriptionPages  # noqa: PLC0415

        return SubscriptionPages(lambda: self.service).routes()
