"""Options of an ``mqtt5`` endpoint. Also reads its secrets.

Secrets come from files, which are read at every connection attempt, so that they can be rotated. No error, repr or log
contains them.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    field_validator,
    model_validator,
)

from streamer.files import digest, read_file
from streamer.plugins import Settings
from streamer.transports.addresses import is_loopback
from streamer.transports.base import LONGEST_S, WireOptions
from streamer.transports.certificates import CertificateFile, CertificateRole, valid_until_s
from streamer.transports.claims import Claim
from streamer.transports.errors import ConfigurationError
from streamer.transports.mqtt5.brokers import Broker, Prefer, read_broker
from streamer.transports.mqtt5.tunnel import HttpProxy, read_proxy
from streamer.transports.mqtt5.wire import ATTRIBUTE_PROPERTIES, Structure
from streamer.uprotocol.uri import everything_at

_UINT32_MAX = 0xFFFF_FFFF
_CREDENTIAL_BYTES = 0xFFFF  # MQTT writes their length in two bytes
_PROXY_BYTES = 4096
_PRINTABLE = "expected printable characters"
_NOT_IN_SHARE = frozenset("/+#")
_STRICT_KEYS = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
_File = Annotated[Path, Field(strict=False)]
_MOST_BROKERS = 8
_QOS_0_BYTES = 64 * 1024 * 1024  # messages with QoS 0 have no window: `delivery.inbound.ingress` rejects those beyond that
_OF_SEVERAL = (
    "broker: unless these brokers are one cluster, each has a session of its own: messages that one of them still has when "
    "the streamer goes to another wait there until the streamer comes back, at most session_expiry_s, and then arrive late, "
    "so the order in a flow is not kept",
    "broker: what one broker has not confirmed is sent again to the next, so a receiver may get duplicates; other clients "
    "have to find the broker that the streamer is connected to",
)


def _as_urls(given: Any) -> Any:
    return (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list) else given


def _as_given(urls: tuple[str, ...]) -> str | list[str]:
    return urls[0] if len(urls) == 1 else list(urls)


_Count = Field(min_length=1, max_length=_MOST_BROKERS)
_Urls = Annotated[
    tuple[str, ...],
    _Count,
    BeforeValidator(_as_urls, json_schema_input_type=str | Annotated[list[str], _Count]),
    PlainSerializer(_as_given),
]
"""One URL, or a list of them."""


class TlsOptions(BaseModel):
    """Files in PEM form. Without ``ca_file`` the system's certificate authorities are used."""

    model_config = _STRICT_KEYS

    ca_file: Path | None = None
    """CA certificates for the broker's certificate. None: the system's."""
    cert_file: Path | None = None
    """Our own certificate."""
    key_file: Path | None = None
    """The key of that certificate. None: it is in ``cert_file``."""

    @model_validator(mode="after")
    def _pair(self) -> "TlsOptions":
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file: expected cert_file along with it")
        return self


class ReconnectOptions(Settings):
    """The wait between attempts to connect: 0.5, 1, 2 and 4 s, then always 10 s (uP-L1 `mqtt_5.adoc`)."""

    model_config = _STRICT_KEYS | ConfigDict(strict=True)

    initial_ms: int = Field(default=500, ge=1, le=LONGEST_S * 1000)
    """The first wait."""
    factor: ClassVar[float] = 2.0
    """How much longer each wait is than the one before."""
    max_ms: int = Field(default=10_000, ge=1, le=LONGEST_S * 1000)
    """The longest wait."""
    jitter: ClassVar[float] = 0.2
    """The random part of a wait: 0.2 means 20 % less to 20 % more."""


class WillOptions(BaseModel):
    """The message that the broker publishes on the topic of the streamer's status once it has lost the streamer."""

    model_config = _STRICT_KEYS | ConfigDict(strict=True)

    to: str | None = Field(default=None, min_length=1)
    """The authority that gets it, on an off-vehicle broker. On an in-vehicle one, whoever subscribes to the status does."""
    delay_s: int = Field(default=10, ge=0, le=LONGEST_S)
    """For how long the streamer may be away before the broker publishes it."""

    @field_validator("to")
    @classmethod
    def _check_authority(cls, to: str | None) -> str | None:
        if to is not None:
            everything_at(to).check()
        return to


class Mqtt5Options(WireOptions):
    """Options of an ``mqtt5`` endpoint. All but ``broker`` have a default."""

    model_config = ConfigDict(strict=True)

    broker: _Urls
    """``mqtt://host:port``, or ``mqtts://host:port`` for TLS; the port defaults to 1883 and 8883. No user or password.

    For WebSocket ``ws://host:port/path`` or ``wss://host:port/path``; the defaults are 80, 443 and ``/mqtt``. Or a list: the
    next one is tried when one cannot be reached.
    """
    prefer: Prefer = "first"
    """With several brokers: return to the first one once it has proven itself, or stay with the last good one."""
    return_after_s: float = Field(default=60, gt=0, le=LONGEST_S)
    """For how long the first broker has to accept connections before the streamer returns to it."""
    topics: Structure = "off-vehicle"
    """How MQTT topics are made: of source and sink authority, for brokers that serve many vehicles, or one per topic."""
    client_id: str | None = Field(default=None, min_length=1, max_length=1024)
    """The MQTT client id, one per streamer. None: derived from the authority."""
    share: str | None = Field(default=None, min_length=1, max_length=128)
    """Share the broker's messages with all streamers that have the same name here. None: this streamer gets all of them."""
    clean_start: bool = False
    """Discard the session that the broker has kept, at every connection."""
    session_expiry_s: int = Field(default=86_400, ge=0, le=_UINT32_MAX)
    """How long the broker keeps the session while the streamer is away."""
    receive_maximum: int = Field(default=1000, ge=1, le=65_535)
    """Unacknowledged messages that the broker may send."""
    receive_excess_bytes: int = Field(default=32 * 1024 * 1024, ge=0)
    """Memory for unacknowledged messages, whatever `receive_maximum` allows."""
    keep_alive_s: int = Field(default=30, ge=1, le=65_535)
    """The longest silence before a ping."""
    ack_timeout_s: float = Field(default=20, gt=0, le=LONGEST_S)
    """After so many seconds without an acknowledgement, the connection counts as lost."""
    connect_timeout_s: float = Field(default=10, gt=0, le=LONGEST_S)
    """The longest wait for a connection, then for each answer until the link is up."""
    max_packet_bytes: int = Field(default=16 * 1024 * 1024, ge=1024, le=0x0FFF_FFFF)
    """The largest MQTT packet that is accepted."""
    will: WillOptions | None = None
    """Say when the streamer connects and disconnects, and have the broker say it if the streamer cannot. None: neither."""
    payload_format_property: bool = False
    """Write the payload format also as user property 12, for receivers by the specification before 1.6.0-alpha.5."""
    identity_property: str | None = Field(default=None, min_length=1, max_length=256)
    """The user property that the broker adds with the name of a message's publisher: the identity for permissions."""
    username: str | None = None
    """The user name. None: the one in ``username_file``, or anonymous."""
    username_file: _File | None = None
    """A file that holds the user name."""
    password_file: _File | None = None
    """A file that holds the password. It is read at every connection."""
    tls: TlsOptions = TlsOptions()
    """Files for ``mqtts://`` and ``wss://``."""
    alpn: str | None = Field(default=None, min_length=1, max_length=255)
    """The protocol that TLS asks for (ALPN), for brokers that share a port with other services. None: TLS names none."""
    proxy: str | None = None
    """``http://host:port`` of an HTTP proxy, through which the brokers are reached (CONNECT). No user or password."""
    proxy_credentials_file: _File | None = None
    """A file with ``user:password`` for the proxy. It is read at every connection."""
    reconnect: ReconnectOptions = ReconnectOptions()
    """The waits between attempts to connect."""
    _contents: tuple[bytes, ...] = PrivateAttr(())
    """Digests of the files that are read at each connection: options are equal only if these are, too."""

    _of_streamer: "Mqtt5Options | None" = PrivateAttr(None)

    @field_validator("broker")
    @classmethod
    def _check_broker(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        brokers = [read_broker(url) for url in urls]
        if len({(broker.host, broker.port) for broker in brokers}) < len(brokers):
            raise ValueError("expected each broker once")
        return urls

    @field_validator("proxy")
    @classmethod
    def _check_proxy(cls, url: str | None) -> str | None:
        if url is not None:
            read_proxy(url)
        return url

    @field_validator("client_id", "username", "identity_property")
    @classmethod
    def _check_printable(cls, text: str | None) -> str | None:
        """Check a text of the protocol (MQTT 5, 1.5.4). Control characters other than NUL are legal, but refused here."""
        if text is not None and not text.isprintable():
            raise ValueError(_PRINTABLE)
        return text

    @field_validator("alpn")
    @classmethod
    def _check_alpn(cls, name: str | None) -> str | None:
        if name is not None and not (name.isascii() and name.isprintable()):
            raise ValueError("expected a name of printable ASCII characters")
        return name

    @field_validator("identity_property")
    @classmethod
    def _check_identity_property(cls, name: str | None) -> str | None:
        if name in ATTRIBUTE_PROPERTIES:
            raise ValueError("expected a name that is not a message attribute's: uP and 1 to 12 are")
        return name

    @field_validator("share")
    @classmethod
    def _check_share(cls, name: str | None) -> str | None:
        """Check a ShareName (MQTT 5, 4.8.2). Control characters are legal, but refused here."""
        if name is not None and (not name.isprintable() or not _NOT_IN_SHARE.isdisjoint(name)):
            raise ValueError("expected a name of printable characters without / + #")
        return name

    @model_validator(mode="after")
    def _check_together(self) -> "Mqtt5Options":
        if self.username is not None and self.username_file is not None:
            raise ValueError("username_file: expected either username or username_file")
        if self.will is not None and (self.will.to is None) is self.addresses_publishes:
            if self.will.to is None:
                raise ValueError("will.to: expected the authority that gets it, because topics is off-vehicle")
            raise ValueError("will.to: expected only with topics: off-vehicle")
        if not self.uses_tls and self.tls != TlsOptions():
            raise ValueError("tls: expected a broker with mqtts:// or wss://")
        if not self.uses_tls and self.alpn is not None:
            raise ValueError("alpn: expected a broker with mqtts:// or wss://")
        if self.proxy is None and self.proxy_credentials_file is not None:
            raise ValueError("proxy_credentials_file: expected proxy along with it")
        return self

    @model_validator(mode="after")
    def _look_into_files(self) -> "Mqtt5Options":
        secrets = (self.username_file, self.password_file, self.proxy_credentials_file)
        files = (*secrets, self.tls.ca_file, self.tls.cert_file, self.tls.key_file)
        self._contents = tuple(digest(file) for file in files if file is not None)
        return self

    @property
    def addresses_publishes(self) -> bool:
        return self.topics == "off-vehicle"

    @property
    def proves_identity(self) -> bool:
        return self.identity_property is not None

    def receive_bytes(self, message_bytes: int) -> int:
        return self.receive_excess_bytes + 2 * self.max_packet_bytes + _QOS_0_BYTES  # the last one, and one that is read

    @property
    def is_session_persistent(self) -> bool:
        """Whether the broker keeps the session while the streamer is away, and the streamer resumes it."""
        return self.session_expiry_s > 0 and not self.clean_start

    @property
    def of_streamer(self) -> "Mqtt5Options | None":
        """The options with which to find out whether the broker gives us a streamer's session; None: it cannot.

        Some brokers give it to every client with the streamer's credentials, which `beside` keeps.
        """
        given = (self.username, self.username_file, self.password_file, self.tls.cert_file)
        return self._of_streamer if any(each is not None for each in given) else None

    @property
    def is_divided(self) -> bool:
        return self.share is not None

    @property
    def brokers(self) -> tuple[Broker, ...]:
        return tuple(read_broker(url) for url in self.broker)

    @property
    def uses_tls(self) -> bool:
        """Whether a broker is reached through TLS."""
        return any(broker.uses_tls for broker in self.brokers)

    @property
    def http_proxy(self) -> HttpProxy | None:
        """The proxy through which the brokers are reached."""
        return None if self.proxy is None else read_proxy(self.proxy)

    def effective_client_id(self, authority: str) -> str:
        """Return the MQTT client id: the configured one, or one derived from the streamer's authority."""
        return self.client_id or re.sub(r"[^A-Za-z0-9-]", "-", authority)

    def claims(self, authority: str) -> Sequence[Claim]:
        """Return the claim on the client id: two connections with the same one end each other for ever (MQTT 5, 3.1.4-3)."""
        name = f"the client id {self.effective_client_id(authority)!r}"
        return [Claim(("client_id",), f"{name} at {each.where}", behind_any_address=name) for each in self.brokers]

    def beside(self, name: str) -> Self:
        """Return the options of a client with a session of its own, which ends with the connection and shares nothing."""
        own = {"client_id": name, "share": None, "clean_start": True, "session_expiry_s": 0, "will": None}
        guest = self.model_copy(update=own)
        # If the broker gives us the streamer's session all the same, it keeps that until the streamer is back.
        guest._of_streamer = self.model_copy(update={"session_expiry_s": LONGEST_S})
        return guest

    def exposures(self) -> Sequence[str]:
        has_password = self.password_file is not None
        what = "the user name and the password" if has_password else "messages, with the tokens in them,"
        found = [
            f"broker: {what} go to {each.host} unencrypted, and anybody in between can change them; "
            f"use {'wss' if each.is_websocket else 'mqtts'}://"
            for each in self.brokers
            if not each.uses_tls and not is_loopback(each.host)
        ]
        proxy = self.http_proxy
        if proxy is not None and self.proxy_credentials_file is not None and not is_loopback(proxy.host):
            found.append(f"proxy: the password for the proxy goes to {proxy.host} unencrypted")
        return found

    def hints(self) -> Sequence[str]:
        found = list(_OF_SEVERAL) if len(self.broker) > 1 else []
        if self.will is not None and self.will.delay_s and not self.is_session_persistent:
            key = "clean_start" if self.clean_start else "session_expiry_s"
            found.append(f"will.delay_s: no effect, because of {key}: the broker publishes a will when the session ends")
        elif self.will is not None and self.will.delay_s > self.session_expiry_s:
            found.append(f"will.delay_s: the session ends after {self.session_expiry_s} s, and the will is published then")
        if self.share is None:
            return found
        found += [
            f"share: the broker chooses which of the streamers that share {self.share!r} gets a message, so the order in "
            "a flow depends on its strategy: it is kept only by one that gives all of a topic, or of a publisher, to one of "
            "them (EMQX: hash_topic, hash_clientid, sticky; mosquitto, HiveMQ and VerneMQ have none)",
            "client_id: each of these streamers needs one of its own, and an authority of its own: with the same client id, "
            "the broker lets only one of them stay connected",
        ]
        if not self.is_session_persistent:
            key = "clean_start" if self.clean_start else "session_expiry_s"
            found.append(
                f"{key}: with share, what a streamer has not acknowledged when its session ends is lost with some brokers "
                "(mosquitto), which give it to none of the others; let the session outlast every absence"
            )
        return found

    def credentials(self) -> tuple[str | None, bytes | None]:
        """Read user name and password. Raises `ConfigurationError` with the option, never with the content."""
        username = self.username
        if self.username_file is not None:
            try:
                username = _read("username_file", self.username_file).decode()
            except UnicodeDecodeError:
                raise ConfigurationError("username_file", f"{self.username_file}: expected UTF-8") from None
            if not username.isprintable():
                raise ConfigurationError("username_file", f"{self.username_file}: {_PRINTABLE}")
        password = None if self.password_file is None else _read("password_file", self.password_file)
        if username is not None:
            _check_length("username" if self.username_file is None else "username_file", username.encode())
        if password is not None:
            _check_length("password_file", password)
        return username, password

    def certificates(self) -> Mapping[str, CertificateFile]:
        """Return the files with certificates, by key."""
        found = {
            "tls.ca_file": (CertificateRole.AUTHORITIES, self.tls.ca_file),
            "tls.cert_file": (CertificateRole.CLIENT, self.tls.cert_file),
        }
        return {key: CertificateFile(role, path) for key, (role, path) in found.items() if path is not None}

    def has_expired_certificate(self, now_s: float) -> bool:
        """Return whether the client's certificate has expired; False if it cannot be read."""
        try:
            own = [each for each in self.certificates().values() if each.role is CertificateRole.CLIENT]
            return any(valid_until_s(each) < now_s for each in own)
        except (OSError, ValueError):
            return False

    def proxy_credentials(self) -> bytes | None:
        """Read ``user:password`` for the proxy. Raises `ConfigurationError` with the option, never with the content."""
        if self.proxy_credentials_file is None:
            return None
        content = _read("proxy_credentials_file", self.proxy_credentials_file)
        user, colon, _ = content.partition(b":")
        if not user or not colon or b"\n" in content or len(content) > _PROXY_BYTES:
            raise ConfigurationError("proxy_credentials_file", f"{self.proxy_credentials_file}: expected USER:PASSWORD")
        return content

    def tls_context(self) -> ssl.SSLContext | None:
        """Read the TLS files, and return the settings; None for plain TCP. Raises `ConfigurationError` with the option."""
        if not self.uses_tls:
            return None
        for name in ("ca_file", "cert_file", "key_file"):
            path = getattr(self.tls, name)
            if path is not None:
                _read(f"tls.{name}", path)
        try:
            context = ssl.create_default_context(cafile=self.tls.ca_file)
        except (ssl.SSLError, OSError) as exc:
            raise ConfigurationError("tls.ca_file", f"{self.tls.ca_file}: {_reason(exc)}") from None
        if self.tls.cert_file is not None:
            try:
                # The empty password keeps OpenSSL from asking for one on the terminal.
                context.load_cert_chain(self.tls.cert_file, self.tls.key_file, password="")
            except (ssl.SSLError, OSError) as exc:
                key = "tls.key_file" if self.tls.key_file is not None else "tls.cert_file"
                with_key = (
                    f"with {self.tls.key_file}" if self.tls.key_file else "without tls.key_file has to hold its key, too"
                )
                detail = f"{self.tls.cert_file} {with_key}: {_reason(exc)}"
                raise ConfigurationError(key, detail) from None
        if self.alpn is not None:
            context.set_alpn_protocols([self.alpn])
        return context


def _read(option: str, path: Path) -> bytes:
    try:
        return read_file(path).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as exc:
        raise ConfigurationError(option, f"{path}: {_reason(exc)}") from None


def _check_length(option: str, content: bytes) -> None:
    if len(content) > _CREDENTIAL_BYTES:
        raise ConfigurationError(option, f"{len(content)} bytes; MQTT takes at most {_CREDENTIAL_BYTES}")


def _reason(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
