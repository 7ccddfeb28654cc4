"""The packets of an MQTT connection, cut out of what its reads bring. No tests."""

from collections.abc import Iterator
from typing import Any

import mqtt5

PUBACK = b"\x40\x02"
"""The beginning of a PUBACK with success; the packet's id follows."""


class Packets:
    """Keeps the beginning of a packet whose end is still to come."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, data: bytes) -> Iterator[Any]:
        """Yield the packets that are complete with these bytes."""
        view = memoryview(self._rest + data if self._rest else data)
        at = 0
        while at < len(view):
            try:
                packet, size = mqtt5.read(view[at:])
            except IndexError:
                break
            at += size
            yield packet
        self._rest = bytes(view[at:])


def puback(packet: mqtt5.PublishPacket) -> bytes:
    """Return the acknowledgement of a message with QoS 1."""
    assert packet.packet_id is not None
    return PUBACK + packet.packet_id.to_bytes(2, "big")
