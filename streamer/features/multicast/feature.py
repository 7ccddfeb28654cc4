"""The record of multicast: receivers register for broadcasts by name, and senders ask for their topic."""

from streamer.config.models import Config
from streamer.features.host.access import Access
from streamer.features.host.service import Service
from streamer.features.multicast.config import MulticastConfig, catalogue
from streamer.features.multicast.service import MulticastReceivers
from streamer.features.record import Feature, ServiceParts


class MulticastFeature(Feature):
    """The registrations of receivers, and the methods of core.ustreamer that change them."""

    KEYS = {"multicast": MulticastConfig}
    TABLES = MulticastReceivers.TABLES
    receivers: MulticastReceivers

    def serve(self, parts: ServiceParts) -> Service:
        access = Access.from_config(self.config)
        self.receivers = MulticastReceivers(parts.state, parts.router, catalogue(self.config), access)
        return self.receivers

    def use(self, config: Config) -> None:
        self.receivers.use(catalogue(config), Access.from_config(config))
