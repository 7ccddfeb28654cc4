"""The services of all features on a local endpoint, without a daemon. No tests."""

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.features.every import FEATURES, built
from streamer.features.host.host import ServiceHost, entities, tables
from streamer.features.host.router import RouterForServices
from streamer.transports.local import LocalTransport
from streamer.uprotocol.well_known import EntityId

TABLES = tables(FEATURES)


def served(config: Config) -> tuple[EntityId, ...]:
    return entities(config, FEATURES)


def hosted(config: Config, local: LocalTransport, router: RouterForServices, clock: Clock) -> ServiceHost:
    return ServiceHost(config, local, router, clock, built(config, clock))
