"""Recognizes a PUBLISH that differs from an earlier one in packet id, message id and payload only. Pure.

So do most messages of a flow. What codec and `decoder` have found out about the earlier packet holds for the later one, and
neither looks at it. What is compared is all of the header's bytes but for the two ids.
"""

from typing import Final

from streamer.transports.mqtt5.frames import AT_LEAST_ONCE, QOS, variable_int
from streamer.transports.mqtt5.wire import ID_PROPERTY, ID_TEXT_BYTES
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import UuidError, parse_id

_LEAST_BYTES: Final = 2 + 4 + len(ID_PROPERTY) + ID_TEXT_BYTES
"""What follows the topic at least: packet id, length of the properties (four bytes can be looked at), and the id."""


class _Known:
    """What the messages with one header have in common. ``none``: what an empty payload is."""

    __slots__ = ("attributes", "none")

    def __init__(self, attributes: Attributes, none: bytes | None) -> None:
        self.attributes = attributes
        self.none = none


class _Header:
    """The header of a packet, taken apart: what is the same in packets that differ in their ids only, and those."""

    __slots__ = ("end", "id_text", "packet_id", "same")

    def __init__(self, same: bytes, packet_id: int, id_text: str, end: int) -> None:
        self.same = same
        self.packet_id = packet_id
        self.id_text = id_text
        self.end = end


class KnownHeaders:
    """The headers of packets that were decoded, as many as a `Cache` keeps."""

    def __init__(self) -> None:
        self._known: Cache[bytes, _Known] = Cache(len)

    def read(self, frame: memoryview) -> tuple[UMessage, int] | None:
        """The message in a complete PUBLISH, and its packet id; None if its header is not known, or something is wrong."""
        header = _header(frame)
        if header is None or not header.packet_id:
            return None
        known = self._known.get(header.same) or self._older(header.same)
        if known is None:
            return None
        try:
            uuid = parse_id(header.id_text)
        except UuidError:
            return None
        return UMessage(uuid, known.attributes, bytes(frame[header.end :]) or known.none), header.packet_id

    def learn(self, frame: memoryview, message: UMessage, has_format: bool) -> None:
        """Remember the header of a packet that was decoded, unless the message carries something of its own.

        ``has_format``: the packet has a content type, so an empty payload is one.
        """
        attributes = message.attributes
        header = _header(frame) if attributes is attributes.shared else None
        if header is None:
            return
        try:
            is_its_id = parse_id(header.id_text) == message.id
        except UuidError:
            is_its_id = False
        if is_its_id:
            self._known.remember(header.same, _Known(attributes, b"" if has_format else None))

    def _older(self, same: bytes) -> _Known | None:
        try:
            return self._known[same]
        except KeyError:
            return None


def _header(frame: memoryview) -> _Header | None:
    """None if the packet is not whole or has another QoS, properties of 16 KiB or more, or no id in its usual place."""
    size = len(frame)
    if size < _LEAST_BYTES or frame[0] & QOS != AT_LEAST_ONCE:
        return None
    length, used = variable_int(frame, 1)
    start = 1 + used
    if start + length != size or length < 2:  # the beginning of a packet that is too large
        return None
    topic_end = start + 2 + (frame[start] << 8 | frame[start + 1])
    if topic_end + _LEAST_BYTES > size:
        return None
    length, used = variable_int(frame, topic_end + 2)
    end = topic_end + 2 + used + length
    if end > size:
        return None
    head = bytes(frame[start:end])
    packet_id_at = topic_end - start
    found_at = head.find(ID_PROPERTY, packet_id_at + 2)
    id_at = found_at + len(ID_PROPERTY)
    if found_at < 0 or id_at + ID_TEXT_BYTES > len(head):
        return None
    return _Header(
        head[:packet_id_at] + head[packet_id_at + 2 : id_at] + head[id_at + ID_TEXT_BYTES :],
        head[packet_id_at] << 8 | head[packet_id_at + 1],
        head[id_at : id_at + ID_TEXT_BYTES].decode("latin-1"),
        end,
    )
