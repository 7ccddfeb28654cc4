"""The sections of the configuration for the HTTP port (`metrics`), and for those who may change something (`control`)."""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from streamer.config.tls import TlsConfig
from streamer.config.types import EntityPattern, FilePath, HostName, HostPort, Section, expected
from streamer.transports.addresses import is_loopback
from streamer.transports.certificates import CertificateFile, CertificateRole

_ORIGIN = re.compile(r"https?://([A-Za-z0-9][A-Za-z0-9_.-]{,252}|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise expected("the origin of a page, as browsers have it: https://host or https://host:port, without a path")
    return text


Origin = Annotated[str, AfterValidator(_origin)]


class MetricsConfig(Section):
    """The HTTP port for metrics, health and administration."""

    listen: HostPort = "127.0.0.1:9464"
    """host:port; with port 0 any free one."""
    hosts: list[HostName] = []
    """Host names that clients may use to reach the port, besides localhost and that in ``listen``. Addresses always work."""
    origins: list[Origin] = []
    """Origins of web pages that may use the port, besides its own: those of a proxy that terminates TLS. Their host names
    count as `hosts`, too."""
    tls: TlsConfig | None = None
    """TLS on the port. None: no TLS."""
    console: bool | None = None
    """Whether there is a web console. None: if the port listens on a loopback address."""

    def certificates(self) -> Iterator[tuple[str, CertificateFile]]:
        """Yield the files with certificates that the port uses, each with its key."""
        if self.tls is not None:
            yield "metrics.tls.cert_file", CertificateFile(CertificateRole.SERVER, self.tls.cert_file)
            if self.tls.client_ca_file is not None:
                yield "metrics.tls.client_ca_file", CertificateFile(CertificateRole.AUTHORITIES, self.tls.client_ca_file)

    @property
    def has_console(self) -> bool:
        """Whether there is a web console."""
        return is_loopback(self.host) if self.console is None else self.console

    @property
    def host(self) -> str:
        """Return the host in ``listen``, without the brackets of an IPv6 address."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port in ``listen``; 0: any free port."""
        return int(self.listen.rpartition(":")[2])


class ControlConfig(Section):
    """The uEntities and programs that may pause and resume topics over uProtocol, and change everything else over HTTP."""

    allow: list[EntityPattern] = []
    """Patterns of uEntities (resource 0) that may pause and resume over uProtocol. Empty: nobody."""
    max_rules: ClassVar[int] = 100
    """Pause rules that one uEntity may have added."""
    http: Literal["loopback", "any"] = "loopback"
    """From where changes over HTTP are accepted: this machine, or anywhere. Both need the token or a certificate."""
    http_token_file: FilePath | None = None
    """A file with that token. None: the streamer creates one beside the journal (``journal.db``: ``journal-token``)."""
