"""The link of an MQTT endpoint: one session with a broker, and what its control packets mean.

The law of this file:
- It outlives connections: `Connector` makes them, one at a time, and `begin` sends the CONNECT.
- Messages and their confirmations pass through `traffic` instead.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

import mqtt5
from mqtt5 import DisconnectReasonCode, QoS

from streamer import __version__
from streamer.transports.base import NO_BYTES, ByteCounts, LinkState, MessageParcel, Parcel, SendResult, UTransport
from streamer.transports.errors import LinkLostError, MalformedPacketError, SendError
from streamer.transports.link_error import LinkFailure
from streamer.transports.listeners import ListenerRegistry
from streamer.transports.mqtt5 import frames
from streamer.transports.mqtt5.brokers import BrokerChoice
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import ProtocolError, named
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.keep_alive import KeepAlive
from streamer.transports.mqtt5.last_will import LastWill
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.subscribing import Subscribing
from streamer.transports.mqtt5.traffic import Traffic
from streamer.transports.mqtt5.wire import Encoder, connack_code
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uuid import format_id

logger = logging.getLogger("ustreamer.mqtt5")

TIED = "the broker gives the streamer's session to every client with these credentials; use others than a streamer's"
"""Why `Mqtt5Options.beside` cannot be used at this broker."""

_OVER_A_MESSAGE = frozenset((0x80, 0x81, 0x82, 0x83, 0x87, 0x90, 0x95, 0x97, 0x99))
"""The reasons of a DISCONNECT that can be caused by a message, not by broker or client (MQTT 5, 3.14.2.1)."""

_OF_A_WILL = frozenset((0x87, 0x90, 0x99))
"""The reasons of a CONNACK that can be caused by a will (MQTT 5, 3.2.2.2)."""

_NO_RIGHTS = frozenset((0x86, 0x87, 0x8A, 0x8C))
"""The reason codes for a wrong user or password, missing rights, a ban and a wrong authentication method (MQTT 5, 2.4)."""

_REFUSED = {
    0x85: "it does not accept this client id",
    0x86: "wrong user or password",
    0x87: "wrong user or password, or no right to connect",
}
"""The likely causes of CONNACK reasons that brokers use for several mistakes: mosquitto calls a wrong password 0x87."""


class BrokerLink:
    """The session of ``endpoint``, whose state it sets, and the current connection to one of ``brokers``, if any.

    ``broker`` is the number of the one of the current or last attempt, ``session_broker`` of the one that accepted the last
    connection, ``have_session`` has those that accepted any. ``ties``: number of a broker → whether it gives us a streamer's
    session. ``is_wanted``: the end of a connection is a failure. ``is_culprit_found``: at the end of the last connection.
    """

    def __init__(self, endpoint: UTransport, options: Mqtt5Options, registry: ListenerRegistry) -> None:
        context = endpoint.context
        self._endpoint = endpoint
        self._options = options
        self.client_id = options.effective_client_id(context.authority)
        encoder = Encoder(options.topics, context.authority, options.payload_format_property, context.now_ms)
        decoder = PublishDecoder(
            options.topics, context.authority, options.max_token_bytes, context.flows, options.identity_property
        )
        self.session = Session(
            options.window,
            encoder.encode,
            lambda: self.traffic.acknowledge_soon(),
            options.is_session_persistent,
            options.receive_maximum,
        )
        self.intake = PacketIntake(self.session, decoder, options, context.events)
        self.traffic = Traffic(
            context.name, self.session, self.intake, registry, context.events, options.receive_maximum, self._on_control
        )
        self.brokers = options.brokers
        settled_s = options.reconnect.max_ms / 1000
        self.choice = BrokerChoice(len(self.brokers), options.prefer, options.return_after_s, settled_s)
        self.subscribing = Subscribing(context.name, self.session, self.traffic.write, len(self.brokers))
        self.broker = 0
        self.session_broker: int | None = None
        self.have_session: set[int] = set()
        self.ties: dict[int, bool] = {}
        self.connections = 0  # that were accepted
        self.has_resumed = False  # the first connection found a session
        self.connected_s = 0.0
        self.up_since_s: float | None = None
        self.is_wanted = False
        self.is_culprit_found = False
        self.has_expired_certificate = False
        self._address = ""  # that of the current or last connection
        self._keep_alive: KeepAlive | None = None
        self._carried = NO_BYTES  # by connections that are over
        own = (context.name, context.authority, __version__, options.topics)
        self.will = None if options.will is None else LastWill(*own, options.will)
        self._will_problem = ""

    @property
    def name(self) -> str:
        """The name of the endpoint."""
        return self._endpoint.context.name

    @property
    def capacity(self) -> int:
        """The most messages that may be unconfirmed now."""
        return self.session.limit if self.session.is_writable else self.session.unconfirmed

    def problems(self) -> list[str]:
        """Return a sentence for everything that the broker does not let the endpoint do."""
        return (
            [TIED] * any(self.ties.values()) + [self._will_problem] * bool(self._will_problem) + self.subscribing.problems()
        )

    def wire_bytes(self) -> ByteCounts | None:
        """Return what all connections have carried so far, with TLS; None until the first, or where that is unknown."""
        connection = self.traffic.connection
        carried = self._carried if connection is None else self._carried.plus(connection.carried or NO_BYTES)
        return carried if any(carried) else None

    def begin_attempt(self) -> None:
        """Forget how the connection before has ended."""
        self.up_since_s = None
        self.intake.overflows = self.traffic.is_ended_for_excess = self.is_culprit_found = False

    @property
    def is_no_fault(self) -> bool:
        """Whether the last connection was ended on purpose, or over a message that was found."""
        return self.traffic.is_ended_for_excess or self.is_culprit_found

    def begin(self, connection: Connection, address: str, username: str | None, password: bytes | None) -> KeepAlive | None:
        """Use a connection that was made now, and send the CONNECT. Return its timer; None if it is lost already."""
        options, endpoint = self._options, self._endpoint
        self._address = address
        self.traffic.connection = connection
        if connection.lost.done():  # when it was not ours yet
            self.on_lost(connection)
            return None
        now_s = asyncio.get_running_loop().time()
        self._keep_alive = KeepAlive(connection, self.session, options, self._continues_unanswered, now_s)
        connection.write(
            mqtt5.ConnectPacket(
                self.client_id,
                username=username,
                password=password,
                clean_start=options.clean_start,
                will=None if self.will is None else self.will.of_connection(endpoint.context.now_ms()),
                keep_alive=options.keep_alive_s,
                session_expiry_interval=options.session_expiry_s,
                receive_max=options.receive_maximum,
                max_packet_size=options.max_packet_bytes,
            ).write()
        )
        return self._keep_alive

    # -- failures ---------------------------------------------------------------------------------------------------

    def why_not_accepted(self, connection: Connection) -> tuple[LinkFailure, str]:
        """Return why a connection has ended before the broker answered."""
        if connection.failure is LinkFailure.RESET and self.has_expired_certificate:
            # The broker's alert is lost if it resets the connection (MQTT over TLS 1.3).
            return LinkFailure.CERTIFICATE_EXPIRED, f"{connection.reason}: our certificate has expired"
        return connection.failure, connection.reason

    def failed(self, failure: LinkFailure, text: str) -> str:
        """Record a failure at the broker of the current attempt. Return the text."""
        self._endpoint.link_failed(failure, text, self.brokers[self.broker].where)
        return text

    def blame(self) -> tuple[str, LinkFailure]:
        """Return the address and the reason of the latest failure."""
        assert self._endpoint.last_error is not None
        return self._endpoint.last_error.address, self._endpoint.last_error.reason

    # -- control packets --------------------------------------------------------------------------------------------

    def _on_control(self, connection: Connection, frame: bytes) -> None:
        try:
            packet = frames.read(frame)
        except MalformedPacketError as exc:
            raise ProtocolError(DisconnectReasonCode.MALFORMED_PACKET, str(exc)) from None
        match packet:
            case mqtt5.ConnAckPacket() if not self.session.is_connected:
                self._on_connack(connection, packet)
            case mqtt5.SubAckPacket():
                self._answered(self.subscribing.confirmed(packet))
            case mqtt5.UnsubAckPacket():
                self._answered(self.subscribing.removed(packet))
            case mqtt5.PingRespPacket():
                self.traffic.ping_answers += 1
            case mqtt5.DisconnectPacket():
                self._on_disconnect(connection, packet)
            case _:
                raise ProtocolError(DisconnectReasonCode.PROTOCOL_ERROR, f"unexpected {type(packet).__name__}")

    def _on_connack(self, connection: Connection, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code):  # the codec's enumerations are always true
            failure, text = refusal_of(packet)
            if self.will is not None and int(packet.reason_code) in _OF_A_WILL:
                text += f"; with will, this client has to be allowed to publish on {self.will.topic}"
            connection.close(text, failure)
            return
        if packet.max_qos == QoS.AT_MOST_ONCE:
            raise ProtocolError(DisconnectReasonCode.QOS_NOT_SUPPORTED, "the broker does not accept messages with QoS 1")
        if packet.server_keep_alive is not None and self._keep_alive is not None:
            self._keep_alive.keep_alive_s = packet.server_keep_alive
        self._apply_session_expiry(packet.session_expiry_interval)
        had_session = self.broker in self.have_session
        (self.have_session.add if self._endpoint.source_retransmits else self.have_session.discard)(self.broker)
        if self.connections:
            self._endpoint.context.events.reconnected()
            if had_session and not packet.session_present:
                logger.warning("session_forgotten endpoint=%s: what the broker had kept for it is lost", self.name)
        self.connections += 1
        self.choice.accepted(self.broker, self._address)
        if self.connections == 1:
            self.has_resumed = packet.session_present
        # What another broker did not confirm is not in this one's session.
        is_same, self.session_broker = self.session_broker in (None, self.broker), self.broker
        self.connected_s = asyncio.get_running_loop().time()
        self.session.give_back_expired(self._endpoint.context.now_ms(), time.monotonic())
        is_present = packet.session_present and is_same
        self.session.connected(is_present, packet.receive_max, packet.max_packet_size)
        self.traffic.write_outgoing()
        self._say_online(is_present)
        logger.info(
            "connected endpoint=%s broker=%s client_id=%s session_present=%s window=%d",
            self.name,
            self.brokers[self.broker].where,
            self.client_id,
            packet.session_present,
            self.capacity,
            extra={"state": (f"link {self.name}", "up")},
        )
        can_share, has_wildcards = packet.shared_subscription_available, packet.wildcard_subscription_available
        self._answered(self.subscribing.connected(packet.session_present, can_share, has_wildcards, self.broker))

    def _apply_session_expiry(self, expiry_s: int | None) -> None:
        """Apply the session expiry of the CONNACK, which may be shorter than ours (MQTT 5, 3.2.2.3.2). None: as ours."""
        asked_s = self._options.session_expiry_s
        self._endpoint.source_retransmits = self.session.is_persistent = (
            self._options.is_session_persistent and expiry_s != 0
        )
        if expiry_s is not None and expiry_s < asked_s:
            logger.warning("session_expiry_lowered endpoint=%s asked_s=%d given_s=%d", self.name, asked_s, expiry_s)

    def _answered(self, is_up: bool) -> None:
        """Set the link's state to UP if ``is_up``: the last answer for which it waited has come."""
        if is_up:
            self.up_since_s = asyncio.get_running_loop().time()
            self._endpoint.set_state(LinkState.UP)

    def _continues_unanswered(self) -> bool:
        """Return whether the connection continues without an answer, so that at least messages can be sent."""
        if not self.subscribing.continues_unanswered():
            return False
        self._answered(self.subscribing.give_up_unanswered())
        return True

    def _on_disconnect(self, connection: Connection, packet: mqtt5.DisconnectPacket) -> None:
        reason = packet.reason_code
        if self.will is not None:
            self.will.counts_as_offline()
        if reason == DisconnectReasonCode.SESSION_TAKEN_OVER:
            self.ties[self.broker] = self._options.of_streamer is not None
            logger.error(
                "session_taken_over endpoint=%s client_id=%s hint='another client uses the same client id'",
                self.name,
                self.client_id,
            )
        connection.is_ended_by_broker = int(reason) in _OVER_A_MESSAGE
        failure = LinkFailure.AUTHENTICATION if int(reason) in _NO_RIGHTS else LinkFailure.BROKER
        connection.close(f"the broker disconnected: {named(reason)}", failure)

    def on_lost(self, connection: Connection) -> None:
        """Note the end of a connection, which may not be the current one."""
        if connection is self.traffic.connection:
            self.traffic.connection = None
            self._carried = self._carried.plus(connection.carried or NO_BYTES)
            self.subscribing.disconnected()
            if self.will is not None and self.session.is_connected:
                self.will.lost(connection.last_read_s)
            # A connection that was not accepted says nothing about the messages sent on the one before.
            was_connected = self.session.is_connected
            lived_s = asyncio.get_running_loop().time() - self.connected_s
            is_ended_by_broker = connection.is_ended_by_broker and was_connected
            if self.session.has_timed_out and self.session.head is not None:
                message = self.session.head[0].message
                ends = message.attributes.source, message.attributes.sink
                text = "message_not_confirmed endpoint=%s id=%s source=%s sink=%s broker_answers=%s"
                logger.warning(text, self.name, format_id(message.id), *ends, self.session.is_alive)
            self.session.disconnected(lived_s if is_ended_by_broker else None)
            if suspects := self.session.search.suspects:
                text = "connection_ended_over_a_message endpoint=%s suspects=%d consequence=%s"
                logger.warning(text, self.name, suspects, "they are sent one at a time to find out which")
            if self.is_wanted and not (was_connected and self.choice.is_returning):  # the end was not ours
                ended = connection.failure, connection.reason
                self.failed(*(ended if was_connected else self.why_not_accepted(connection)))
            self._endpoint.set_state(LinkState.DOWN, connection.reason)
            self.is_culprit_found = self.session.report_culprit()

    # -- saying whether the streamer is there ------------------------------------------------------------------------

    def _say_online(self, session_present: bool) -> None:
        """Say that the endpoint has connected, unless nobody was told that it was disconnected."""
        if self.will is not None and self.will.is_news(asyncio.get_running_loop().time(), session_present):
            self._say(self.will.online(self._endpoint.context.now_ms()))

    def say_farewell(self, reason: str) -> DisconnectReasonCode:
        """Say that the endpoint disconnects. Return the reason for the DISCONNECT: if need be, the will says it."""
        if self.will is None or not self.session.is_connected:
            return DisconnectReasonCode.NORMAL_DISCONNECTION
        self.will.counts_as_offline()
        if self._say(self.will.offline(self._endpoint.context.now_ms(), reason)):
            return DisconnectReasonCode.NORMAL_DISCONNECTION
        return DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE

    def _say(self, message: UMessage) -> bool:
        """Send a message of the endpoint itself. Return whether it is written; if it is not, it may be later.

        Once the broker has refused one, no more are sent: mosquitto ends the connection over each.
        """
        if self._will_problem:
            return False
        parcel = MessageParcel(message)
        self.traffic.submit((parcel,), self._was_said)
        return parcel.wire_bytes > 0

    def _was_said(self, parcels: Sequence[Parcel], result: SendResult) -> None:
        """Report that the broker has refused such a message. One that is lost with the link is out of date."""
        if self.will is not None and isinstance(result, SendError) and not isinstance(result, LinkLostError):
            self._will_problem = f"will: cannot say on {self.will.topic} that it is there: {result.message}"
            text = "will_refused endpoint=%s topic=%s reason=%s"
            logger.warning(text, self.name, self.will.topic, result.message)


def refusal_of(packet: mqtt5.ConnAckPacket) -> tuple[LinkFailure, str]:
    """Return the reason and the text for a CONNACK that refuses a connection."""
    reason = int(packet.reason_code)
    meaning = f": {_REFUSED[reason]}" if reason in _REFUSED else ""
    failure = LinkFailure.AUTHENTICATION if reason in _NO_RIGHTS else LinkFailure.BROKER
    return failure, f"the broker refused: {named(packet.reason_code)}, {connack_code(reason).name}{meaning}"
