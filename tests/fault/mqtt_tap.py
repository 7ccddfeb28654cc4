"""What passes on an MQTT link, read at a `tests.fault.proxy.Proxy` between the daemon and a broker.

It knows by message id what the broker has confirmed to the daemon and what the daemon has acknowledged to the broker: what a
broker loses after it confirmed it is the broker's loss, what a daemon loses after it acknowledged it is ours.
"""

from collections.abc import Sequence

import mqtt5

from tests.fault.proxy import Direction

FORWARD = Direction.FORWARD


def id_of(properties: Sequence[tuple[str, str]]) -> bytes | None:
    """A uProtocol message's id; None for other messages."""
    text = dict(properties).get("1")
    return bytes.fromhex(text.replace("-", "")) if text else None


class MqttTap:
    """The daemon is who connects. Raises ValueError for bytes that are no MQTT."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        """Ids in the order in which the daemon sent them, resends included."""
        self.received: list[bytes] = []
        """Ids in the order in which the broker sent them, resends included."""
        self.confirmed: set[bytes] = set()
        """Ids that the broker has confirmed to the daemon."""
        self.acknowledged: set[bytes] = set()
        """Ids that the daemon has acknowledged to the broker."""
        self.most_unconfirmed = 0
        """The most that the daemon had sent and not confirmed at a time, on any one connection."""
        self.keep_alives_s: list[int] = []
        """Of each CONNECT."""
        self._link = 0
        self._buffers: dict[Direction, bytes] = {}
        self._to_broker: dict[int, bytes] = {}
        self._to_daemon: dict[int, bytes] = {}

    @property
    def copies(self) -> int:
        """How many of its messages the daemon sent more than once, each time counted."""
        return len(self.sent) - len(set(self.sent))

    def opened(self, link: int) -> None:
        self._link = link
        self._buffers = dict.fromkeys(Direction, b"")
        self._to_broker.clear()
        self._to_daemon.clear()

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        if link != self._link:  # an older connection that has not ended yet: its packet ids mean nothing any more
            return
        buffer = self._buffers[direction] + data
        view, position = memoryview(buffer), 0
        while position < len(buffer):
            try:
                packet, size = mqtt5.read(view[position:])
            except IndexError:
                break
            position += size
            self._see(packet, direction is FORWARD)
        self._buffers[direction] = buffer[position:]

    def _see(self, packet: object, is_from_daemon: bool) -> None:
        if isinstance(packet, mqtt5.PublishPacket) and packet.packet_id:
            message_id = id_of(packet.user_properties)
            if message_id is None:
                return
            if is_from_daemon:
                self.sent.append(message_id)
                self._to_broker[packet.packet_id] = message_id
                self.most_unconfirmed = max(self.most_unconfirmed, len(self._to_broker))
            else:
                self.received.append(message_id)
                self._to_daemon[packet.packet_id] = message_id
        elif isinstance(packet, mqtt5.PubAckPacket):
            waiting, known = (self._to_daemon, self.acknowledged) if is_from_daemon else (self._to_broker, self.confirmed)
            message_id = waiting.pop(packet.packet_id, None)
            if message_id is not None and int(packet.reason_code) < 0x80:
                known.add(message_id)
        elif isinstance(packet, mqtt5.ConnectPacket):
            self.keep_alives_s.append(packet.keep_alive)
