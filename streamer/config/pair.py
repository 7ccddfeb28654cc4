"""The section of the configuration for a pair of streamers, one active and one on standby (`pair`)."""

import ssl
from typing import Annotated, Literal

from pydantic import Field, model_validator

from streamer.config.tls import TlsError, no_passphrase
from streamer.config.types import FilePath, HostPort, Section, expected
from streamer.files import read_file
from streamer.transports.base import LONGEST_S

SHORTEST_KEY = 16
"""How many bytes the key has at least that two streamers share."""


class PairTlsConfig(Section):
    """TLS on the link, by which both prove themselves with certificates, in addition to the key."""

    ca_file: FilePath
    """The CA certificates from which the other one's certificate has to come, as PEM."""
    cert_file: FilePath
    """This one's certificate and the intermediate ones, as PEM."""
    key_file: FilePath
    """The private key of the certificate, as PEM and without a passphrase."""


class PairConfig(Section):
    """The other streamer of the pair, and how this one reaches it: one of the two listens, the other one connects."""

    listen: HostPort | None = None
    """host:port where this one waits for the other."""
    connect: HostPort | None = None
    """host:port where the other one listens."""
    key_file: FilePath
    """A file with the key that both share, at least 16 bytes. Only they may be able to read it."""
    tls: PairTlsConfig | None = None
    """TLS on the link. None: what goes over it is authentic, but whoever is on the way can read it."""
    safe: Literal["both", "either"] = "both"
    """Where a message is on disk before its source is told that it is safe: at both, or at the active one."""
    wait_s: Annotated[float, Field(ge=1, le=LONGEST_S)] = 10
    """How long one that has just started waits for the other, before it works alone."""
    prefer_s: Annotated[float, Field(ge=1, le=LONGEST_S)] | None = 30
    """How long the active one goes on without a link that the standby could have, before it hands over. None: for ever."""

    @model_validator(mode="after")
    def _one_of_two(self) -> "PairConfig":
        if (self.listen is None) is (self.connect is None):
            raise expected("listen at one of the two streamers, and connect at the other one")
        return self

    @property
    def listens(self) -> bool:
        """Whether this one waits for the other, and does not connect to it."""
        return self.listen is not None

    @property
    def address(self) -> tuple[str, int]:
        """Return host, without brackets, and port of `listen` or `connect`."""
        host, _, port = (self.listen or self.connect or "").rpartition(":")
        return host.strip("[]"), int(port)

    def key(self) -> bytes:
        """Read the key from its file. Raises `TlsError`, whose text never has the content."""
        try:
            key = read_file(self.key_file).removesuffix(b"\n").removesuffix(b"\r")
        except OSError as exc:
            raise TlsError(f"pair.key_file: {self.key_file}: {exc.strerror or type(exc).__name__}") from None
        if len(key) < SHORTEST_KEY:
            raise TlsError(f"pair.key_file: {self.key_file}: {len(key)} bytes; expected at least {SHORTEST_KEY}")
        return key

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of this end of the link, from the files; None: no TLS. Raises `TlsError`."""
        options = self.tls
        if options is None:
            return None
        for key in PairTlsConfig.model_fields:
            path = getattr(options, key)
            try:
                read_file(path)
            except OSError as exc:
                raise TlsError(f"pair.tls.{key}: {path}: {exc.strerror or type(exc).__name__}") from exc
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self.listens else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(options.cert_file, options.key_file, password=no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as exc:
            wanted = "expected a certificate and the key that belongs to it, as PEM and without a passphrase"
            raise TlsError(f"pair.tls.cert_file, key_file: {wanted}") from exc
        try:
            context.load_verify_locations(options.ca_file)
        except (ssl.SSLError, OSError) as exc:
            raise TlsError(f"pair.tls.ca_file: {options.ca_file}: expected certificates, as PEM") from exc
        return context
