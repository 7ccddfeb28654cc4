"""uProtocol messages as MQTT 5 PUBLISH packets, their topics, and MQTT's reason codes (uP-L1 `mqtt_5.adoc`).

Pure: no event loop, no clock, no logger. What all messages of a flow have in common is computed once per `Attributes`
(sending) or once per set of user properties (receiving) and remembered. What remains per message is its id and payload.
"""

from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

from mqtt5 import PublishPacket, QoS

from streamer.transports.errors import Malformed, MalformedPacketError, PermanentError, RefusedError, SendError
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UriError, UUri
from streamer.uprotocol.uuid import UuidError, format_id, parse_id

Structure = Literal["off-vehicle", "in-vehicle"]
Property = tuple[str, str]
T = TypeVar("T")

# Names of the user properties: the field numbers of UAttributes.
_MARKER, _ID, _TYPE, _SOURCE, _SINK, _PRIORITY, _TTL = "uP", "1", "2", "3", "4", "5", "6"
_PERMISSION_LEVEL, _COMMSTATUS, _TOKEN, _TRACEPARENT = "7", "8", "10", "11"

_MARKER_PROPERTY: Property = (_MARKER, "1")
_TYPES = {
    "up-pub.v1": UMessageType.PUBLISH,
    "up-req.v1": UMessageType.REQUEST,
    "up-res.v1": UMessageType.RESPONSE,
    "up-not.v1": UMessageType.NOTIFICATION,
}
_TYPE_NAMES = {value: name for name, value in _TYPES.items()}
_PRIORITIES = {priority.name: priority for priority in UPriority if priority}
_FORMATS = {str(int(item)): item for item in UPayloadFormat}
_CODES = {str(int(code)): code for code in UCode}

_UINT32_MAX = 0xFFFF_FFFF
_REMEMBERED = 8192
_AT_LEAST_ONCE = QoS.AT_LEAST_ONCE
MAX_PAYLOAD_BYTES = 0x0FFF_FFFF - 0x2_0000  # the longest MQTT packet, less room for topic and properties


class _Flow(NamedTuple):
    """What every message of one flow has in common on the wire."""

    topic: str
    properties: list[Property]
    expiry_s: int | None
    content_type: str | None
    correlation: bytes | None


def encode(message: UMessage, topic: str, packet_id: int, duplicate: bool = False) -> bytes:
    """The PUBLISH packet for ``message`` on a topic from `topic_for`. To send many messages, use an `Encoder`."""
    return _write(message, _flow(message.attributes, topic), packet_id, duplicate)


class Encoder:
    """Encodes messages for one topic structure; ``own_authority`` stands in for an empty one."""

    def __init__(self, structure: Structure, own_authority: str) -> None:
        self._structure = structure
        self._own_authority = own_authority
        self._flows: dict[Attributes, _Flow] = {}

    def encode(self, message: UMessage, packet_id: int, duplicate: bool) -> bytes:
        """The PUBLISH packet, QoS 1. Raises ValueError if the message cannot be addressed or does not fit."""
        flow = self._flows.get(message.attributes)
        if flow is None:
            flow = self._learn(message.attributes)
        return _write(message, flow, packet_id, duplicate)

    def _learn(self, attributes: Attributes) -> _Flow:
        flow = _flow(attributes, topic_for(attributes, self._structure, self._own_authority))
        if attributes.is_shared:
            if len(self._flows) >= _REMEMBERED:
                self._flows.clear()
            self._flows[attributes] = flow
        return flow


def _write(message: UMessage, flow: _Flow, packet_id: int, duplicate: bool) -> bytes:
    topic, properties, expiry_s, content_type, correlation = flow
    payload = message.payload or b""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"payload of {len(payload)} bytes: MQTT takes {MAX_PAYLOAD_BYTES}")
    return PublishPacket(
        topic,
        payload,
        qos=_AT_LEAST_ONCE,
        packet_id=packet_id,
        duplicate=duplicate,
        message_expiry_interval=expiry_s,
        content_type=content_type,
        correlation_data=correlation,
        user_properties=[_MARKER_PROPERTY, (_ID, format_id(message.id)), *properties],
    ).write()


def _flow(a: Attributes, topic: str) -> _Flow:
    properties = [(_TYPE, _TYPE_NAMES[a.type]), (_SOURCE, _uri_text(a.source))]
    # Rust receivers refuse a Publish with a sink, so an in-vehicle one (five segments) is sent without.
    if a.sink is not None and not (a.type is UMessageType.PUBLISH and topic.count("/") == 4):
        properties.append((_SINK, _uri_text(a.sink)))
    if a.priority:
        properties.append((_PRIORITY, a.priority.name))
    if a.ttl is not None:
        # The specification has this property only if the TTL is not a whole number of seconds. We always send it: brokers
        # count the expiry interval down, and a TTL derived from that is too short if it is added to the id's time.
        properties.append((_TTL, str(a.ttl)))
    if a.permission_level is not None:
        properties.append((_PERMISSION_LEVEL, str(a.permission_level)))
    if a.commstatus is not None:
        properties.append((_COMMSTATUS, str(int(a.commstatus))))
    if a.token is not None:
        properties.append((_TOKEN, a.token))
    if a.traceparent is not None:
        properties.append((_TRACEPARENT, a.traceparent))
    return _Flow(
        topic,
        properties,
        -(-a.ttl // 1000) if a.ttl else None,  # rounded up; none for TTL 0, which some brokers would expire at once
        str(int(a.payload_format)) if a.payload_format else None,
        a.reqid,
    )


_uri_text = lru_cache(maxsize=16384)(str)

_known: dict[tuple[tuple[Property, ...], int | None, str | None], Attributes] = {}
_interned: dict[Attributes, Attributes] = {}


def decode(packet: PublishPacket) -> UMessage:
    """The message in a PUBLISH packet. Raises `MalformedPacketError`; the rules per type are not checked here.

    Messages of one flow get the same `Attributes` object. An empty payload without a content type is no payload.
    """
    properties = packet.user_properties
    content_type = packet.content_type
    # Every known sender puts the id second, behind the marker; nothing says that it has to be there.
    usual = len(properties) > 1 and properties[1][0] == _ID and properties[0][0] == _MARKER
    index = 1 if usual else _find_id(properties)
    if packet.correlation_data is None:
        known = ((*properties[:index], *properties[index + 1 :]), packet.message_expiry_interval, content_type)
        attributes = _known.get(known)
        if attributes is None:
            attributes = _learn(known, _attributes(properties, packet))
    else:
        attributes = _attributes(properties, packet)
    try:
        uuid = parse_id(properties[index][1])
    except UuidError as exc:
        raise MalformedPacketError(Malformed.ID, str(exc)) from None
    return UMessage(uuid, attributes, packet.payload or (None if content_type is None else b""))


def _learn(known: tuple[tuple[Property, ...], int | None, str | None], attributes: Attributes) -> Attributes:
    if not attributes.is_shared:
        return attributes
    if len(_known) >= _REMEMBERED:
        _known.clear()
        _interned.clear()
    # The broker counts the expiry interval down, so packets that differ in it are still one flow.
    attributes = _interned.setdefault(attributes, attributes)
    _known[known] = attributes
    return attributes


def _find_id(properties: list[Property]) -> int:
    for index, (key, _) in enumerate(properties):
        if key == _ID:
            return index
    _check_marker(dict(reversed(properties)))  # a packet that is not uProtocol at all is reported as that
    raise MalformedPacketError(Malformed.ID, "no id (user property 1)")


def _check_marker(values: dict[str, str]) -> None:
    marker = values.get(_MARKER)
    if marker is None:
        raise MalformedPacketError(Malformed.MARKER, "no user property uP")
    if marker.partition(".")[0] != "1":
        raise MalformedPacketError(Malformed.VERSION, f"uP {marker[:64]!r}: expected major version 1")


def _attributes(properties: list[Property], packet: PublishPacket) -> Attributes:
    values = dict(reversed(properties))  # of equal keys the first counts
    _check_marker(values)
    kind = _look_up(_TYPES, values, _TYPE, "type")
    if kind is None:
        raise MalformedPacketError(Malformed.CODE, "no type (user property 2)")
    source = _uri(values, _SOURCE, "source")
    if source is None:
        raise MalformedPacketError(Malformed.URI, "no source (user property 3)")
    ttl = _number(values, _TTL, "ttl")
    if ttl is None and packet.message_expiry_interval is not None:
        ttl = packet.message_expiry_interval * 1000
        if ttl > _UINT32_MAX:
            raise MalformedPacketError(Malformed.NUMBER, f"message expiry interval {ttl // 1000} s: beyond a ttl")
    reqid = packet.correlation_data
    if reqid is not None and len(reqid) != 16:
        raise MalformedPacketError(Malformed.ID, f"correlation data of {len(reqid)} bytes: expected 16")
    content_type = packet.content_type
    payload_format = UPayloadFormat.UNSPECIFIED
    if content_type is not None:
        payload_format = _FORMATS.get(content_type) or _bad_format(content_type)
    return Attributes(
        kind,
        source,
        _uri(values, _SINK, "sink"),
        priority=_look_up(_PRIORITIES, values, _PRIORITY, "priority") or UPriority.UNSPECIFIED,
        ttl=ttl,
        permission_level=_number(values, _PERMISSION_LEVEL, "permission level"),
        commstatus=_look_up(_CODES, values, _COMMSTATUS, "commstatus"),
        reqid=reqid,
        token=values.get(_TOKEN),
        traceparent=values.get(_TRACEPARENT),
        payload_format=payload_format,
    )


def _bad_format(content_type: str) -> UPayloadFormat:
    if content_type == "0":
        return UPayloadFormat.UNSPECIFIED
    raise MalformedPacketError(Malformed.CODE, f"content type {content_type[:64]!r}: expected a payload format number")


def _look_up(table: dict[str, T], values: dict[str, str], key: str, name: str) -> T | None:
    text = values.get(key)
    if text is None:
        return None
    found = table.get(text)
    if found is None:
        raise MalformedPacketError(Malformed.CODE, f"unknown {name} {text[:64]!r}")
    return found


def _uri(values: dict[str, str], key: str, name: str) -> UUri | None:
    text = values.get(key)
    if text is None:
        return None
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise MalformedPacketError(Malformed.URI, f"{name}: {str(exc)[:300]}") from None


def _number(values: dict[str, str], key: str, name: str) -> int | None:
    text = values.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _UINT32_MAX):
        raise MalformedPacketError(Malformed.NUMBER, f"{name} {text[:64]!r}: expected a decimal number of 32 bits")
    return int(text)


def topic_for(attributes: Attributes, structure: Structure, own_authority: str) -> str:
    """The topic a message is published to. Raises ValueError if it cannot be addressed in this structure.

    A message for any authority goes to ``source-authority/*``; to MQTT, ``*`` is an ordinary character.
    """
    sink = attributes.sink
    if structure == "off-vehicle":
        if sink is None:
            raise ValueError(f"an off-vehicle topic names the sink's authority, and this {attributes.type.name} has no sink")
        return f"{attributes.source.authority or own_authority}/{sink.authority or own_authority}"
    if attributes.type is UMessageType.PUBLISH:
        return _name(attributes.source, own_authority)
    if sink is None:
        raise ValueError(f"an in-vehicle {attributes.type.name} needs a sink")
    return f"{_name(attributes.source, own_authority)}/{_name(sink, own_authority)}"


def topic_filter(source: UUri, sink: UUri | None, structure: Structure, own_authority: str) -> str:
    """The MQTT topic filter that covers the two uProtocol filters. It may match more than they do."""
    if structure == "off-vehicle":
        # There a Publish has a sink too: the authority that it is addressed to, which is ours.
        sink_level = own_authority if sink is None else _level(sink.authority or own_authority, ANY_AUTHORITY)
        return f"{_level(source.authority or own_authority, ANY_AUTHORITY)}/{sink_level}"
    if sink is None:
        return _pattern(source, own_authority)
    return f"{_pattern(source, own_authority)}/{_pattern(sink, own_authority)}"


@lru_cache(maxsize=16384)
def _name(uri: UUri, own_authority: str) -> str:
    authority = uri.authority or own_authority
    return f"{authority}/{uri.type_id:X}/{uri.instance_id:X}/{uri.version:X}/{uri.resource:X}"


def _pattern(uri: UUri, own_authority: str) -> str:
    levels = (
        _level(uri.authority or own_authority, ANY_AUTHORITY),
        _level(uri.type_id, ANY_TYPE),
        _level(uri.instance_id, ANY_INSTANCE),
        _level(uri.version, ANY_VERSION),
        _level(uri.resource, ANY_RESOURCE),
    )
    return "/".join(levels)


def _level(value: str | int, wildcard: str | int) -> str:
    if value == wildcard:
        return "+"
    return value if isinstance(value, str) else f"{value:X}"


def puback_error(reason: int) -> SendError | None:
    """What a PUBACK's reason code means for the message: None if the broker has it (MQTT 5, 3.4.2.1).

    "No matching subscribers" is success: the broker has taken the message, and nobody is subscribed.
    """
    match reason:
        case 0x00 | 0x10:
            return None
        case 0x87:
            return PermanentError(UCode.PERMISSION_DENIED, "the broker does not allow this topic")
        case 0x90:
            return PermanentError(UCode.INVALID_ARGUMENT, "the broker calls the topic invalid")
        case 0x99:
            return PermanentError(UCode.INVALID_ARGUMENT, "the broker calls the payload format invalid")
        case 0x96 | 0x97:
            return RefusedError(UCode.RESOURCE_EXHAUSTED, f"the broker's quota is exceeded (reason 0x{reason:02X})")
        case 0x91:
            return RefusedError(UCode.UNAVAILABLE, "the broker says that the packet id is in use")
        case _:
            return RefusedError(UCode.INTERNAL, f"the broker refused the message (reason 0x{reason:02X})")


def connack_code(reason: int) -> UCode:
    """The uProtocol code for a CONNACK's reason code (MQTT 5, 3.2.2.2)."""
    match reason:
        case 0x00:
            return UCode.OK
        case 0x86 | 0x8C:
            return UCode.UNAUTHENTICATED
        case 0x87:
            return UCode.PERMISSION_DENIED
        case 0x88 | 0x89:
            return UCode.UNAVAILABLE
        case _:
            return UCode.INTERNAL
