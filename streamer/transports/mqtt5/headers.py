"""Recognises a PUBLISH whose header differs from an earlier one only in packet id and message id. Pure.

Most messages of a flow are like that. Then what `publish` and `decoder` made of the earlier packet holds for the later
one, which is not decoded. The header is topic, packet id and properties. All of its bytes except the two ids are
compared, also the lengths of its parts, so no packet can be taken for one with another header.
"""

from typing import Final

from streamer.transports.mqtt5.decoder import empty_payload
from streamer.transports.mqtt5.frames import AT_LEAST_ONCE, QOS
from streamer.transports.mqtt5.publish import Publish, parts
from streamer.transports.mqtt5.wire import ID_PROPERTY, ID_TEXT_BYTES
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import UuidError, parse_id

_LEAST_BYTES: Final = 2 + 4 + len(ID_PROPERTY) + ID_TEXT_BYTES
"""A shorter packet has no id."""

_MOST_BYTES: Final = 8192
"""Headers with longer properties are not remembered."""


class _Known:
    """The common part of the messages with one header. ``empty``: what an empty payload field means."""

    __slots__ = ("attributes", "empty")

    def __init__(self, attributes: Attributes, empty: bytes | None) -> None:
        self.attributes = attributes
        self.empty = empty


_Header = tuple[bytes, int, str, int]
"""The header without its ids; packet id; text of the message id; the offset behind the header."""

_NO_HEADER: Final[_Header] = (b"", 0, "", 0)


class KnownHeaders:
    """A cache of the headers of decoded packets."""

    def __init__(self) -> None:
        self._known: Cache[bytes, _Known] = Cache(len)

    def read(self, frame: bytes) -> tuple[UMessage, int] | None:
        """Return the message of a complete PUBLISH, and its packet id; None for an unknown header or an invalid id."""
        same, packet_id, id_text, end = _header(frame)
        known = self._known.get(same) or self._older(same)
        if known is None or not packet_id:
            return None
        try:
            uuid = parse_id(id_text)
        except UuidError:
            return None
        return UMessage(uuid, known.attributes, frame[end:] or known.empty), packet_id

    def learn(self, frame: bytes, packet: Publish, message: UMessage) -> None:
        """Remember the header of a decoded packet, unless the message has carried attributes.

        A packet in which another text looks like the id is not remembered either: the id might be taken from there.
        """
        attributes = message.attributes
        if attributes is not attributes.shared:
            return
        same, _, id_text, _ = _header(frame)
        if not same or same.count(ID_PROPERTY) != 1:
            return
        try:
            is_its_id = parse_id(id_text) == message.id
        except UuidError:
            is_its_id = False
        if is_its_id:
            self._known.remember(same, _Known(attributes, empty_payload(packet)))

    def _older(self, same: bytes) -> _Known | None:
        try:
            return self._known[same]
        except KeyError:
            return None


def _header(frame: bytes) -> _Header:
    """Split the header of a packet. Return `_NO_HEADER` for an incomplete packet, another QoS, no id, or long properties."""
    size = len(frame)
    if size < _LEAST_BYTES or frame[0] & QOS != AT_LEAST_ONCE:
        return _NO_HEADER
    try:
        complete, start, topic_end, first, end = parts(frame)
    except (IndexError, ValueError):
        return _NO_HEADER
    if complete != size or end > size or end - first > _MOST_BYTES:
        return _NO_HEADER
    head = frame[start:end]
    packet_id_at = topic_end - start
    found_at = head.find(ID_PROPERTY, packet_id_at + 2)
    id_at = found_at + len(ID_PROPERTY)
    id_end = id_at + ID_TEXT_BYTES
    if found_at < 0 or id_end > len(head):
        return _NO_HEADER
    same = head[:packet_id_at] + head[packet_id_at + 2 : id_at] + head[id_end:]
    return same, head[packet_id_at] << 8 | head[packet_id_at + 1], head[id_at:id_end].decode("latin-1"), end
