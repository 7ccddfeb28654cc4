"""Sorts the packets of one read: confirmations for the session, messages in order, and the rest for the transport.

Every message passes through this module, which knows no event loop and no socket. It also handles messages beyond our
receive maximum:

Brokers exceed it: rumqttd has no limit, and mosquitto 2.0.11 forgets it after a burst of PUBACKs and goes on until it reuses
packet ids, which loses messages. Nor does it bound their bytes. So at twice the maximum, or half of the bytes that may be
unacknowledged, the transport stops reading while no message of ours is unconfirmed, and TCP applies back-pressure to the
broker. Otherwise that would also stop the PUBACKs for our messages. Then we read on, accept the excess up to a bound, and
ignore all later messages on this connection, so that the order is kept. The transport disconnects once there is room, so
that the broker sends them again.
"""

from collections.abc import Callable, Sequence

from mqtt5 import DisconnectReasonCode

from streamer.transports.errors import TOO_LARGE, Malformed, MalformedPacketError, Unwanted
from streamer.transports.events import TransportEvents
from streamer.transports.mqtt5 import frames, publish
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import DUPLICATE, KIND, PUBACK, PUBLISH, QOS, QOS_ABOVE_1, ProtocolError
from streamer.transports.mqtt5.headers import KnownHeaders
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.received import KNOWN_PAYLOAD_BYTES, Received, Refused
from streamer.uprotocol.status import UCode

_EXCESS = 20_000  # unacknowledged messages, far below the 65 535 packet ids that there are
_TOLERANCE = 2  # times our receive maximum: accepted from a broker that exceeds it, whatever the size of the messages


class PacketIntake:
    """Handles the packets of one ``session``, on its connections one after the other.

    Every PUBLISH is reported to ``events``, and again if it is not a message. ``overflows``: the broker has sent too much,
    and further messages are ignored. ``refused``: messages that were too large, which the caller reports.
    """

    def __init__(self, session: Session, decoder: PublishDecoder, options: Mqtt5Options, events: TransportEvents) -> None:
        self.overflows = False
        self.refused: list[Refused] = []
        self._session = session
        self._headers = KnownHeaders()
        self._decoder = decoder
        self._events = events
        self._proves_identity: bool = options.proves_identity
        self._max_header_bytes: int = options.max_header_bytes
        self._receive_maximum: int = options.receive_maximum
        self._most = max(_TOLERANCE * self._receive_maximum, _EXCESS)
        self._most_bytes: int = options.receive_excess_bytes

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read: the broker has sent twice our receive maximum, or half of the bytes."""
        session = self._session
        return (
            len(session.unacknowledged) >= _TOLERANCE * self._receive_maximum
            or 2 * session.unacknowledged_bytes > self._most_bytes
        )

    def has_room(self, share: float) -> bool:
        """Return whether at most this share of our receive maximum, and half of the bytes, are unacknowledged."""
        session = self._session
        is_few = len(session.unacknowledged) <= share * self._receive_maximum
        return is_few and 2 * session.unacknowledged_bytes <= self._most_bytes

    def take(self, read: Sequence[bytes], control: Callable[[bytes], None], into: list[Received]) -> None:
        """Sort packets: messages go to ``into``, control packets except PUBACK to ``control``. Raises `ProtocolError`."""
        session, headers, decoder, max_header_bytes = self._session, self._headers, self._decoder, self._max_header_bytes
        unacknowledged, most, most_bytes = session.unacknowledged, self._most, self._most_bytes
        arrived = ignored = 0
        try:
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
                arrived += 1
                if first & QOS_ABOVE_1 or not session.is_connected:
                    raise self._broken("a PUBLISH that was not asked for")
                is_too_much = session.unacknowledged_bytes > most_bytes or len(unacknowledged) >= most
                if first & QOS and (is_too_much or self.overflows):
                    self.overflows = True
                    ignored += 1
                    continue
                known = headers.read(frame)
                if known is not None:
                    into.append(session.receive(known[0], first & DUPLICATE != 0, known[1], len(frame)))
                    continue
                try:
                    packet = publish.read(frame, max_header_bytes)
                    message = decoder.decode(packet)
                except ProtocolError as broken:  # a name of its own: compiled, each has one type
                    raise self._broken(str(broken), broken.reason) from None
                except MalformedPacketError as exc:
                    self._skip(frame, exc)
                    continue
                packet_id = packet.packet_id
                if packet_id:
                    headers.learn(frame, packet, message)
                    into.append(session.receive(message, first & DUPLICATE != 0, packet_id, len(frame)))
                elif packet_id is None:
                    into.append(Received(message, False, len(frame)))
                else:
                    raise self._broken("a PUBLISH with packet id 0")
        finally:
            if arrived:
                self._events.packets_received(arrived)
            if ignored:
                self._events.packets_unwanted(Unwanted.EXCESS, ignored)

    def _broken(self, detail: str, reason: DisconnectReasonCode = DisconnectReasonCode.PROTOCOL_ERROR) -> ProtocolError:
        """Count a malformed PUBLISH, and return the error that ends the connection."""
        self._events.packet_malformed(MalformedPacketError(Malformed.PACKET, detail))
        return ProtocolError(reason, detail)

    def _skip(self, frame: bytes, error: MalformedPacketError) -> None:
        """Report a packet that is not a message, and have it acknowledged in order. The connection continues.

        If the packet is only too large, its readable part becomes a refused message.
        """
        if error.reason in TOO_LARGE and self._refuse(frame, error):
            return
        self._events.packet_malformed(error)
        if frame[0] & QOS:
            self._session.skip(publish.packet_id(frame))

    def _refuse(self, frame: bytes, error: MalformedPacketError) -> bool:
        """Add the readable part of a packet that is too large to ``refused``. Return whether enough can be read."""
        try:
            packet, payload_bytes, has_all = publish.read_part(frame, self._max_header_bytes, KNOWN_PAYLOAD_BYTES)
            if self._proves_identity and not has_all:  # the identity property of the broker may be missing
                return False
            message = self._decoder.decode(packet)
        except ProtocolError as exc:
            raise self._broken(str(exc), exc.reason) from None
        except (ValueError, IndexError):
            return False
        if packet.packet_id is None:
            received = Received(message, False, len(frame))
        elif packet.packet_id:
            received = self._session.receive(message, frame[0] & DUPLICATE != 0, packet.packet_id, len(frame))
        else:
            return False
        self.refused.append(Refused(received, UCode.RESOURCE_EXHAUSTED, f"too large: {error}", payload_bytes))
        return True
