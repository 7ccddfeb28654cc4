"""Cuts the byte stream of an MQTT connection into packets, and reads all of them except PUBLISH (`publish`). Pure.

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

SUBSCRIPTION_ID: Final = 0x0B
USER_PROPERTY: Final = 0x26
PACKETS_PER_ITERATION: Final = 1000
"""Returned by one `feed`. A large read can have a hundred times as many packets, which would block the loop for a second."""

NOT_TEXT = "text that is not UTF-8"
OLD_BROKER = "the broker speaks only MQTT 3.1.1, and MQTT 5 is needed: it answered with the code {} of MQTT 3.1.1 ({})"

_CONNACK: Final = 0x20
_RETURN_CODES: Final = (
    "",
    "unacceptable protocol version",
    "identifier rejected",
    "server unavailable",
    "bad user name or password",
    "not authorized",
)
"""The return codes of MQTT 3.1.1, 3.2.2.3. In MQTT 5 none of them is a reason code of a CONNACK, except for 0."""

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
                return frames, malformed(f"a packet that begins with 0x{data[position]:02X}")
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
                        return frames, malformed("a packet length of more than four bytes")
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


def read(frame: bytes) -> Any:
    """Decode one complete packet other than PUBLISH; its type follows from the first byte. Raises `MalformedPacketError`."""
    if frame[0] & KIND == _CONNACK and len(frame) >= 4 and 0 < frame[3] < len(_RETURN_CODES):
        raise MalformedPacketError(Malformed.PACKET, OLD_BROKER.format(frame[3], _RETURN_CODES[frame[3]]))
    try:
        _check_text(frame)
        packet, _ = _decode(memoryview(frame))
    except UnicodeDecodeError:
        raise MalformedPacketError(Malformed.PACKET, NOT_TEXT) from None
    except (ValueError, IndexError) as exc:
        raise MalformedPacketError(Malformed.PACKET, str(exc)) from None
    return packet


def _check_text(frame: bytes) -> None:
    """Raise UnicodeDecodeError for text that is not UTF-8, and IndexError for a property beyond the end of the properties.

    The codec would panic over such text. It reads a property to its end, even beyond the end of the properties, so bytes
    behind them would be text, too.
    """
    at = body_of(frame) + _BEFORE_PROPERTIES.get(frame[0] & KIND, len(frame))
    if at >= len(frame):  # a packet without properties, or one that leaves them out
        return
    size, used = variable_int(frame, at)
    at += used
    end = min(at + size, len(frame))
    while at < end:
        after = after_property(frame, at)
        if after > end:
            raise IndexError(f"a property that ends {after - end} bytes after the properties")
        kind = frame[at]
        if kind == USER_PROPERTY:
            value = after_text(frame, at + 1)
            frame[at + 3 : value].decode()
            frame[value + 2 : after].decode()
        elif kind != SUBSCRIPTION_ID and kind not in _FIXED_PROPERTIES and kind not in _BINARY_PROPERTIES:
            frame[at + 3 : after].decode()
        at = after


def after_property(frame: bytes, position: int) -> int:
    """Return where a property ends. An unknown property is taken for text: the codec refuses it."""
    kind = frame[position]
    position += 1
    if kind == USER_PROPERTY:  # most of them
        position = after_text(frame, position)
    elif kind in _FIXED_PROPERTIES:
        return position + _FIXED_PROPERTIES[kind]
    elif kind == SUBSCRIPTION_ID:
        return position + variable_int(frame, position)[1]
    return after_text(frame, position)


def after_text(frame: bytes, position: int) -> int:
    """Return where a text, or binary data, ends; behind the frame if the frame ends within the length field."""
    end = position + 2
    return end if end > len(frame) else end + (frame[position] << 8 | frame[position + 1])


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


def body_of(frame: bytes) -> int:
    """Return the offset behind a packet's fixed header."""
    start = 2
    while frame[start - 1] > 0x7F:
        start += 1
    return start


def puback(frame: bytes) -> tuple[int, int]:
    """Return packet id and reason code of a PUBACK; the codec refuses unknown reasons. Raises `ProtocolError`."""
    if len(frame) == 4 and frame[1] == 2:  # nearly always
        return frame[2] << 8 | frame[3], 0
    start = body_of(frame)
    if len(frame) < start + 2:
        raise malformed(f"a PUBACK of {len(frame)} bytes without packet id")
    return frame[start] << 8 | frame[start + 1], frame[start + 2] if len(frame) > start + 2 else 0


def named(reason: IntEnum) -> str:
    """Return a reason code for people. The codec's enums are IntEnums in its stubs only; they have no ``name``."""
    name = repr(reason).strip("<>").partition(":")[0].rpartition(".")[2]
    return f"{name} (0x{int(reason):02X})"


def malformed(detail: str) -> ProtocolError:
    return ProtocolError(mqtt5.DisconnectReasonCode.MALFORMED_PACKET, detail)
