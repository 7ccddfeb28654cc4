"""A section of a service of all local devices. No tests."""

from streamer.config.models import FeatureSection
from streamer.uprotocol.well_known import USUBSCRIPTION, EntityId


class Serving(FeatureSection):
    """A service of all local devices."""

    local: list[str] | None = None

    @property
    def local_authorities(self) -> list[str] | None:
        return self.local

    @property
    def local_entities(self) -> tuple[EntityId, ...]:
        return (USUBSCRIPTION,)
