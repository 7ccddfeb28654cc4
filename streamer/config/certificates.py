"""Which files with certificates the streamer itself uses: for its HTTP port, for the link of a pair, and for a collector."""

from collections.abc import Iterator

from streamer.config.models import Config
from streamer.transports.certificates import CertificateFile, CertificateRole


def own_certificates(config: Config) -> Iterator[tuple[str, CertificateFile]]:
    """Yield the key and the file of each."""
    if config.metrics is not None and (tls := config.metrics.tls) is not None:
        yield "metrics.tls.cert_file", CertificateFile(CertificateRole.SERVER, tls.cert_file)
        if tls.client_ca_file is not None:
            yield "metrics.tls.client_ca_file", CertificateFile(CertificateRole.AUTHORITIES, tls.client_ca_file)
    if config.pair is not None and (link := config.pair.tls) is not None:
        yield "pair.tls.ca_file", CertificateFile(CertificateRole.AUTHORITIES, link.ca_file)
        role = CertificateRole.SERVER if config.pair.listens else CertificateRole.CLIENT
        yield "pair.tls.cert_file", CertificateFile(role, link.cert_file)
    if config.otel is not None:
        collector = config.otel.tls
        if collector.ca_file is not None:
            yield "otel.tls.ca_file", CertificateFile(CertificateRole.AUTHORITIES, collector.ca_file)
        if collector.cert_file is not None:
            yield "otel.tls.cert_file", CertificateFile(CertificateRole.CLIENT, collector.cert_file)
