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


_Header = tuple[bytes, int, str, int]
"""What is the same in packets that differ in their ids only; packet id; text of the message id; where the header ends."""

_NO_HEADER: Final[_Header] = (b"", 0, "", 0)


class KnownHeaders:
    """The headers of packets that were decoded, as many as a `Cache` keeps."""

    def __init__(self) -> None:
        self._known: Cache[bytes, _Known] = Cache(len)

    def read(self, frame: memoryview) -> tuple[UMessage, int] | None:
        """The message in a complete PUBLISH, and its packet id; None if its header is not known, or something is wrong."""
        same, packet_id, id_text, end = _header(frame)
        known = self._known.get(same) or self._older(same)
        if known is None or not packet_id:
            return None
        try:
            uuid = parse_id(id_text)
        except UuidError:
            return None
        return UMessage(uuid, known.attributes, bytes(frame[end:]) or known.none), packet_id

    def learn(self, frame: memoryview, message: UMessage, has_format: bool) -> None:
        """Remember the header of a packet that was decoded, unless the message carries something of its own.

        ``has_format``: the packet has a content type, so an empty payload is one.
        """
        attributes = message.attributes
        if attributes is not attributes.shared:
            return
        same, _, id_text, _ = _header(frame)
        try:
            is_its_id = parse_id(id_text) == message.id
        except UuidError:
            is_its_id = False
        if is_its_id:
            self._known.remember(same, _Known(attributes, b"" if has_format else None))

    def _older(self, same: bytes) -> _Known | None:
        try:
            return self._known[same]
        except KeyError:
            return None


def _header(frame: memoryview) -> _Header:
    """`_NO_HEADER` if the packet is not whole, or has another QoS, or no id in its usual place."""
    size = len(frame)
    if size < _LEAST_BYTES or frame[0] & QOS != AT_LEAST_ONCE:
        return _NO_HEADER
    length, used = variable_int(frame, 1)
    start = 1 + used
    if start + length != size:  # the beginning of a packet that is too large
        return _NO_HEADER
    topic_end = start + 2 + (frame[start] << 8 | frame[start + 1])
    if topic_end + _LEAST_BYTES > size:
        return _NO_HEADER
    length, used = variable_int(frame, topic_end + 2)
    end = topic_end + 2 + used + length
    if end > size:
        return _NO_HEADER
    head = bytes(frame[start:end])
    packet_id_at = topic_end - start
    found_at = head.find(ID_PROPERTY, packet_id_at + 2)
    id_at = found_at + len(ID_PROPERTY)
    id_end = id_at + ID_TEXT_BYTES
    if found_at < 0 or id_end > len(head):
        return _NO_HEADER
    same = head[:packet_id_at] + head[packet_id_at + 2 : id_at] + head[id_end:]
    return same, head[packet_id_at] << 8 | head[packet_id_at + 1], head[id_at:id_end].decode("latin-1"), end
