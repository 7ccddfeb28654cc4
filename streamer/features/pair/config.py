"""The section of the configuration for a pair of streamers, one active and one on standby (`pair`)."""

import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from streamer.config.checks import Finding, part
from streamer.config.claims import written
from streamer.config.models import Config, FeatureSection
from streamer.config.shown import digest
from streamer.config.tls import TlsError, load_files
from streamer.config.types import MIB, FilePath, HostPort, Section, expected
from streamer.files import read_file
from streamer.transports.addresses import is_loopback
from streamer.transports.base import LONGEST_S
from streamer.transports.certificates import CertificateFile, CertificateRole
from streamer.transports.claims import Claim, tcp
from streamer.transports.probe import Answer, Probe, Verdict, blocking, can_connect, can_listen, checked, ok, warning
from streamer.uprotocol.uri import ANY_AUTHORITY

SHORTEST_KEY = 16
"""How many bytes the key has at least that two streamers share."""


_MEMORY_BYTES = (128 + 64) * MIB + 200_000 * 100
"""The bounds on replication, on the messages that the standby overhears, and on the ids of settled messages."""

_EQUAL = ("authority", "queue_policy", "routes", "permissions", "dead_letter", "remember", "usubscription", "utwin")
"""The keys that decide what a streamer does with a message."""


class PairTlsConfig(Section):
    """TLS on the link, by which both prove themselves with certificates, in addition to the key."""

    ca_file: FilePath
    """The CA certificates that the peer's certificate has to come from, as PEM."""
    cert_file: FilePath
    """This one's certificate and the intermediate ones, as PEM."""
    key_file: FilePath
    """The private key of the certificate, as PEM and without a passphrase."""


class PairConfig(FeatureSection):
    """The peer of the pair, and how this streamer reaches it: one of the two listens, and one connects."""

    listen: HostPort | None = None
    """host:port where this one waits for the other."""
    connect: HostPort | None = None
    """host:port where the peer listens."""
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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self.listens else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        load_files(context, "pair.tls", options.cert_file, options.key_file, ca_file=options.ca_file)
        return context

    @classmethod
    def fixed_keys(cls) -> tuple[str, ...]:
        return tuple(cls.model_fields)

    @property
    def memory_bytes(self) -> int:
        return _MEMORY_BYTES

    def claims(self, config: Config) -> Iterator[Claim]:
        if self.listens:
            yield from tcp(("pair", "listen"), *self.address)
        if config.journal is not None:
            yield written(("pair",), config.journal.default_pair)

    @classmethod
    def mistakes(cls, raw: Any) -> Iterator[Finding]:
        if part(raw, "journal") is None:
            yield Finding(("pair",), "expected a section `journal` as well: it is what the other streamer has a copy of")

    def hints(self, config: Config) -> Iterator[str]:
        if self.tls is None and not is_loopback(self.address[0]):
            key = "listen" if self.listens else "connect"
            where = self.listen or self.connect
            yield f"pair.{key}: {where}: messages, with the tokens in them, can be read on the way; set pair.tls"
        for name, endpoint in config.endpoints.items():
            if not endpoint.options.is_shared or ANY_AUTHORITY not in endpoint.authorities:
                continue
            elsewhere = [each for other, there in config.endpoints.items() if other != name for each in there.authorities]
            patterns = [pattern.authority for route in config.routes if route.from_ == name for pattern in route.publish]
            if ANY_AUTHORITY in elsewhere or ANY_AUTHORITY in patterns:
                yield (
                    f'endpoints.{name}.authorities: with "*" the standby of the pair would be taken for the receiver of '
                    "what the active one sends there, so it does not listen: what is put there while a take-over lasts is "
                    f"lost; list the authorities that are reached through {name}"
                )

    def certificates(self) -> Iterator[tuple[str, CertificateFile]]:
        if self.tls is not None:
            yield "tls.ca_file", CertificateFile(CertificateRole.AUTHORITIES, self.tls.ca_file)
            role = CertificateRole.SERVER if self.listens else CertificateRole.CLIENT
            yield "tls.cert_file", CertificateFile(role, self.tls.cert_file)

    def probes(self, config: Config, running: Mapping[str, Any] | None) -> Iterator[Probe]:
        yield blocking("pair.listen" if self.listens else "pair.connect", partial(self._probe_link, running))
        yield checked("pair.key_file", self.key, "the file holds a key that is long enough")
        if self.tls is not None:
            yield checked("pair.tls", self.context, "the certificate belongs to the key")

    def _probe_link(self, running: Mapping[str, Any] | None) -> Answer:
        """Probe the link, or return in what a running streamer differs from its peer, which only these two know."""
        pair = {} if running is None else running.get("pair") or {}  # an earlier version has no such part
        if differences := pair.get("differences"):
            return warning("; ".join(map(str, differences)))
        if not self.listens:
            answer = can_connect(*self.address)
            is_there = answer.verdict is Verdict.OK
            return answer if is_there else warning(f"{answer.text}: the other one of the pair does not answer")
        used = {} if running is None else running["config"].get("pair") or {}
        if used.get("listen") == self.listen:
            return ok(f"{self.listen}: the running streamer waits there for the other one")
        return can_listen(*self.address)


def pair_fingerprint(config: Config) -> str:
    """Return the digits of `fingerprint`, equal for two streamers that do the same with every message.

    How each of them reaches its networks, and where its files are, does not count. Neither do values that are the defaults,
    so that a version with a new key changes nothing.
    """
    data = config.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    reached = {name: (each["transport"], each.get("authorities")) for name, each in data["endpoints"].items()}
    return digest([reached, *(data.get(key) for key in (*_EQUAL, "multicast"))])
