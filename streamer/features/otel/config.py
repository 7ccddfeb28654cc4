"""The section `otel` of the configuration: a collector that metrics and spans are sent to."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from streamer.config.models import Config, FeatureSection
from streamer.config.types import FilePath, Section, expected
from streamer.transports.addresses import is_loopback
from streamer.transports.certificates import CertificateFile, CertificateRole

OTEL_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

_ENDPOINT = re.compile(r"https?://(?:[^\s/:?#@\[\]]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[^\s?#]*)?")

_APPENDED = ("/v1/metrics", "/v1/traces")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # the package is missing, too
        return False


def _endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise expected("the address of a collector, such as https://collector.example:4318, without user, ? and #")
    if text.rstrip("/").endswith(_APPENDED):
        raise expected(f"the address of a collector without {' and '.join(_APPENDED)}, which are appended")
    if not all(map(_is_there, OTEL_MODULES)):
        raise expected("otel: null, or opentelemetry installed (pip install 'uprotocol-ustreamer[otel]')")
    return text.rstrip("/")


class OtelTlsConfig(Section):
    """PEM files for ``https``."""

    ca_file: FilePath | None = None
    """The CA certificates for the collector's certificate. None: the system's."""
    cert_file: FilePath | None = None
    """The streamer's own certificate."""
    key_file: FilePath | None = None
    """The key of that certificate."""

    @model_validator(mode="after")
    def _both(self) -> "OtelTlsConfig":
        if (self.cert_file is None) != (self.key_file is None):
            raise expected("cert_file and key_file, or neither")
        return self


class OtelSpansConfig(Section):
    """Spans of single messages."""

    sample: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The part of the messages without a traceparent for which a span is sent. With a traceparent, its flag decides."""
    queue: ClassVar[int] = 2048
    """Spans that may wait to be sent. Beyond that they are dropped and counted."""


class OtelConfig(FeatureSection):
    """A collector of OpenTelemetry that metrics and spans are sent to, by OTLP over HTTP. Needs the extra ``otel``."""

    endpoint: Annotated[str, AfterValidator(_endpoint)]
    """The collector's address; ``/v1/metrics`` and ``/v1/traces`` are appended."""
    headers_file: FilePath | None = None
    """A file with headers for the collector, such as ``Authorization: Bearer …``, one in each line."""
    tls: OtelTlsConfig = OtelTlsConfig()
    """PEM files for ``https``."""
    interval_s: Annotated[float, Field(ge=0.1)] = 60
    """How often metrics are sent. Spans are sent every five seconds, if that is sooner."""
    timeout_s: ClassVar[float] = 10
    """How long a collector may take to answer."""
    attributes: dict[str, str] = {}
    """Attributes of the resource, beside service.name, service.instance.id, service.version and uprotocol.authority."""
    metrics: bool = True
    """Whether metrics are sent."""
    spans: OtelSpansConfig | None = None
    """Spans of sampled messages. None: off."""

    def hints(self, config: Config) -> Iterator[str]:
        if self.endpoint.startswith("http:") and not is_loopback(urlsplit(self.endpoint).hostname or ""):
            sent = "what is pushed" if self.headers_file is None else "what is pushed, and the headers of headers_file,"
            yield f"otel.endpoint: {self.endpoint}: {sent} can be read on the way; use https"

    def certificates(self) -> Iterator[tuple[str, CertificateFile]]:
        if self.tls.ca_file is not None:
            yield "tls.ca_file", CertificateFile(CertificateRole.AUTHORITIES, self.tls.ca_file)
        if self.tls.cert_file is not None:
            yield "tls.cert_file", CertificateFile(CertificateRole.CLIENT, self.tls.cert_file)
