"""The section `live_audit` of the configuration."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from streamer.config.models import Config, FeatureSection
from streamer.config.tls import TlsError
from streamer.config.types import FilePath, SingleAuthority
from streamer.features.live_audit.sums import PUBLIC_KEY
from streamer.files import read_file
from streamer.transports.probe import Probe, checked

SHORTEST_KEY: Final = 16


class LiveAuditConfig(FeatureSection):
    """Sums of the messages of each minute, which two streamers compare to find what was lost between them."""

    to: SingleAuthority | None = None
    """The streamer that compares, and that the sums are sent to. None: this one compares."""
    every_s: Annotated[float, Field(ge=1, le=86_400)] = 15
    """How often they are sent at most. More makes metered links cheaper, and a loss known later."""
    key_file: FilePath | None = None
    """A secret, the same at all streamers: nobody else can choose ids whose sums are equal. None: a public one."""

    def key(self) -> bytes:
        """Return the key that ids are encrypted with. Raises `TlsError`, whose text never has the secret."""
        if self.key_file is None:
            return PUBLIC_KEY
        try:
            secret = read_file(self.key_file).strip()
            problem = "" if len(secret) >= SHORTEST_KEY else f"{len(secret)} bytes"
        except OSError as exc:
            problem = exc.strerror or type(exc).__name__
        if problem:
            expected = f"expected a file with a secret of at least {SHORTEST_KEY} bytes"
            raise TlsError(f"live_audit.key_file: {self.key_file}: {problem}; {expected}")
        return hashlib.sha256(secret).digest()

    @classmethod
    def fixed_keys(cls) -> tuple[str, ...]:
        return tuple(cls.model_fields)

    def probes(self, config: Config, running: Mapping[str, Any] | None) -> Iterator[Probe]:
        if self.key_file is not None:
            yield checked("live_audit.key_file", self.key, f"{self.key_file} holds a secret")
