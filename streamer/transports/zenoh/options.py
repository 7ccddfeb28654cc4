"""The options of a ``zenoh`` endpoint, and the Zenoh configuration that results from them."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import zenoh
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from streamer.files import digest, read_file
from streamer.transports.addresses import is_loopback
from streamer.transports.base import BACKLOG_BYTES, LONGEST_S, WireOptions
from streamer.transports.certificates import CertificateFile, CertificateRole
from streamer.transports.claims import Claim, tcp
from streamer.transports.errors import ConfigurationError
from streamer.transports.zenoh.receipt_proofs import SHORTEST_KEY, ReceiptKey
from streamer.uprotocol.uri import ANY_AUTHORITY, is_authority

_ENDPOINT = re.compile(r"[a-z][a-z_\-]*/\S+")
_HOST_AND_PORT = re.compile(r"(?:\[[^\]\s]+\]|[^\s/:?#\[\]]+):(?P<port>\d{1,5})(?:[?#]\S*)?")
_OPEN = re.compile(r"(?:tcp|ws)/(?P<host>\[[^\]]*\]|[^:?#]*):?[^?#]*")
"""A Zenoh endpoint without encryption, up to its settings."""
_LISTEN = re.compile(r"(?:tcp|tls|ws)/(?P<host>\[[^\]]*\]|[^:?#]*):(?P<port>\d+)(?P<settings>.*)")
"""A Zenoh endpoint on a TCP port."""
_ANY_HOST = re.compile(r"/(0\.0\.0\.0|\[::\]):")
_ONE_INTERFACE = re.compile(r"[#;](?:iface|bind)=")
_SETTINGS = re.compile(r"(?:[?#]|[^\s/]*@).*", re.DOTALL)
_IN_ZENOHS_SOURCE = re.compile(r"\s+at /\S+\.rs:\d+\.?")
_PLACE = re.compile(r"(?:--> |line: )(\d+)(?::|, column: )(\d+)")

# Zenoh's own defaults are 1 s and 4 s; uP-L1 requires the first attempt after half a second.
_CONNECT_RETRY = {"period_init_ms": 500, "period_max_ms": 4000, "period_increase_factor": 2}

_BATCH = 256  # samples that are handed over together (`intake`)
_DEFAULT_LEASE_MS = 10_000
_NOTICED = 1.25  # times the lease: when the matches of a link whose receiver does not read end (see `nodes`)
# `_NOTICED` times the default lease, with a margin.
DEFAULT_UNCERTAIN_S = 15.0

# Zenoh passes payloads of more than 3 KiB to receivers on the same machine through shared memory. If a receiver does not
# read for a while, Zenoh reclaims and reuses that memory: messages are lost, or arrive with the bytes of later ones, and
# neither side gets an error (eclipse-zenoh 1.10.2, 16 MiB pool). Over the link this does not happen.
_SHARED_MEMORY = "transport/shared_memory/enabled"
# uP-L1 2.6.1: TCP and not UDP. Links over UDP lose messages silently, and QUIC is built on UDP.
_PROTOCOLS = "transport/link/protocols"
_RELIABLE = ("tcp", "tls", "ws", "unixsock-stream", "unixpipe", "vsock", "serial")
_WITH_PORT = ("tcp", "tls", "ws")
_OVER_UDP = re.compile(r"\b(?:udp|quic)[a-z_\-]*/")
_MULTICAST = "scouting/multicast/enabled"
_GOSSIP = "scouting/gossip/enabled"
TLS = "transport/link/tls"
_TLS_FILES = (
    "root_ca_certificate",
    "listen_certificate",
    "listen_private_key",
    "connect_certificate",
    "connect_private_key",
)
_WITH_FILES = TLS, "transport/auth"
_WITH_ENDPOINTS = "listen/endpoints", "connect/endpoints"
_SETTING = re.compile(r"[#;]([^=;#]*)=([^;#\0]+)")
"""Name and value of a setting of a Zenoh endpoint."""
_MAX_MESSAGE = "transport/link/rx/max_message_size"
_LEASE = "transport/link/tx/lease"
_WAIT_BEFORE_CLOSE = "transport/link/tx/queue/congestion_control/block/wait_before_close"
# Zenoh's own default is 5 s. A router between us and the receiver has the same, and must be the first to give up.
_WAIT_BEFORE_CLOSE_US = 1_000_000
_KEEP_ALIVE = "transport/link/tx/keep_alive"
"""How many keep-alives are sent within a lease. For one interval between them, Zenoh also goes on writing to a link that it
closes, behind half a batch: a receiver that reads again by then gets one message made of the bytes of several.
"""
_ZENOH_KEEP_ALIVE = 4
_KEEP_ALIVE_MS = 250


def _streamer(text: str) -> str:
    if text == ANY_AUTHORITY or not is_authority(text):
        raise ValueError("expected the authority of a streamer, for instance gateway")
    return text


def _endpoint(text: str) -> str:
    """Return an endpoint that Zenoh can open. Raises ValueError without the endpoint's text, which may hold a password."""
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("not a Zenoh endpoint; expected protocol/address, for instance tcp/192.168.0.2:7447")
    protocol, _, address = text.partition("/")
    if protocol not in _RELIABLE:
        raise ValueError(f"not a reliable protocol; expected one of {', '.join(_RELIABLE)}")
    match = _HOST_AND_PORT.fullmatch(address)
    if protocol in _WITH_PORT and (match is None or int(match["port"]) > 65_535):
        raise ValueError(f"not a Zenoh endpoint; expected {protocol}/host:port, for instance {protocol}/192.168.0.2:7447")
    return text


_Endpoint = Annotated[str, AfterValidator(_endpoint)]


class ReceiptOptions(BaseModel):
    """Receipts between streamers that share the key in ``key_file``. Only ``streamers``, by authority, are believed."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True)

    key_file: Path
    """A file with the key that all these streamers share, at least 16 bytes. Only they may be able to read it."""
    streamers: list[Annotated[str, AfterValidator(_streamer)]] = Field(min_length=1)
    """The authorities of the other streamers. The receipts of everybody else are refused."""

    def key(self) -> ReceiptKey:
        """Read the key from its file. Raises `ConfigurationError` with the option, never with the content."""
        try:
            secret = read_file(self.key_file).removesuffix(b"\n").removesuffix(b"\r")
        except OSError as exc:
            text = f"{self.key_file}: {exc.strerror or type(exc).__name__}"
            raise ConfigurationError("receipts.key_file", text) from None
        if len(secret) < SHORTEST_KEY:
            text = f"{self.key_file}: {len(secret)} bytes; expected at least {SHORTEST_KEY}"
            raise ConfigurationError("receipts.key_file", text)
        return ReceiptKey(secret)


class ZenohOptions(WireOptions):
    """Options of a ``zenoh`` endpoint.

    A put that has returned is not a delivery: Zenoh confirms nothing (`uncertain_s`, `receipts`).
    """

    model_config = ConfigDict(strict=True)

    mode: Literal["peer", "client", "router"] = "peer"
    """A peer, a client of a Zenoh router, or a router."""
    listen: list[_Endpoint] = []
    """Zenoh endpoints to listen on, such as ``tcp/192.168.0.2:7447``. With none, nobody can connect."""
    connect: list[_Endpoint] = []
    """Zenoh endpoints to connect to."""
    scouting: bool = False
    """Search for other nodes by multicast, and answer those that search."""
    gossip: bool = False
    """Tell each connected node about the others and our own addresses, and connect to the nodes that one names."""
    config_file: Annotated[Path, Field(strict=False)] | None = None
    """A configuration file of Zenoh itself (JSON5). Only the keys that are given here override it; shared memory and
    links over UDP (also QUIC) are always off."""
    receive_buffer: int = Field(default=1000, ge=1, le=1_000_000_000)
    """Samples that each subscription buffers before Zenoh holds the sender back."""
    uncertain_s: float = Field(default=DEFAULT_UNCERTAIN_S, ge=0, le=LONGEST_S)
    """For how long a message that Zenoh has taken may still turn out to be lost: the receiver's lease (10 s unless
    configured there) and the time that Zenoh takes to notice. 0 switches that off: what Zenoh has taken is delivered."""
    link_evidence: bool = True
    """Count a message as delivered earlier, once the TCP links to all other nodes have acknowledged it and each node was
    heard after that. It is never done while one of them is a router. Switch it off if receivers are clients of another
    peer."""
    lease_ms: int | None = Field(default=None, ge=100, le=LONGEST_S * 1000)
    """Our own lease: others drop their link to us after so long without a sign of life. None: Zenoh's 10000, or that of
    ``config_file``."""
    wait_before_close_ms: int | None = Field(default=None, ge=50, le=LONGEST_S * 1000)
    """How long a stalled receiver can block our puts before Zenoh closes the link to it. If that is shorter than a router's
    own, a stalled receiver behind the router costs us the link to the router. None: 1000; for a client, Zenoh's 5000; with
    ``config_file``, what it says."""
    max_message_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Zenoh silently drops larger messages, without assembling them in memory."""
    receipts: Annotated[ReceiptOptions, Field(strict=False)] | None = None
    """Streamers on this network confirm messages to each other. None: off."""
    _contents: tuple[bytes, ...] = PrivateAttr(())
    """Digests of the files that are read when the session is opened, also by Zenoh. Options are equal only if these are."""

    @model_validator(mode="after")
    def _client_needs_a_router(self) -> "ZenohOptions":
        if self.mode == "client" and not (self.connect or self.scouting or self.config_file):
            raise ValueError("mode client: expected connect, scouting or config_file, to find a router with")
        return self

    @model_validator(mode="after")
    def _look_into_files(self) -> "ZenohOptions":
        files = [self.config_file, None if self.receipts is None else self.receipts.key_file, *_named_to_zenoh(self)]
        self._contents = tuple(digest(file) for file in files if file is not None)
        return self

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def longest_unconfirmed_s(self) -> float:
        return self.uncertain_s

    def receive_bytes(self, message_bytes: int) -> int:
        """Return the memory with a single subscription: each further one buffers as much again."""
        return BACKLOG_BYTES + (_BATCH + self.receive_buffer) * message_bytes

    def exposures(self) -> Sequence[str]:
        found = [
            f"listen: {address[0]} is open to everybody who reaches it, who can then send in any name; listen on tls/ with "
            "client certificates (config_file), or on a loopback address"
            for address in map(_OPEN.match, self.listen)
            if address is not None and not is_loopback(address["host"])
        ]
        if self.scouting:
            found.append("scouting: true: everybody on the local network learns where the streamer is, and may connect")
        if self.gossip:
            found.append("gossip: true: every node that is connected may name others, to which the streamer then connects")
        return found

    def hints(self) -> Sequence[str]:
        return (*self._of_lease(), *self._of_routers())

    def _of_routers(self) -> Iterator[str]:
        """Yield what happens if the nodes that a peer connects to are routers of one network."""
        if self.mode == "peer" and len(self.connect) > 1:
            named = ", ".join(each.partition("#")[0].partition("?")[0] for each in self.connect)
            yield (
                f"connect: {named}: if these are Zenoh routers that are linked with each other, a peer "
                "that is connected to both gets every message twice, with one id; use mode client, which connects to one of "
                "them and to the other if that is gone, or name one"
            )

    def _of_lease(self) -> Sequence[str]:
        lease_ms = self._lease_ms()
        if lease_ms is None or not 0 < self.uncertain_s < _NOTICED * lease_ms / 1000:
            return ()
        return (
            f"uncertain_s: {self.uncertain_s:g}: with a lease of {lease_ms / 1000:g} s, the loss of a receiver may be "
            f"noticed only after {_NOTICED * lease_ms / 1000:g} s, when what was sent to it counts as delivered; set "
            "uncertain_s to more than that, or a shorter lease (lease_ms) at all nodes",
        )

    def _lease_ms(self) -> int | None:
        """Return our lease, to which the leases of other nodes are usually equal; None if it cannot be read."""
        if self.lease_ms is not None:
            return self.lease_ms
        if self.config_file is None:
            return _DEFAULT_LEASE_MS
        try:
            return int(json.loads(session_config(self).get_json(_LEASE)))
        except (ConfigurationError, zenoh.ZError, ValueError, TypeError):
            return None

    def claims(self, authority: str) -> Sequence[Claim]:
        """Return the ports of ``listen``, except those bound to one interface only. A client does not listen."""
        found: list[Claim] = []
        for index, match in enumerate(map(_LISTEN.fullmatch, self.listen if self.mode != "client" else ())):
            if match is not None and not _ONE_INTERFACE.search(match["settings"]):
                found += tcp(("listen", index), match["host"], int(match["port"]))
        return found

    def beside(self, name: str) -> Self:
        """Return the options of a node that connects to where these listen and connect, and listens nowhere."""
        config = session_config(self)
        mode = self.effective_mode(config)
        own = {
            "mode": "client" if mode == "client" else "peer",
            "listen": [],
            "connect": [*map(_reachable, endpoints_of(config, "listen", mode)), *endpoints_of(config, "connect", mode)],
            "receipts": None,
        }
        return self.model_copy(update=own)

    def effective_mode(self, config: zenoh.Config) -> str:
        """Return the mode that is in effect, also from ``config_file``."""
        try:
            return str(json.loads(config.get_json("mode")) or self.mode)
        except (zenoh.ZError, ValueError):
            return self.mode


def _reachable(endpoint: str) -> str:
    """Return a Zenoh endpoint of this machine with a loopback address in place of that for all addresses."""
    return _ANY_HOST.sub(lambda match: f"/{'[::1]' if match[1] == '[::]' else '127.0.0.1'}:", endpoint, count=1)


def endpoints_of(config: zenoh.Config, section: str, mode: str) -> list[str]:
    """Return the endpoints on which a session listens (``listen``) or to which it connects (``connect``).

    Zenoh's configuration may have other endpoints for each mode; an endpoint is a text, or an object that contains it.
    """
    found: Any = json.loads(config.get_json(f"{section}/endpoints"))
    if isinstance(found, dict):
        found = found.get(mode)
    each = [item.get("endpoint") if isinstance(item, dict) else item for item in found or ()]
    return [item for item in each if isinstance(item, str)]


def shown_endpoint(endpoint: str) -> str:
    """Return an endpoint without its settings, which may hold a password or key."""
    return _SETTINGS.sub("", endpoint)


def tls_files(config: zenoh.Config, endpoint: str) -> dict[str, Path]:
    """Return the TLS files of a Zenoh endpoint by option: those in its settings, else those of the whole session."""
    found = {name: file for name, file in json.loads(config.get_json(TLS)).items() if name in _TLS_FILES and file}
    found |= {name: value for key, value in _SETTING.findall(endpoint) if (name := key.removesuffix("_file")) in _TLS_FILES}
    return {name: Path(file) for name, file in found.items()}


def certificates(config: zenoh.Config, mode: str) -> Sequence[CertificateFile]:
    """Return the files with certificates that a session uses: for its listeners, and where it connects."""
    found: dict[CertificateFile, None] = {}
    for section, role, option in (
        ("listen", CertificateRole.SERVER, "listen_certificate"),
        ("connect", CertificateRole.CLIENT, "connect_certificate"),
    ):
        for endpoint in endpoints_of(config, section, mode):
            if endpoint.startswith("tls/"):
                files = tls_files(config, endpoint)
                roles = (role, option), (CertificateRole.AUTHORITIES, "root_ca_certificate")
                found |= {CertificateFile(each, files[name]): None for each, name in roles if name in files}
    return tuple(found)


def session_config(options: ZenohOptions, node: str | None = None) -> zenoh.Config:
    """Return Zenoh's configuration, with ``node`` as the id. Raises `ConfigurationError` for an unacceptable option."""
    if options.config_file is None:
        config = zenoh.Config()
        given = {"mode", "listen", "connect"}
        _insert(config, "connect", "connect/retry", _CONNECT_RETRY)
    else:
        config = _read(options.config_file)
        given = options.model_fields_set
    for option, key, value in (
        ("mode", "mode", options.mode),
        ("listen", "listen/endpoints", options.listen),
        ("connect", "connect/endpoints", options.connect),
        ("scouting", _MULTICAST, options.scouting),
        ("gossip", _GOSSIP, options.gossip),
    ):
        if option in given or json.loads(config.get_json(key)) is None:  # where a file says nothing, Zenoh has both on
            _insert(config, option, key, value)
    if node is not None:
        _insert(config, "config_file", "id", node)
    _insert(config, "config_file", _SHARED_MEMORY, False)
    _insert(config, "config_file", _PROTOCOLS, _RELIABLE)
    _check_endpoints_of_file(config)
    if options.config_file is None or "max_message_bytes" in given:
        _insert(config, "max_message_bytes", _MAX_MESSAGE, options.max_message_bytes)
    if options.lease_ms is not None:
        _insert(config, "lease_ms", _LEASE, options.lease_ms)
    if json.loads(config.get_json(_KEEP_ALIVE)) == _ZENOH_KEEP_ALIVE:
        lease_ms = json.loads(config.get_json(_LEASE))
        _insert(config, "lease_ms", _KEEP_ALIVE, max(_ZENOH_KEEP_ALIVE, -(-lease_ms // _KEEP_ALIVE_MS)))
    if options.wait_before_close_ms is not None:
        _insert(config, "wait_before_close_ms", _WAIT_BEFORE_CLOSE, options.wait_before_close_ms * 1000)
    elif options.config_file is None and options.mode != "client":
        _insert(config, "wait_before_close_ms", _WAIT_BEFORE_CLOSE, _WAIT_BEFORE_CLOSE_US)
    return config


def without_settings(exc: Exception) -> str:
    """Return the text of Zenoh's error, cut before a user name or an endpoint's settings, which may hold a password or key.

    The position in Zenoh's source is left out.
    """
    text = _IN_ZENOHS_SOURCE.sub("", str(exc))
    kept = _SETTINGS.sub("", text)
    return text if kept == text else f"{kept}… (the rest is withheld)"


def _named_to_zenoh(options: ZenohOptions) -> Iterator[Path]:
    """Yield the files that Zenoh may read: every text among its settings of TLS, authentication and endpoints."""
    endpoints = [*options.listen, *options.connect]
    if options.config_file is not None:
        try:
            config = _read(options.config_file)
        except ConfigurationError:  # reported when the session is opened
            return
        yield from map(Path, _texts([json.loads(config.get_json(key)) for key in _WITH_FILES]))
        endpoints += _texts([json.loads(config.get_json(key)) for key in _WITH_ENDPOINTS])
    for endpoint in endpoints:
        yield from (Path(value) for _, value in _SETTING.findall(endpoint))


def _texts(part: Any) -> Iterator[str]:
    """Yield every text in a part of Zenoh's configuration that can be a path."""
    if isinstance(part, str) and part and "\0" not in part:
        yield part
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _texts(inner)


def _read(path: Path) -> zenoh.Config:
    try:
        read_file(path)
        return zenoh.Config.from_file(path)
    except OSError as exc:
        raise ConfigurationError("config_file", f"{path}: {exc.strerror or type(exc).__name__}") from None
    except zenoh.ZError as exc:  # its text quotes the file, with passwords and keys
        place = _PLACE.search(str(exc))
        where = f"{path}, line {place[1]}, column {place[2]}" if place else f"{path}"
        text = f"{where}: expected a configuration that Zenoh accepts (the text is withheld)"
        raise ConfigurationError("config_file", text) from None


def _check_endpoints_of_file(config: zenoh.Config) -> None:
    """Raise `ConfigurationError` for endpoints of ``config_file`` over UDP, which Zenoh would refuse at every attempt."""
    for key in _WITH_ENDPOINTS:
        if _OVER_UDP.search(config.get_json(key)):
            raise ConfigurationError("config_file", f"{key}: expected reliable protocols, for instance tcp, not over UDP")


def wait_before_close_s(config: zenoh.Config) -> float:
    """Return for how many seconds a put can block before Zenoh closes the link to a receiver that does not read."""
    return float(json.loads(config.get_json(_WAIT_BEFORE_CLOSE))) / 1e6


def _insert(config: zenoh.Config, option: str, key: str, value: Any) -> None:
    try:
        config.insert_json5(key, json.dumps(value))
    except zenoh.ZError as exc:
        if option in ("listen", "connect"):  # they may hold a password, and Zenoh would repeat them
            raise ConfigurationError(option, "Zenoh does not accept one of these endpoints") from None
        raise ConfigurationError(option, f"Zenoh does not accept {value!r}: {exc}") from exc
