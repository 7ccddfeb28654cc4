"""The section `utwin` of the configuration."""

from typing import ClassVar

from streamer.config.models import FeatureSection
from streamer.config.types import MIB, Count, Size
from streamer.uprotocol.well_known import UTWIN, EntityId


class UtwinConfig(FeatureSection):
    """The uTwin service: it knows the last Publish of each topic that the streamer has accepted."""

    max_topics: Count = 10_000
    """Topics whose last message is kept. Beyond that, the authority that has the most forgets its oldest topic."""
    max_bytes: Size = 16 * MIB
    """Bytes of these messages; each counts as in a queue. Beyond that likewise."""
    save_s: ClassVar[float] = 60
    """For how long a topic has to be quiet until its last message is written to the journal."""
    max_answer_bytes: Size = MIB
    """The largest answer. Topics that do not fit are answered with RESOURCE_EXHAUSTED."""

    @classmethod
    def fixed_keys(cls) -> tuple[str, ...]:
        return ()

    @property
    def memory_bytes(self) -> int:
        return self.max_bytes

    @property
    def local_entities(self) -> tuple[EntityId, ...]:
        return (UTWIN,)
