"""Cuts the byte stream of an MQTT connection into packets, and reads two kinds of packets without the codec. Pure.

The codec gets one complete packet at a time, so that it cannot take a wrong length inside a packet for an incomplete packet.
"""

from enum import IntEnum
from typing import Any, Final

import mqtt5
from mqtt5 import read as _decode

from streamer.transports.errors import Malformed, MalformedPacketError

KIND: Final = 0xF0
"""Mask of the packet type in the first byte."""

PUBLISH: Final = 0x30
PUBACK: Final = 0x40
QOS: Final = 0x06
"""Mask of the QoS bits in the first byte of a PUBLISH."""

AT_LEAST_ONCE: Final = 0x02
QOS_ABOVE_1: Final = 0x04
DUPLICATE: Final = 0x08
"""The bit in the first byte of a PUBLISH that marks it as redelivered, DUP (MQTT 5, 3.3.1.1)."""

_TO_A_CLIENT: Final = bytes(
    first & KIND == PUBLISH or first in (0x20, 0x40, 0x50, 0x62, 0x70, 0x90, 0xB0, 0xD0, 0xE0, 0xF0) for first in range(256)
)
"""By first byte: whether a broker may send such a packet (MQTT 5, 2.1.3). Other packets are refused at that byte."""

_STUB_BYTES = 5 + 2 + 0xFFFF + 2
"""The greatest length of fixed header, topic and packet id of a PUBLISH."""


_BEFORE_PROPERTIES: Final = {0x20: 2, 0x40: 3, 0x50: 3, 0x60: 3, 0x70: 3, 0x90: 2, 0xB0: 2, 0xE0: 1, 0xF0: 1}
"""By packet type: how many bytes precede the properties, in packets other than PUBLISH."""

_FIXED_PROPERTIES: Final = (
    dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1)
    | dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2)
    | dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4)
)
"""The lengths of the properties that are numbers (MQTT 5, 2.2.2.2)."""

_BINARY_PROPERTIES: Final = (0x09, 0x16)
"""Correlation data and authentication data. All other properties except numbers are text."""

_SUBSCRIPTION_ID: Final = 0x0B
_USER_PROPERTY: Final = 0x26
_TOKEN = b"\x26\x00\x0210"
"""The beginning of the user property with a token."""

PACKETS_PER_ITERATION: Final = 1000
"""Returned by one `feed`. A large read can have a hundred times as many packets, which would block the loop for a second."""

_NOT_TEXT = "text that is not UTF-8"

_CONTROL_BYTES = 16 * 1024
"""The longest packet other than PUBLISH. No packet needs that much; it leaves room for the reason texts of brokers."""


class ProtocolError(Exception):
    """The connection has to be ended; ``reason`` is the code for our DISCONNECT (MQTT 5, 3.14.2.1)."""

    def __init__(self, reason: mqtt5.DisconnectReasonCode, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class FrameReader:
    """Cuts received bytes into packets. ``is_behind``: the reader has more packets, which the next `feed` returns.

    Handles each byte once, however the packets are split.

    A packet of more than ``max_packet_bytes`` is recognized by its first bytes and never stored. Of such a PUBLISH only the
    beginning is returned: a broker that ignores the limit of our CONNECT would, after a DISCONNECT with 0x95 (MQTT 5,
    3.1.2.11.4), send the packet again to this session, for ever. `read` refuses the beginning, `cut` makes a readable
    packet of it, and it can be acknowledged.
    """

    def __init__(self, max_packet_bytes: int) -> None:
        self._max_packet_bytes = max_packet_bytes
        self._max_control_bytes = min(_CONTROL_BYTES, max_packet_bytes)
        self._stub = bytearray()
        self._to_skip = 0  # bytes of a PUBLISH that are still to be skipped
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._needed = 2
        self.is_behind = False

    def feed(self, data: bytes) -> tuple[list[bytes], ProtocolError | None]:
        """Return the complete packets, `PACKETS_PER_ITERATION` at most, and the error in the bytes after them, if any."""
        frames: list[bytes] = []
        if self._to_skip:
            data = data[self._skip(data, frames) :]
            if not data:
                return frames, None
        if self._chunks or len(data) < self._needed:
            self._chunks.append(data)
            self._waiting += len(data)
            if self._waiting < self._needed:
                return frames, None
            data = b"".join(self._chunks)
            self._chunks = []
        self.is_behind = False
        position, end = 0, len(data)
        while True:
            rest = end - position
            if rest < 2:
                self._needed = 2
                break
            if not _TO_A_CLIENT[data[position]]:
                return frames, _malformed(f"a packet that begins with 0x{data[position]:02X}")
            length = data[position + 1]
            size = length + 2
            if length > 0x7F:  # more than one byte of length: the variable byte integer of MQTT 5, 1.5.5
                length &= 0x7F
                used = 1
                while used < 4 and used + 1 < rest:
                    digit = data[position + 1 + used]
                    length |= (digit & 0x7F) << (7 * used)
                    used += 1
                    if digit < 0x80:
                        break
                else:
                    if used == 4:
                        return frames, _malformed("a packet length of more than four bytes")
                    self._needed = rest + 1
                    break
                size = length + used + 1
            is_publish = data[position] & KIND == PUBLISH
            most = self._max_packet_bytes if is_publish else self._max_control_bytes
            if size > most:
                if not is_publish or data[position] & QOS_ABOVE_1:
                    detail = f"a packet of {size} bytes: expected at most {most}"
                    return frames, ProtocolError(mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE, detail)
                self._to_skip = size
                position += self._skip(data[position : position + size], frames)
                continue
            if size > rest:
                self._needed = size
                break
            frames.append(data[position : position + size])
            position += size
            if len(frames) >= PACKETS_PER_ITERATION:
                self._needed = 2
                self.is_behind = end - position >= 2
                break
        if position < end:
            self._chunks = [data[position:]]
        self._waiting = end - position
        return frames, None

    @property
    def has_part(self) -> bool:
        """Whether only the beginning of a packet has come."""
        return self._waiting > 0

    @property
    def is_skipping(self) -> bool:
        """Whether a packet that is too large is being skipped."""
        return self._to_skip > 0

    def _skip(self, data: bytes, frames: list[bytes]) -> int:
        """Skip bytes of the PUBLISH that is too large. Return their number."""
        used = min(self._to_skip, len(data))
        # Always less than the whole packet: the stub must not look like one.
        room = min(_STUB_BYTES, len(self._stub) + self._to_skip - 1) - len(self._stub)
        self._stub += data[: max(0, room)]
        self._to_skip -= used
        if not self._to_skip:
            frames.append(bytes(self._stub))
            self._stub = bytearray()
        return used


def check_header(frame: bytes, max_bytes: int) -> None:
    """Raise `MalformedPacketError` for a PUBLISH with more than ``max_bytes`` of properties, before they are decoded.

    Decoding makes an object of every few bytes: a packet of 16 MiB would block the event loop for more than a second.
    """
    if len(frame) <= max_bytes:
        return
    try:
        start = _body_of(frame)
        position = start + 2 + int.from_bytes(frame[start : start + 2], "big") + (2 if frame[0] & QOS else 0)
        size, _ = variable_int(frame, position)
    except IndexError:
        return  # the packet is incomplete: `read` reports that
    if size > max_bytes:
        raise MalformedPacketError(Malformed.HEADER, f"{size} bytes of properties, more than max_header_bytes {max_bytes}")


def read(frame: bytes) -> Any:
    """Decode one complete packet; its type follows from the first byte. Raises `MalformedPacketError`."""
    try:
        _check_text(frame)
        packet, _ = _decode(memoryview(frame))
    except UnicodeDecodeError:
        raise MalformedPacketError(Malformed.PACKET, _NOT_TEXT) from None
    except (ValueError, IndexError) as exc:
        if (size := _announced_bytes(frame)) > len(frame):
            raise MalformedPacketError(Malformed.SIZE, f"a packet of {size} bytes, more than max_packet_bytes") from None
        raise MalformedPacketError(Malformed.PACKET, str(exc)) from None
    except BaseException as exc:
        # Text that is not UTF-8 makes the codec panic. The panic is not an Exception and has no public name.
        if type(exc).__name__ != "PanicException":
            raise
        raise MalformedPacketError(Malformed.PACKET, _NOT_TEXT) from None
    return packet


def _check_text(frame: bytes) -> None:
    """Raise UnicodeDecodeError for text that is not UTF-8, and IndexError for a property beyond the end of the properties.

    The codec panics over such text, and writes ten lines to stderr for each of the packets, which anybody can send. It reads
    a property to its end, even beyond the end of the properties, so bytes behind them would be text, too.
    """
    kind = frame[0] & KIND
    at = _body_of(frame)
    if kind == PUBLISH:
        topic_at = at + 2
        at = topic_at + int.from_bytes(frame[at:topic_at], "big")
        topic = frame[topic_at:at]
        if not topic.isascii():
            topic.decode()
        if frame[0] & QOS:
            at += 2
    elif kind in _BEFORE_PROPERTIES:
        at += _BEFORE_PROPERTIES[kind]
        if at >= len(frame):  # the properties can be left out
            return
    else:
        return
    size, used = variable_int(frame, at)
    at += used
    end = min(at + size, len(frame))
    is_plain = frame[at:end].isascii()  # nearly always
    while at < end:
        after = _after_property(frame, at)
        if after > end:
            raise IndexError(f"a property that ends {after - end} bytes after the properties")
        if not is_plain:
            _check_property(frame, at, after)
        at = after


def _check_property(frame: bytes, at: int, after: int) -> None:
    kind = frame[at]
    if kind == _USER_PROPERTY:
        value = _after_text(frame, at + 1)
        frame[at + 3 : value].decode()
        frame[value + 2 : after].decode()
    elif kind != _SUBSCRIPTION_ID and kind not in _FIXED_PROPERTIES and kind not in _BINARY_PROPERTIES:
        frame[at + 3 : after].decode()


def cut(frame: bytes, max_header_bytes: int, max_payload_bytes: int) -> tuple[bytes, int, bool]:
    """Cut a PUBLISH that is too large down to a complete packet with the properties that fit and part of the payload.

    Return it with the length of the whole payload, and whether all properties are in it. The token is always left out: it is
    the longest property, and secret. Raises IndexError if the frame ends too early.
    """
    start = _body_of(frame)
    position = start + 2 + int.from_bytes(frame[start : start + 2], "big") + (2 if frame[0] & QOS else 0)
    size, used = variable_int(frame, position)
    first = position + used
    payload = first + size
    end = min(payload, first + max_header_bytes, len(frame))
    properties = bytearray()
    at = first
    while at < end:
        after = _after_property(frame, at)
        if after > end:
            break
        if frame[at : at + len(_TOKEN)] != _TOKEN:
            properties += frame[at:after]
        at = after
    body = frame[start:position] + as_variable_int(len(properties)) + properties
    body += frame[payload : payload + max_payload_bytes]
    packet = frame[:1] + as_variable_int(len(body)) + body
    return packet, _announced_bytes(frame) - payload, at == payload


def _after_property(frame: bytes, position: int) -> int:
    """Return where a property ends. An unknown property is taken for text: the codec refuses it."""
    kind = frame[position]
    position += 1
    if kind == _USER_PROPERTY:  # most of them
        position = _after_text(frame, position)
    elif kind in _FIXED_PROPERTIES:
        return position + _FIXED_PROPERTIES[kind]
    elif kind == _SUBSCRIPTION_ID:
        return position + variable_int(frame, position)[1]
    return _after_text(frame, position)


def _after_text(frame: bytes, position: int) -> int:
    """Return where a text, or binary data, ends; behind the frame if the frame ends within the length field."""
    end = position + 2
    return end if end > len(frame) else end + (frame[position] << 8 | frame[position + 1])


def _announced_bytes(frame: bytes) -> int:
    """Return the length of a packet according to its header."""
    length, used = variable_int(frame, 1)
    return 1 + used + length


def variable_int(frame: bytes, start: int) -> tuple[int, int]:
    """Return a variable byte integer (MQTT 5, 1.5.5), and the number of its bytes."""
    digit = frame[start]
    if digit < 0x80:
        return digit, 1
    value, used = digit & 0x7F, 1
    while digit > 0x7F and used < 4:
        digit = frame[start + used]
        value |= (digit & 0x7F) << (7 * used)
        used += 1
    return value, used


def as_variable_int(value: int) -> bytes:
    """Encode a number as a variable byte integer."""
    if 0x7F < value < 0x4000:  # most packets
        return bytes((value & 0x7F | 0x80, value >> 7))
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _body_of(frame: bytes) -> int:
    """Return the offset behind a packet's fixed header."""
    start = 2
    while frame[start - 1] > 0x7F:
        start += 1
    return start


def publish_packet_id(frame: bytes) -> int:
    """Return the packet id of a PUBLISH that the codec cannot read (QoS above 0). Raises `ProtocolError`."""
    start = _body_of(frame)
    topic_bytes = int.from_bytes(frame[start : start + 2], "big")
    position = start + 2 + topic_bytes
    packet_id = int.from_bytes(frame[position : position + 2], "big")
    if position + 2 > len(frame) or packet_id == 0:
        raise _malformed("a PUBLISH without packet id")
    return packet_id


def puback(frame: bytes) -> tuple[int, int]:
    """Return packet id and reason code of a PUBACK; the codec refuses unknown reasons. Raises `ProtocolError`."""
    if len(frame) == 4 and frame[1] == 2:  # nearly always
        return frame[2] << 8 | frame[3], 0
    start = _body_of(frame)
    if len(frame) < start + 2:
        raise _malformed(f"a PUBACK of {len(frame)} bytes without packet id")
    return frame[start] << 8 | frame[start + 1], frame[start + 2] if len(frame) > start + 2 else 0


def named(reason: IntEnum) -> str:
    """Return a reason code for people. The codec's enums are IntEnums in its stubs only; they have no ``name``."""
    name = repr(reason).strip("<>").partition(":")[0].rpartition(".")[2]
    return f"{name} (0x{int(reason):02X})"


def _malformed(detail: str) -> ProtocolError:
    return ProtocolError(mqtt5.DisconnectReasonCode.MALFORMED_PACKET, detail)
