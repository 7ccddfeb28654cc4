"""Reads PUBLISH packets (MQTT 5, 3.3), each in one pass over its properties. Pure.

    fixed header | topic | packet id, with QoS above 0 | length of the properties | properties | payload

The codec reads no PUBLISH: it panics over text that is not UTF-8, which anybody can send. A packet that the codec refuses
is refused here, too.
"""

from typing import Final

from mqtt5 import DisconnectReasonCode

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.mqtt5.frames import (
    NOT_TEXT,
    QOS,
    SUBSCRIPTION_ID,
    USER_PROPERTY,
    ProtocolError,
    after_property,
    body_of,
    malformed,
    variable_int,
)

_EXPIRY: Final = 0x02
_CONTENT_TYPE: Final = 0x03
_RESPONSE_TOPIC: Final = 0x08
_CORRELATION_DATA: Final = 0x09
_TOPIC_ALIAS: Final = 0x23
_ONCE: Final = (0x01, _EXPIRY, _CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION_DATA, _TOPIC_ALIAS)

_TOKEN = b"\x26\x00\x0210"
"""The beginning of the user property with a token."""


class Publish:
    """A decoded PUBLISH packet. ``packet_id`` is None with QoS 0."""

    def __init__(self, topic: str, packet_id: int | None, payload: bytes) -> None:
        self.topic = topic
        self.packet_id = packet_id
        self.payload = payload
        self.user_properties: list[tuple[str, str]] = []
        self.content_type: str | None = None
        self.correlation_data: bytes | None = None
        self.message_expiry_interval: int | None = None


def read(frame: bytes, max_header_bytes: int) -> Publish:
    """Read a PUBLISH. Raises `MalformedPacketError`, also for properties of more than ``max_header_bytes``.

    Those are refused before they are read: a packet of 16 MiB, with an object of every few bytes, would block the event
    loop for more than a second. Raises `ProtocolError` for a topic, or a topic alias, that no broker may send.
    """
    try:
        size, start, after_topic, first, payload = parts(frame)
        if payload - first > max_header_bytes and len(frame) > max_header_bytes:  # else a wrong length
            detail = f"{payload - first} bytes of properties, more than max_header_bytes {max_header_bytes}"
            raise MalformedPacketError(Malformed.HEADER, detail)
        if size > len(frame) or payload > size:
            raise IndexError("properties or payload that end after the packet")
        packet = _without_properties(frame, start, after_topic, frame[payload:])
        at = _add_properties(packet, frame, first, payload, True)
        if at < payload:
            raise IndexError(f"a property that ends {after_property(frame, at) - payload} bytes after the properties")
    except UnicodeDecodeError:
        raise MalformedPacketError(Malformed.PACKET, NOT_TEXT) from None
    except MalformedPacketError:
        raise
    except (ValueError, IndexError) as exc:
        length, used = variable_int(frame, 1)
        if (size := 1 + used + length) > len(frame):
            raise MalformedPacketError(Malformed.SIZE, f"a packet of {size} bytes, more than max_packet_bytes") from None
        raise MalformedPacketError(Malformed.PACKET, str(exc)) from None
    return packet


def read_part(frame: bytes, max_header_bytes: int, max_payload_bytes: int) -> tuple[Publish, int, bool]:
    """Read a PUBLISH that is too large: the properties that fit, without the token, and part of the payload.

    Return it with the length of the whole payload, and whether all properties are in it. The token is the longest property,
    and secret. Raises ValueError, or IndexError if the frame ends too early.
    """
    size, start, after_topic, first, payload = parts(frame)
    packet = _without_properties(frame, start, after_topic, frame[payload : payload + max_payload_bytes])
    at = _add_properties(packet, frame, first, min(payload, first + max_header_bytes, len(frame)), False)
    return packet, size - payload, at == payload


def packet_id(frame: bytes) -> int:
    """Return the packet id of a PUBLISH that cannot be read (QoS above 0). Raises `ProtocolError`."""
    start = body_of(frame)
    at = start + 2 + int.from_bytes(frame[start : start + 2], "big")
    found = int.from_bytes(frame[at : at + 2], "big")
    if at + 2 > len(frame) or found == 0:
        raise malformed("a PUBLISH without packet id")
    return found


def parts(frame: bytes) -> tuple[int, int, int, int, int]:
    """Return the length of a PUBLISH, and where topic, packet id, properties and payload begin, as the packet says.

    Raises IndexError if the frame ends before the properties, and ValueError for a length in more bytes than it needs.
    """
    length, used = variable_int(frame, 1)
    start = 1 + used
    after_topic = start + 2 + (frame[start] << 8 | frame[start + 1])
    at = after_topic + 2 if frame[0] & QOS else after_topic
    properties, used = variable_int(frame, at)
    first = at + used
    if (start > 2 and not frame[start - 1]) or (used > 1 and not frame[first - 1]) or frame[first - 1] > 0x7F:
        raise ValueError("a length that is not a variable byte integer")
    return start + length, start, after_topic, first, first + properties


def _without_properties(frame: bytes, start: int, after_topic: int, payload: bytes) -> Publish:
    number = frame[after_topic] << 8 | frame[after_topic + 1] if frame[0] & QOS else None
    try:
        topic = frame[start + 2 : after_topic].decode()
    except UnicodeDecodeError:
        raise malformed("a topic that is not UTF-8") from None  # [MQTT-1.5.4-1]
    if "\0" in topic or "+" in topic or "#" in topic:  # [MQTT-1.5.4-2], [MQTT-3.3.2-2]
        raise malformed("a topic with NUL, + or #")
    return Publish(topic, number, payload)


def _add_properties(packet: Publish, frame: bytes, at: int, end: int, with_token: bool) -> int:
    """Add the properties that end at ``end`` at the latest. Return where the next one begins."""
    seen = 0
    add = packet.user_properties.append
    while at < end:
        kind = frame[at]
        if kind == USER_PROPERTY:  # most of them, so without a call
            key = at + 3
            if key + 2 > end:
                break
            value = key + (frame[at + 1] << 8 | frame[at + 2]) + 2
            if value > end:
                break
            after = value + (frame[value - 2] << 8 | frame[value - 1])
            if after > end:
                break
            if with_token or frame[at : at + len(_TOKEN)] != _TOKEN:
                add((frame[key : value - 2].decode(), frame[value:after].decode()))
            at = after
            continue
        after = after_property(frame, at)
        if after > end:
            break
        if kind == SUBSCRIPTION_ID:
            if frame[after - 1] == 0 or frame[after - 1] > 0x7F:
                raise ValueError("a subscription id that is 0, or not a variable byte integer")
        elif kind not in _ONCE or seen >> kind & 1:
            raise ValueError(f"property 0x{kind:02X} twice, or in a PUBLISH")
        else:
            seen |= 1 << kind
            if kind == _EXPIRY:
                packet.message_expiry_interval = int.from_bytes(frame[at + 1 : after], "big")
            elif kind == _CONTENT_TYPE:
                packet.content_type = frame[at + 3 : after].decode()
            elif kind == _CORRELATION_DATA:
                packet.correlation_data = frame[at + 3 : after]
            elif kind == _RESPONSE_TOPIC:
                frame[at + 3 : after].decode()
            elif kind == _TOPIC_ALIAS:
                detail = "a topic alias: our CONNECT allows none"  # [MQTT-3.1.2-26]
                raise ProtocolError(DisconnectReasonCode.TOPIC_ALIAS_INVALID, detail)
        at = after
    if not packet.topic:  # MQTT 5, 3.3.2.3.4
        raise ProtocolError(DisconnectReasonCode.PROTOCOL_ERROR, "neither a topic nor a topic alias")
    return at
