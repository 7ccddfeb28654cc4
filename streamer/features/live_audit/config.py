"""The section `live_audit` of the configuration."""

from typing import Annotated

from pydantic import Field

from streamer.config.models import FeatureSection
from streamer.config.types import FilePath, SingleAuthority


class LiveAuditConfig(FeatureSection):
    """Sums of the messages of each minute, which two streamers compare to find what was lost between them."""

    to: SingleAuthority | None = None
    """The streamer that compares, and that the sums are sent to. None: this one compares."""
    every_s: Annotated[float, Field(ge=1, le=86_400)] = 15
    """How often they are sent at most. More makes metered links cheaper, and a loss known later."""
    key_file: FilePath | None = None
    """A secret, the same at all streamers: nobody else can choose ids whose sums are equal. None: a public one."""
