"""UMessage and its attributes: the in-memory form, the rules per message type, and the builders.

A message consists of its id, its `Attributes` and its payload. `Attributes` are UAttributes without the id. Messages of one
flow share them: transports use the same object for all of them, and the router remembers what it decided for that object. So
its hash is computed only once. Attributes that differ in every message (reqid, token, traceparent) are *carried*: an object
with them is a cheap copy of the shared one, which it refers to (`Attributes.shared`).
"""

import re
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, ANY_UE_ID, ANY_VERSION, UUri
from streamer.uprotocol.uuid import UuidError, check_id, made_ms, new_id

_TRACE = "-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT = re.compile(f"00{_TRACE}|(?!00|ff)[0-9a-f]{{2}}{_TRACE}(?:-[!-~]*)?")  # later versions may have more fields
_UINT32_MAX = 0xFFFF_FFFF
_ORIGIN_BYTES = 12
_NO_HASH: Final = -1
"""The hash is not computed yet. No hash has this value."""

OVERHEAD_BYTES: Final = 600
"""The memory of a message without its payload, token and traceparent: objects, other attributes, ids.

Measured with tracemalloc, rounded up."""

HIGHEST_CLASS = 6
"""CS6, as `Attributes.priority_class` counts."""


class UMessageType(IntEnum):
    """The four kinds of message."""

    UNSPECIFIED = 0
    PUBLISH = 1
    REQUEST = 2
    RESPONSE = 3
    NOTIFICATION = 4


class UPriority(IntEnum):
    """Priority classes CS0 (lowest) to CS6; unspecified means CS1."""

    UNSPECIFIED = 0
    CS0 = 1
    CS1 = 2
    CS2 = 3
    CS3 = 4
    CS4 = 5
    CS5 = 6
    CS6 = 7


class UPayloadFormat(IntEnum):
    """How the payload is encoded."""

    UNSPECIFIED = 0
    PROTOBUF_WRAPPED_IN_ANY = 1
    PROTOBUF = 2
    JSON = 3
    SOMEIP = 4
    SOMEIP_TLV = 5
    RAW = 6
    TEXT = 7
    SHM = 8


class Provenance(NamedTuple):
    """The transport's knowledge about the reception of a message, which is never on the wire.

    ``identity`` is the sender's identity, if the network proves one (else None). ``ceiling`` is the highest priority class
    in which the message is treated, 0 to 6, whatever its attributes say.
    """

    identity: str | None = None
    ceiling: int = HIGHEST_CLASS


UNPROVEN = Provenance()


@dataclass
class Attributes:
    """UAttributes without the id, and their `Provenance`. They are never changed.

    ``ttl`` is in milliseconds; ``reqid`` is a UUIDv7 as 16 bytes. None means absent, which is not the same as 0. ``token``
    is a credential: the text form omits it. Computed once for all messages with the same ``shared``: ``priority_class`` is 0
    (CS0) to 6 (CS6), not above the ceiling, CS1 if unspecified (`uattributes.adoc`); ``origin`` is a digest of the source,
    12 bytes, which identifies a message together with its id, whatever ids other sources choose; ``shared_problems`` are the
    rules for this message type that they break. ``extra_bytes`` is the size of token and traceparent, which may be long.

    ``packed`` and ``attachment`` are for the journal's codec and for Zenoh: what they make of shared attributes, once they
    have made it. So it is kept for as long as the attributes are. ``flows`` is the `streamer.uprotocol.flows.Flows` to which
    these shared attributes belong, if any. It empties the slots of the endpoint: ``listeners``, of its registry,
    ``resolved``, of the router, and ``canonical``, of Zenoh's intake.
    """

    type: UMessageType
    source: UUri
    sink: UUri | None = None
    priority: UPriority = UPriority.UNSPECIFIED
    ttl: int | None = None
    permission_level: int | None = None
    commstatus: UCode | None = None
    reqid: bytes | None = None
    token: str | None = field(default=None, repr=False)
    traceparent: str | None = None
    payload_format: UPayloadFormat = UPayloadFormat.UNSPECIFIED
    provenance: Provenance = UNPROVEN

    priority_class: int = field(init=False, repr=False, compare=False)
    origin: bytes = field(init=False, repr=False, compare=False)
    shared_problems: tuple[str, ...] = field(init=False, repr=False, compare=False)
    extra_bytes: int = field(init=False, repr=False, compare=False)
    packed: bytes = field(init=False, repr=False, compare=False)
    attachment: bytes = field(init=False, repr=False, compare=False)
    flows: Any = field(init=False, repr=False, compare=False)
    listeners: Any = field(init=False, repr=False, compare=False)
    resolved: Any = field(init=False, repr=False, compare=False)
    canonical: Any = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)
    _shared: "Attributes | None" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.reqid is None and self.token is None and self.traceparent is None:
            self._shared = None
            self.priority_class = min((self.priority or UPriority.CS1) - 1, self.provenance.ceiling)
            self.origin = _digest(self.source)
            self.shared_problems = tuple(_problems(self))
            self.extra_bytes = 0
        else:
            self._share(replace(self, reqid=None, token=None, traceparent=None))
        self.packed = self.attachment = b""
        self.flows = self.listeners = self.resolved = self.canonical = None
        self._hash = _NO_HASH

    def _share(self, shared: "Attributes") -> None:
        self._shared = shared
        self.priority_class = shared.priority_class
        self.origin = shared.origin
        self.shared_problems = shared.shared_problems
        self.extra_bytes = _bytes_in(self.token) + _bytes_in(self.traceparent)

    @property
    def shared(self) -> "Attributes":
        """The same attributes without the carried ones. Caches of flows have these as keys."""
        return self if self._shared is None else self._shared

    def carrying(self, reqid: bytes | None, token: str | None, traceparent: str | None) -> "Attributes":
        """Return a copy of these attributes with the given carried ones. Nothing is computed anew."""
        shared = self.shared
        if reqid is None and token is None and traceparent is None:
            return shared
        carried = Attributes.__new__(Attributes)  # without `__post_init__`
        carried.type = shared.type
        carried.source = shared.source
        carried.sink = shared.sink
        carried.priority = shared.priority
        carried.ttl = shared.ttl
        carried.permission_level = shared.permission_level
        carried.commstatus = shared.commstatus
        carried.reqid = reqid
        carried.token = token
        carried.traceparent = traceparent
        carried.payload_format = shared.payload_format
        carried.provenance = shared.provenance
        carried.packed = carried.attachment = b""
        carried.flows = carried.listeners = carried.resolved = carried.canonical = None
        carried._hash = _NO_HASH
        carried._share(shared)
        return carried

    def carrying_as(self, other: "Attributes") -> "Attributes":
        """Return these attributes with the carried ones of ``other``."""
        return self.shared if other._shared is None else self.carrying(other.reqid, other.token, other.traceparent)

    def __hash__(self) -> int:
        if self._hash == _NO_HASH:
            # Every field: a peer chooses the values, and those that share a hash make every cache a list.
            if self._shared is None:
                self._hash = hash(tuple(getattr(self, name) for name in _FIELDS))
            else:
                self._hash = hash((self._shared, self.reqid, self.token, self.traceparent))
        return self._hash

    @property
    def problems(self) -> tuple[str, ...]:
        """All rules for this message type that these attributes break; empty if they are valid."""
        found = (*self.shared_problems, *self.carried_problems)
        return found if self.ttl == self.wire_ttl else (*found, "ttl: expected 32 bits")

    @property
    def wire_ttl(self) -> int | None:
        """The TTL in 32 bits, as networks carry it. One that counts from the arrival (`ending`) may not fit into them.

        Then it is 0: networks do not limit the message by its id. A Request needs a TTL, and has the longest. For an id from
        the future it is 1.
        """
        if self.ttl is None or 0 <= self.ttl <= _UINT32_MAX:
            return self.ttl
        if self.ttl < 0:
            return 1
        return _UINT32_MAX if self.type is UMessageType.REQUEST else 0

    @property
    def carried_problems(self) -> list[str]:
        """All rules that the carried attributes of this message break, or that a missing one breaks."""
        return _carried_problems(self)

    def below(self, ceiling: int) -> "Attributes":
        """Return the same attributes, treated in no higher priority class than ``ceiling``."""
        if ceiling >= self.provenance.ceiling:
            return self
        return replace(self, provenance=self.provenance._replace(ceiling=ceiling))


_FIELDS: Final = tuple(each.name for each in fields(Attributes) if each.init)


def _bytes_in(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


@lru_cache(maxsize=8192)
def _digest(source: UUri) -> bytes:
    return blake2b(str(source).encode(errors="surrogatepass"), digest_size=_ORIGIN_BYTES).digest()


@dataclass(init=False)
class UMessage:
    """One message: its id (UUIDv7, 16 bytes), attributes and payload (None: no payload, not an empty one).

    It is never changed; `dataclasses.replace` makes another one. ``size`` is its memory in bytes, as bounds count it.
    """

    id: bytes
    attributes: Attributes
    payload: bytes | None
    size: int = field(init=False, repr=False, compare=False)

    def __init__(self, id: bytes, attributes: Attributes, payload: bytes | None = None) -> None:  # noqa: A002
        self.id = id
        self.attributes = attributes
        self.payload = payload
        self.size = OVERHEAD_BYTES + attributes.extra_bytes + (0 if payload is None else len(payload))

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def payload_bytes(self) -> int:
        """The length of the payload; 0 without one."""
        return 0 if self.payload is None else len(self.payload)

    def expires_ms(self, now_ms: int, waited_s: float) -> int | None:
        """Return when the message expires, in Unix milliseconds of today's clock; None if it never does (TTL absent or 0).

        ``waited_s`` is how long the streamer has had the message, by the monotonic clock, or since a time of arrival that
        was written down; 0 if nobody knows. A TTL counts from the creation time in the id (`uattributes.adoc`). If that is
        more than a day after the arrival, because a clock is wrong or forged, the TTL counts from the arrival.
        """
        ttl = self.attributes.ttl
        if not ttl:
            return None
        return made_ms(self.id, now_ms - int(waited_s * 1000) if waited_s > 0 else now_ms) + ttl

    def is_expired(self, now_ms: int, waited_s: float) -> bool:
        """Whether the message has expired: the moment of `expires_ms` has passed."""
        ttl = self.attributes.ttl
        if not ttl:
            return False
        return now_ms > made_ms(self.id, now_ms - int(waited_s * 1000) if waited_s > 0 else now_ms) + ttl

    def ttl_until(self, end_ms: int, now_ms: int) -> int:
        """Return the TTL with which the message expires at ``end_ms``, whatever the creation time in its id is.

        It counts from the id as always, so it may be longer than 32 bits, or negative: `Attributes.wire_ttl`. For an id that
        is more than a day ahead of ``now_ms``, it is the time from ``now_ms`` on (`made_ms`).
        """
        ttl = end_ms - made_ms(self.id, now_ms)
        return ttl if ttl > 0 or ttl < -1 else 1

    def ending(self, end_ms: int, now_ms: int) -> "UMessage":
        """Return the message with the TTL that `ttl_until` gives."""
        return replace(self, attributes=replace(self.attributes, ttl=self.ttl_until(end_ms, now_ms)))

    def check(self) -> "UMessage":
        """Return self if it obeys every rule of its type, else raise `InvalidMessageError`."""
        problems = list(self.attributes.problems)
        try:
            check_id(self.id)
        except UuidError as exc:
            problems.insert(0, f"id {exc}")
        if self.payload is None and self.attributes.payload_format:
            problems.append("payload_format: expected only with a payload")
        if problems:
            raise InvalidMessageError(problems)
        return self


class InvalidMessageError(ValueError):
    """A message breaks the rules of its type; ``problems`` lists all of them."""

    def __init__(self, problems: list[str] | tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def authority_only(uri: UUri) -> bool:
    """Whether every field but the authority is a wildcard: the sink that a streamer may set on a Publish."""
    return (uri.ue_id, uri.version, uri.resource) == (ANY_UE_ID, ANY_VERSION, ANY_RESOURCE)


def sink_matches(pattern: UUri, sink: UUri | None) -> bool:
    """Whether a pattern matches a sink. Of a sink with only an authority, just that is compared."""
    if sink is None:
        return False
    if authority_only(sink):
        return pattern.authority in (ANY_AUTHORITY, sink.authority)
    return pattern.matches(sink)


def _problems(a: Attributes) -> list[str]:
    found: list[str] = []
    if not a.source.authority:
        found.append("source: expected an authority")
    found += _uri_problems("source", a.source)
    is_addressed = a.type is UMessageType.PUBLISH and a.sink is not None and authority_only(a.sink)
    if a.sink is not None:
        found += _uri_problems("sink", a.sink, is_pattern=is_addressed)

    match a.type:
        case UMessageType.PUBLISH:
            if not a.source.is_topic:
                found.append(f"source: expected a topic (resource 8000 to FFFE), found {a.source.resource:X}")
            if a.sink is not None and not (is_addressed and a.sink.authority):
                found.append("sink: expected none for a Publish, or one with only an authority")
        case UMessageType.NOTIFICATION:
            if not a.source.is_topic:
                found.append(f"source: expected a topic (resource 8000 to FFFE), found {a.source.resource:X}")
            if a.sink is None or not a.sink.is_entity:
                found.append("sink: expected a uEntity (resource 0)")
        case UMessageType.REQUEST:
            if not a.source.is_entity:
                found.append("source: expected a uEntity (resource 0)")
            if a.sink is None or not a.sink.is_method:
                found.append("sink: expected a method (resource 1 to 7FFF)")
            if not a.ttl:
                found.append("ttl: a Request needs one above 0")
            if a.priority < UPriority.CS4:
                found.append("priority: a Request needs CS4 or higher")
        case UMessageType.RESPONSE:
            if not a.source.is_method:
                found.append("source: expected a method (resource 1 to 7FFF)")
            if a.sink is None or not a.sink.is_entity:
                found.append("sink: expected a uEntity (resource 0)")
            if a.priority < UPriority.CS4:
                found.append("priority: a Response needs CS4 or higher, as its Request had")
        case UMessageType.UNSPECIFIED:
            found.append("type: expected Publish, Request, Response or Notification")

    if a.permission_level is not None and not 0 <= a.permission_level <= _UINT32_MAX:
        found.append("permission_level: expected 32 bits")
    return found


def _carried_problems(a: Attributes) -> list[str]:
    found: list[str] = []
    if a.reqid is not None:
        try:
            check_id(a.reqid)
        except UuidError as exc:
            found.append(f"reqid {exc}")
    elif a.type is UMessageType.RESPONSE:
        found.append("reqid: a Response needs the id of its Request")
    if a.traceparent and not _TRACEPARENT.fullmatch(a.traceparent):
        found.append("traceparent: expected the W3C form version-traceid-parentid-flags")
    return found


def _uri_problems(name: str, uri: UUri, is_pattern: bool = False) -> list[str]:
    try:
        uri.check()
    except ValueError as exc:
        return [f"{name}: {exc}"]
    return [f"{name}: {uri} has a wildcard"] if uri.has_wildcard and not is_pattern else []


class Options(NamedTuple):
    """The optional attributes that every builder takes. The fields are those of `Attributes`."""

    priority: UPriority = UPriority.UNSPECIFIED
    ttl: int | None = None
    permission_level: int | None = None
    token: str | None = None
    traceparent: str | None = None
    payload_format: UPayloadFormat = UPayloadFormat.UNSPECIFIED


_PLAIN = Options()


def publish(now_ms: int, topic: UUri, payload: bytes | None = None, options: Options = _PLAIN) -> UMessage:
    """Build a Publish on ``topic``. Raises `InvalidMessageError`."""
    return _build(now_ms, Attributes(UMessageType.PUBLISH, topic, **options._asdict()), payload)


def notification(now_ms: int, source: UUri, sink: UUri, payload: bytes | None = None, options: Options = _PLAIN) -> UMessage:
    """Build a Notification from a resource to a uEntity. Raises `InvalidMessageError`."""
    return _build(now_ms, Attributes(UMessageType.NOTIFICATION, source, sink, **options._asdict()), payload)


def request(
    now_ms: int, source: UUri, method: UUri, ttl: int, payload: bytes | None = None, options: Options = _PLAIN
) -> UMessage:
    """Build a Request from a uEntity to a method, CS4 unless ``options`` say otherwise. Raises `InvalidMessageError`."""
    options = options._replace(ttl=ttl, priority=options.priority or UPriority.CS4)
    return _build(now_ms, Attributes(UMessageType.REQUEST, source, method, **options._asdict()), payload)


def response(
    now_ms: int,
    to: UMessage,
    payload: bytes | None = None,
    commstatus: UCode | None = None,
    payload_format: UPayloadFormat = UPayloadFormat.UNSPECIFIED,
) -> UMessage:
    """Build the Response to Request ``to``, with source and sink exchanged, its priority and TTL.

    Raises `InvalidMessageError`.
    """
    request = to.attributes
    if request.sink is None:
        raise InvalidMessageError(["sink: the Request has none, so there is no method that could respond"])
    attributes = Attributes(
        UMessageType.RESPONSE,
        request.sink,
        request.source,
        priority=request.priority,
        ttl=request.wire_ttl,
        commstatus=commstatus,
        reqid=to.id,
        payload_format=payload_format,
    )
    return _build(now_ms, attributes, payload)


def _build(now_ms: int, attributes: Attributes, payload: bytes | None) -> UMessage:
    return UMessage(new_id(now_ms), attributes, payload).check()
