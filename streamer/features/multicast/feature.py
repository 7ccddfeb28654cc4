"""The record of multicast: receivers register for broadcasts by name, and senders ask for their topic."""

from streamer.config.models import Config
from streamer.config.services import UsubscriptionConfig
from streamer.features.host.access import Access
from streamer.features.host.service import Service
from streamer.features.multicast.service import MulticastReceivers
from streamer.features.record import Feature, ServiceParts


class MulticastFeature(Feature):
    """The registrations of receivers, and the methods of core.ustreamer that change them."""

    TABLES = MulticastReceivers.TABLES
    receivers: MulticastReceivers

    def serve(self, parts: ServiceParts) -> Service:
        config, access = self.config, Access.from_config(self.config)
        self.receivers = MulticastReceivers(parts.state, parts.router, config.catalogue, access, _most_authorities(config))
        return self.receivers

    def use(self, config: Config) -> None:
        super().use(config)
        self.receivers.use(config.catalogue, Access.from_config(config), _most_authorities(config))


def _most_authorities(config: Config) -> int:
    return (config.usubscription or UsubscriptionConfig()).max_authorities_per_topic
