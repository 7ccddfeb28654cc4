"""What the packets of one read become: confirmations for the session, messages in order, and the rest for the transport.

Every message passes through here; it knows no event loop and no socket. What is beyond our receive maximum is its business,
too:

Brokers exceed it: rumqttd has no limit, and mosquitto 2.0.11 forgets it after a burst of PUBACKs and goes on until it reuses
packet ids, which loses messages. While nothing of ours is unconfirmed the transport stops reading, and TCP holds the broker
back. Otherwise that would also stop the PUBACKs for what we send. Then we read on, accept the excess up to a bound, ignore
what is beyond it, and with it all later messages on this connection, so that the order is kept. The transport disconnects
once there is room, so that the broker sends it again.
"""

from collections.abc import Callable, Sequence

from mqtt5 import DisconnectReasonCode

from streamer.transports.errors import MalformedPacketError
from streamer.transports.mqtt5 import frames
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import KIND, PUBACK, PUBLISH, QOS, QOS_ABOVE_1, ProtocolError
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.received import Received

_EXCESS = 20_000  # unacknowledged messages, far below the 65 535 packet ids that there are
_TOLERANCE = 2  # times our receive maximum: accepted from a broker that exceeds it, however large the messages


class PacketIntake:
    """Takes what arrives on the connections of one ``session``, one after the other.

    ``malformed`` is told of packets that are no messages. ``overflows``: there was too much, and what comes is ignored.
    """

    def __init__(
        self,
        session: Session,
        decoder: PublishDecoder,
        options: Mqtt5Options,
        malformed: Callable[[MalformedPacketError], None],
    ) -> None:
        self.overflows = False
        self._session = session
        self._decoder = decoder
        self._malformed = malformed
        self._max_header_bytes: int = options.max_header_bytes
        self._most: int = _TOLERANCE * options.receive_maximum
        self._excess_bytes: int = options.receive_excess_bytes

    @property
    def is_full(self) -> bool:
        """Whether the broker has sent as much beyond our receive maximum as may be, however large the messages."""
        return len(self._session.receipts) >= self._most

    def take(self, read: Sequence[memoryview], control: Callable[[memoryview], None], into: list[Received]) -> None:
        """Sort packets; messages go to ``into``, all but PUBACK and PUBLISH to ``control``. Raises `ProtocolError`."""
        session, decoder, max_header_bytes = self._session, self._decoder, self._max_header_bytes
        for frame in read:
            first = frame[0]
            kind = first & KIND
            if kind == PUBACK:
                confirmed, reason = frames.puback(frame)
                session.on_puback(confirmed, reason)
                continue
            if kind != PUBLISH:
                control(frame)
                continue
            if first & QOS_ABOVE_1 or not session.is_connected:
                raise ProtocolError(DisconnectReasonCode.PROTOCOL_ERROR, "a PUBLISH that was not asked for")
            if first & QOS and (self.overflows or (self.is_full and self._is_too_much())):
                self.overflows = True
                continue
            try:
                frames.check_header(frame, max_header_bytes)
                packet = frames.read(frame)
                message = decoder.decode(packet)
            except MalformedPacketError as exc:
                self._skip(frame, exc)
                continue
            packet_id: int | None = packet.packet_id
            if packet_id:
                into.append(session.receive(message, packet.duplicate, packet_id))
            elif packet_id is None:
                into.append(Received(message))
            else:
                raise ProtocolError(DisconnectReasonCode.PROTOCOL_ERROR, "a PUBLISH with packet id 0")

    def _is_too_much(self) -> bool:
        """Whether the broker has sent more beyond our receive maximum than we accept."""
        session = self._session
        return len(session.receipts) >= _EXCESS or session.owed_bytes >= self._excess_bytes

    def _skip(self, frame: memoryview, error: MalformedPacketError) -> None:
        """Tell of a packet that is not a message, and acknowledge it in its turn. The connection goes on."""
        packet_id = frames.publish_packet_id(frame) if frame[0] & QOS else None
        self._malformed(error)
        if packet_id is not None:
            self._session.skip(packet_id)
