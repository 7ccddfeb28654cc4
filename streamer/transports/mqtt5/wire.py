"""uProtocol messages as MQTT 5 PUBLISH packets, their topics, and MQTT's reason codes (uP-L1 `mqtt_5.adoc`).

Pure: no event loop, no clock, no logger. The common part of the messages of a flow is computed once per `Attributes` and
cached. Messages of a flow differ in id, payload and carried attributes (`Attributes.carrying`). Messages without carried
attributes are assembled from the parts of a packet that the codec has written for their flow. `decoder` is the opposite
direction.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from mqtt5 import PublishPacket, QoS

from streamer.transports.errors import PermanentError, RefusedError, SendError
from streamer.transports.mqtt5.frames import AT_LEAST_ONCE, DUPLICATE, PUBLISH, as_variable_int, variable_int
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri
from streamer.uprotocol.uuid import format_id

Structure = Literal["off-vehicle", "in-vehicle"]
Property = tuple[str, str]

# Names of the user properties: the field numbers of UAttributes.
MARKER: Final = "uP"
ID: Final = "1"
TYPE, SOURCE, SINK, PRIORITY, TTL = "2", "3", "4", "5", "6"
PERMISSION_LEVEL, COMMSTATUS, TOKEN, TRACEPARENT = "7", "8", "10", "11"
# Since 1.6.0-alpha.5 of the specification these two are MQTT's correlation data and content type. The properties of senders
# by an earlier version are understood; the second one can also be written, for earlier receivers (`Encoder`).
REQID, PAYLOAD_FORMAT = "9", "12"

ATTRIBUTE_PROPERTIES = frozenset((MARKER, *(str(number) for number in range(1, 13))))
"""The names of user properties that are attributes."""

MARKER_PROPERTY: Property = (MARKER, "1")
TYPES = {
    "up-pub.v1": UMessageType.PUBLISH,
    "up-req.v1": UMessageType.REQUEST,
    "up-res.v1": UMessageType.RESPONSE,
    "up-not.v1": UMessageType.NOTIFICATION,
}
_TYPE_NAMES = {value: name for name, value in TYPES.items()}

MAX_PAYLOAD_BYTES = 0x0FFF_FFFF - 0x2_0000  # the longest MQTT packet, without topic and properties

# Control characters and noncharacters (MQTT 5, 1.5.4). Brokers end every connection on which one is sent.
_NONCHARACTERS: Final = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NOT_TEXT: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONCHARACTERS}]")

_NO_ID: Final = bytes(16)
_UINT32_MAX: Final = 0xFFFF_FFFF
ID_PROPERTY: Final = b"\x26\x00\x01" + ID.encode() + b"\x00\x24"
"""The beginning of the user property with the message's id: kind, name, and length of the text (MQTT 5, 2.2.2.2)."""
ID_TEXT_BYTES: Final = 36

# The first byte of a PUBLISH with QoS 1 (MQTT 5, 3.3.1).
_SENT: Final = bytes((PUBLISH | AT_LEAST_ONCE,))
_SENT_AGAIN: Final = bytes((PUBLISH | AT_LEAST_ONCE | DUPLICATE,))


def _epoch() -> int:
    return 0


class _Flow:
    """The common part of the PUBLISH packets of one flow."""

    __slots__ = (
        "_after_id",
        "_before_id",
        "_content_type",
        "_expiry_s",
        "_is_ttl_on_wire",
        "_now_ms",
        "_properties",
        "_topic_field",
        "topic",
    )

    def __init__(self, a: Attributes, topic: str, properties: list[Property], now_ms: Callable[[], int]) -> None:
        self.topic = topic
        self._now_ms = now_ms
        self._is_ttl_on_wire = a.ttl == a.wire_ttl  # otherwise only the expiry interval limits the message, for the broker
        self._properties = properties
        # Rounded up; none for TTL 0, which some brokers would expire at once.
        self._expiry_s = -(-a.ttl // 1000) if a.ttl and self._is_ttl_on_wire else None
        self._content_type = str(int(a.payload_format)) if a.payload_format else None
        packet = self._by_codec(UMessage(_NO_ID, a.shared), 1, False)
        begin = 1 + variable_int(packet, 1)[1]
        end = begin + 2 + int.from_bytes(packet[begin : begin + 2], "big")
        self._topic_field = packet[begin:end]
        before, _, self._after_id = packet[end + 2 :].partition(ID_PROPERTY + format_id(_NO_ID).encode())
        self._before_id = before + ID_PROPERTY

    def write(self, message: UMessage, packet_id: int, duplicate: bool) -> bytes:
        """Return the PUBLISH packet for a message of this flow. Raises ValueError if MQTT cannot carry it."""
        payload = message.payload or b""
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload of {len(payload)} bytes: MQTT takes {MAX_PAYLOAD_BYTES}")
        if message.attributes is not message.attributes.shared or not self._is_ttl_on_wire:
            return self._by_codec(message, packet_id, duplicate)
        header = len(self._topic_field) + 2 + len(self._before_id) + ID_TEXT_BYTES + len(self._after_id)
        return b"".join(
            (
                _SENT_AGAIN if duplicate else _SENT,
                as_variable_int(header + len(payload)),
                self._topic_field,
                packet_id.to_bytes(2, "big"),
                self._before_id,
                format_id(message.id).encode(),
                self._after_id,
                payload,
            )
        )

    def _by_codec(self, message: UMessage, packet_id: int, duplicate: bool) -> bytes:
        attributes = message.attributes
        user_properties = [MARKER_PROPERTY, (ID, format_id(message.id)), *self._properties]
        if attributes.token:  # an empty attribute has no property
            _check_text(attributes.token)
            user_properties.append((TOKEN, attributes.token))
        if attributes.traceparent:
            user_properties.append((TRACEPARENT, attributes.traceparent))
        return PublishPacket(
            self.topic,
            message.payload or b"",
            qos=QoS.AT_LEAST_ONCE,
            packet_id=packet_id,
            duplicate=duplicate,
            message_expiry_interval=self._expiry_s if self._is_ttl_on_wire else self._rest_s(message),
            content_type=self._content_type,
            correlation_data=attributes.reqid,
            user_properties=user_properties,
        ).write()

    def _rest_s(self, message: UMessage) -> int:
        """Return the seconds until a message expires, rounded up, for the broker."""
        now_ms = self._now_ms()
        rest_ms = (message.expires_ms(now_ms, 0) or 0) - now_ms
        return min(max(1, -(-rest_ms // 1000)), _UINT32_MAX)


def _check_text(token: str) -> None:
    """Raise ValueError for a token that is not valid text in MQTT. The error does not contain the token."""
    found = _NOT_TEXT.search(token)
    if found is not None:
        raise ValueError(f"token: MQTT takes no U+{ord(found[0]):04X} in text, and there is one at position {found.start()}")


def encode(message: UMessage, topic: str, packet_id: int, duplicate: bool = False) -> bytes:
    """Return the PUBLISH packet for ``message`` on a topic from `topic_for`. For many messages, use an `Encoder`."""
    return _flow(message.attributes, topic, _epoch).write(message, packet_id, duplicate)


class Encoder:
    """Encodes messages for one topic structure; ``own_authority`` replaces an empty authority.

    ``has_format_property``: the payload format is written as a user property, too. ``now_ms``: the wall clock.
    """

    def __init__(
        self, structure: Structure, own_authority: str, has_format_property: bool = False, now_ms: Callable[[], int] = _epoch
    ) -> None:
        self._now_ms = now_ms
        self._has_format_property = has_format_property
        self._structure = structure
        self._own_authority = own_authority
        self._flows: Cache[Attributes, _Flow] = Cache()

    def encode(self, message: UMessage, packet_id: int, duplicate: bool) -> bytes:
        """Return the PUBLISH packet, with QoS 1. Raises ValueError if MQTT cannot address or carry the message."""
        shared = message.attributes.shared
        flow = self._flows.get(shared) or self._learn(shared)
        return flow.write(message, packet_id, duplicate)

    def _learn(self, shared: Attributes) -> _Flow:
        try:
            return self._flows[shared]
        except KeyError:
            topic = topic_for(shared, self._structure, self._own_authority)
            flow = _flow(shared, topic, self._now_ms, self._has_format_property)
            self._flows.remember(shared, flow)
            return flow


def _flow(a: Attributes, topic: str, now_ms: Callable[[], int], has_format_property: bool = False) -> _Flow:
    properties = [(TYPE, _TYPE_NAMES[a.type]), (SOURCE, _uri_text(a.source))]
    # Rust receivers refuse a Publish with a sink, so an in-vehicle one (five segments) is sent without.
    if a.sink is not None and not (a.type is UMessageType.PUBLISH and topic.count("/") == 4):
        properties.append((SINK, _uri_text(a.sink)))
    if a.priority:
        properties.append((PRIORITY, a.priority.name))
    if a.wire_ttl is not None:
        # The specification has this property only if the TTL is not a whole number of seconds. We always send it: brokers
        # count the expiry interval down, and a TTL derived from that is too short if it is added to the id's time.
        properties.append((TTL, str(a.wire_ttl)))
    if a.permission_level is not None:
        properties.append((PERMISSION_LEVEL, str(a.permission_level)))
    if a.commstatus is not None:
        properties.append((COMMSTATUS, str(int(a.commstatus))))
    if has_format_property and a.payload_format:
        properties.append((PAYLOAD_FORMAT, str(int(a.payload_format))))
    return _Flow(a, topic, properties, now_ms)


_uri_text = lru_cache(maxsize=8192)(str)


def topic_for(attributes: Attributes, structure: Structure, own_authority: str) -> str:
    """Return the topic of a message. Raises ValueError if it cannot be addressed in this structure.

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
    """Return the MQTT topic filter that covers two uProtocol filters. It may match more than they do."""
    if structure == "off-vehicle":
        # There a Publish has a sink, too: the authority to which it is addressed, which is ours.
        sink_level = own_authority if sink is None else _level(sink.authority or own_authority, ANY_AUTHORITY)
        return f"{_level(source.authority or own_authority, ANY_AUTHORITY)}/{sink_level}"
    if sink is None:
        return _pattern(source, own_authority)
    return f"{_pattern(source, own_authority)}/{_pattern(sink, own_authority)}"


@lru_cache(maxsize=8192)
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


FAILURE = 0x80
"""Reason codes from here on are failures (MQTT 5, 2.4)."""


def puback_error(reason: int) -> SendError | None:
    """Return the error for a PUBACK's reason code; None if the broker has the message (MQTT 5, 2.4 and 3.4.2.1).

    Every code below 0x80 is success, even if the table for PUBACK does not have it: some brokers answer 0x01 to a message
    with user properties. "No matching subscribers" is success: the broker has accepted the message.
    """
    if reason < FAILURE:
        return None
    match reason:
        case 0x87:
            return PermanentError(UCode.PERMISSION_DENIED, "the broker does not allow this topic")
        case 0x90:
            return PermanentError(UCode.INVALID_ARGUMENT, "the broker calls the topic invalid")
        case 0x99:
            return PermanentError(UCode.INVALID_ARGUMENT, "the broker calls the payload format invalid")
        case 0x95:  # in no table for PUBACK; mosquitto answers so beyond its message_size_limit, and ends the connection
            return PermanentError(UCode.RESOURCE_EXHAUSTED, "the broker says that the message is too large")
        case 0x96 | 0x97:
            return RefusedError(UCode.RESOURCE_EXHAUSTED, f"the broker's quota is exceeded (reason 0x{reason:02X})")
        case 0x91:
            return RefusedError(UCode.UNAVAILABLE, "the broker says that the packet id is in use")
        case _:
            return RefusedError(UCode.INTERNAL, f"the broker refused the message (reason 0x{reason:02X})")


def connack_code(reason: int) -> UCode:
    """Return the uProtocol code for a CONNACK's reason code (MQTT 5, 3.2.2.2)."""
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
