"""The section of the configuration for a pair of streamers, one active and one on standby (`pair`)."""

from typing import Annotated

from pydantic import Field, model_validator

from streamer.config.types import FilePath, Section, expected
from streamer.transports.base import LONGEST_S

_ADDRESS = r"^(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:]+):[0-9]{1,5}$"

Address = Annotated[str, Field(pattern=_ADDRESS)]
"""host:port; an IPv6 address in brackets."""


class PairConfig(Section):
    """The other streamer of the pair, and how this one reaches it. One of the two listens, the other one connects."""

    listen: Address | None = None
    """Where this one waits for the other."""
    connect: Address | None = None
    """Where the other one listens."""
    key_file: FilePath
    """A file with the secret that both share, at least 32 bytes."""
    wait_s: Annotated[float, Field(ge=1, le=LONGEST_S)] = 10
    """How long one that has just started waits for the other, before it works alone."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "PairConfig":
        if (self.listen is None) is (self.connect is None):
            raise expected("listen at one of the two, and connect at the other one")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Return the host, without brackets, and the port."""
        host, _, port = (self.listen or self.connect or "").rpartition(":")
        return host.strip("[]"), int(port)
