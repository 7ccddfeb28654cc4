"""The MQTT 5 transport: keeps one session with a broker, and decides what its control packets mean.

Messages and their confirmations pass through `traffic` instead.
"""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import mqtt5
from mqtt5 import DisconnectReasonCode, QoS

from streamer import __version__
from streamer.backoff import RECONNECT_STEPS, wait_s
from streamer.files import Files
from streamer.transports.base import (
    NO_BYTES,
    ByteCounts,
    Done,
    LinkState,
    MessageParcel,
    Parcel,
    Report,
    SendResult,
    TransportContext,
    TransportEvents,
    UTransport,
)
from streamer.transports.errors import ConfigurationError, LinkLostError, MalformedPacketError, SendError
from streamer.transports.link_error import LinkFailure, failure_of
from streamer.transports.listening import ListeningTransport
from streamer.transports.mqtt5 import frames
from streamer.transports.mqtt5.brokers import Broker, BrokerChoice, WebSocketError
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.dialing import Way, accepts, dial, read_way
from streamer.transports.mqtt5.ending import END_S, Ending, is_session_resumed_by, until
from streamer.transports.mqtt5.frames import ProtocolError, named
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.keep_alive import FAREWELL_S, KeepAlive
from streamer.transports.mqtt5.last_will import LastWill
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.probe import Trial, no_broker
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.subscribing import Subscribing
from streamer.transports.mqtt5.subscriptions import filters_for
from streamer.transports.mqtt5.tools import Mqtt5Tools
from streamer.transports.mqtt5.traffic import Traffic
from streamer.transports.mqtt5.tunnel import ProxyError
from streamer.transports.mqtt5.wire import Encoder, connack_code
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

logger = logging.getLogger("ustreamer.mqtt5")

_LEAVE_S = 3.0  # for unsubscribing, and the messages that come until then
_QUIET_S = 0.05  # after this long without a packet, no more are expected

_TIED = "the broker gives the streamer's session to every client with these credentials; use others than a streamer's"
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


class Mqtt5Transport(ListeningTransport):
    """uTransport over an MQTT 5 broker. UP once the broker has confirmed every subscription."""

    kind = "mqtt5"
    confirms_in_order = True
    Options = Mqtt5Options

    def __init__(self, context: TransportContext, options: Mqtt5Options) -> None:
        super().__init__(context, options)
        self.options: Mqtt5Options = options
        self._client_id = options.effective_client_id(context.authority)
        encoder = Encoder(options.topics, context.authority, options.payload_format_property, context.now_ms)
        decoder = PublishDecoder(
            options.topics, context.authority, options.max_token_bytes, context.flows, options.identity_property
        )
        self.source_retransmits = options.is_session_persistent
        self._session = Session(
            options.window,
            encoder.encode,
            lambda: self._traffic.acknowledge_soon(),
            options.is_session_persistent,
            options.receive_maximum,
        )
        self._intake = PacketIntake(self._session, decoder, options, context.events)
        self._traffic = Traffic(
            context.name,
            self._session,
            self._intake,
            self.registry,
            context.events,
            options.receive_maximum,
            self._on_control,
        )
        self._brokers = options.brokers
        settled_s = options.reconnect.max_ms / 1000
        self._choice = BrokerChoice(len(self._brokers), options.prefer, options.return_after_s, settled_s)
        self._broker = 0  # the number of the broker of the current or last attempt
        self._address = ""  # that of the current or last connection
        self._session_broker: int | None = None  # the broker that accepted the last connection
        self._have_session: set[int] = set()  # the brokers that accepted a connection
        self.subscribing = Subscribing(context.name, self._session, self._traffic.write, len(self._brokers))
        self._files = Files()
        self._task: asyncio.Task[None] | None = None
        self._ending = Ending(self._session, self._traffic, self.subscribing)
        self._connections = 0
        self._has_resumed = False  # the first connection found a session
        self._keep_alive: KeepAlive | None = None
        self._up_since_s: float | None = None
        self._connected_s = 0.0
        self._has_expired_certificate = False
        self._is_culprit_found = False  # at the end of the last connection
        self._carried = NO_BYTES  # by connections that are over
        self._ties: dict[int, bool] = {}  # number of a broker → whether it gives us a streamer's session
        own = (context.name, context.authority, __version__, options.topics)
        self._will_problem = ""
        self._will = None if options.will is None else LastWill(*own, options.will)

    @property
    def capacity(self) -> int:
        session = self._session
        return session.limit if session.is_writable else session.unconfirmed

    tools = Mqtt5Tools()

    def report(self) -> Report:
        problems = [_TIED] * any(self._ties.values()) + [self._will_problem] * bool(self._will_problem)
        connected_to = (self._brokers[self._broker].where,) if self._session.is_connected else ()
        return Report(
            problems + self.subscribing.problems(),
            tuple(broker.where for broker in self._brokers),
            connected_to,
            wire_bytes=self._wire_bytes(),
            certificates=tuple(self.options.certificates().values()),
        )

    def _wire_bytes(self) -> ByteCounts | None:
        """Return what all connections have carried so far, with TLS; None until the first, or where that is unknown."""
        connection = self._traffic.connection
        carried = self._carried if connection is None else self._carried.plus(connection.carried or NO_BYTES)
        return carried if any(carried) else None

    # -- life -------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read credentials and certificates. Raises `ConfigurationError` if a file that the options name cannot be used."""
        self.options.credentials()
        self.options.tls_context()
        self.options.proxy_credentials()

    async def start(self) -> None:
        """Begin to connect. Raises `ConfigurationError` as `prepare` does."""
        if self._task is None:
            await self._files.run(self.prepare)
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name=f"mqtt5-{self.context.name}")

    async def stop_receiving(self) -> None:
        """Unsubscribe, and deliver the messages sent until then, if the session ends with the connection."""
        if self.source_retransmits:
            return
        self.subscribing.leave()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _LEAVE_S
        while (connection := self._traffic.connection) is not None and self._session.is_connected and loop.time() < until_s:
            if not self._session.has_requests and loop.time() - connection.last_read_s > _QUIET_S:
                return
            await asyncio.sleep(_QUIET_S / 5)

    async def stop(self) -> None:
        await self._stop(None)

    async def _stop(self, session_expiry_s: int | None) -> None:
        """Stop as `stop` does. ``session_expiry_s`` is the session's from now on; None does not change it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        connection = self._traffic.connection
        if connection is not None:
            self._traffic.flush()
            if self._session.unacknowledged and not self.source_retransmits:
                count = len(self._session.unacknowledged)
                logger.warning("unacknowledged_given_up endpoint=%s messages=%d", self.context.name, count)
            connection.disconnect(self._say_farewell("stopped"), "stopped", session_expiry_s)
            await connection.wait_lost(FAREWELL_S)
        self._session.lose_all()
        self.set_state(LinkState.DOWN, "stopped")

    async def end_session(self, successor: UTransport) -> None:
        """Receive the remaining messages of each broker's session, then end it, unless the successor resumes it."""
        until_s = asyncio.get_running_loop().time() + END_S
        self.context = replace(self.context, name=f"{self.context.name}:earlier", events=TransportEvents())
        later = successor if isinstance(successor, Mqtt5Transport) else None
        for number in sorted(self._have_session, key=lambda number: number != self._session_broker):
            await self._end_session_at(number, successor, later, until_s)

    async def _end_session_at(
        self, number: int, successor: UTransport, later: "Mqtt5Transport | None", until_s: float
    ) -> None:
        if later is not None and self._is_session_resumed_by(later, number):
            return
        problem: str | None = "there was no time"
        try:
            if not await until(lambda: successor.state is not LinkState.DOWN, until_s):
                problem = "the new connection is not up"  # until then, ending the session would lose messages
            elif later is not None and self._is_session_resumed_by(later, number):
                problem = None
            else:
                problem = await self._end(later, number, until_s)
        finally:  # also if this task is cancelled
            if problem is not None:
                self._log_session_end(successor.context.name, number, problem)

    def _log_session_end(self, endpoint: str, number: int, problem: str) -> None:
        where = self._brokers[number].where
        if problem:
            text = "session_left endpoint=%s broker=%s client_id=%s reason=%s consequence=%s"
            consequence = f"the broker keeps it for {self.options.session_expiry_s} s, with the messages in it"
            logger.warning(text, endpoint, where, self._client_id, problem, consequence)
        else:
            logger.info("session_ended endpoint=%s broker=%s client_id=%s", endpoint, where, self._client_id)

    def _is_session_resumed_by(self, later: "Mqtt5Transport", number: int) -> bool:
        """Return whether a later transport goes on with the session at a broker. Logs if that is only probable."""
        options, broker, authority = self.options, self._brokers[number], self.context.authority
        if is_session_resumed_by(options, broker, authority, later.options, False):
            return True
        # A session that was found may be that of a broker behind another name or port, if it can only be that of one.
        has_resumed = later._has_resumed and len(self._have_session) == 1
        if not is_session_resumed_by(options, broker, authority, later.options, has_resumed):
            return False
        text = "session_taken_for_the_same endpoint=%s broker=%s earlier_broker=%s client_id=%s consequence=%s"
        consequence = f"if it is another one, the earlier broker keeps its messages for {options.session_expiry_s} s"
        logger.info(
            text, later.context.name, later._brokers[later._broker].where, broker.where, self._client_id, consequence
        )
        return True

    async def _end(self, later: "Mqtt5Transport | None", number: int, until_s: float) -> str:
        """Connect once more to a broker and empty the session. Return why that failed; empty if it did not."""
        self._choice.stay_at(number)
        epoch = 0 if later is None else later._session.epoch
        self._will = None  # the successor has its own
        self.subscribing.leave()
        expiry_s: int | None = None
        try:
            await self.start()
            if not await until(lambda: self._session.is_connected, until_s):
                return "no connection"
            # If both connections have one session, the broker has ended the successor's connection, which will reconnect.
            if not await self._ending.is_answered(until_s) or (later is not None and later._session.epoch != epoch):
                return "the broker has ended a connection over it"
            if not await self._ending.take_rest(until_s):
                return f"not everything could be taken within {END_S:g} s"
            expiry_s = 0
            return ""
        except ConfigurationError as exc:
            return f"{exc.key}: {exc}"
        finally:
            await self._stop(expiry_s)

    async def _keep_connected(self) -> None:
        failures = refusals = 0  # refusals: attempts in a row in which no broker accepted
        loop, name = asyncio.get_running_loop(), self.context.name
        while True:
            self._up_since_s = None
            self._intake.overflows = self._traffic.is_ended_for_excess = self._is_culprit_found = False
            connections, last_broker = self._connections, self._session_broker
            try:
                reason = await self._connect(max(0, refusals - 1))
            except Exception as exc:  # no other task awaits this one: the endpoint would stay down silently
                reason = self._failed(*failure_of(exc))
                logger.exception("connect_failed endpoint=%s address=%s reason=%s text=%s", name, *self._blame(), reason)
                if self._traffic.connection is not None:
                    self._traffic.connection.abort(reason)
                    await self._traffic.connection.wait_lost(FAREWELL_S)
            refusals = 0 if self._connections > connections else refusals + 1
            # After a link that was up for a while, or to another broker, the wait begins with the shortest again.
            up_s = 0.0 if self._up_since_s is None else loop.time() - self._up_since_s
            is_no_fault = self._traffic.is_ended_for_excess or self._is_culprit_found
            has_switched = last_broker not in (None, self._session_broker)
            if is_no_fault or has_switched or up_s > self.options.reconnect.max_ms / 1000:
                failures = 0
            if not refusals and self._choice.is_returning:
                continue
            failures += 1
            retry_s = wait_s(self.options.reconnect, failures, random.random(), RECONNECT_STEPS)
            self.retry_in(retry_s)
            address, failure = self._blame()
            text = "link_down endpoint=%s address=%s reason=%s text=%s retry_in_s=%.2f"
            state = (f"link {name}", f"down: {failure}")
            logger.warning(text, name, address, failure, reason, retry_s, extra={"state": state})
            await asyncio.sleep(retry_s)

    async def _connect(self, first_address: int) -> str:
        """Connect to the first broker that accepts, stay until the connection ends, and return the reason.

        ``first_address`` is the number of the address of each broker to try first.
        """
        reasons: list[str] = []
        for number in self._choice.order:
            connections = self._connections
            reason = await self._connect_to(number, first_address)
            if self._connections > connections:
                if not self._choice.is_returning:
                    is_no_fault = self._traffic.is_ended_for_excess or self._is_culprit_found
                    self._choice.ended(asyncio.get_running_loop().time() - self._connected_s, is_no_fault)
                return reason
            if len(self._brokers) > 1:
                text = "broker_not_reached endpoint=%s address=%s reason=%s text=%s"
                logger.warning(text, self.context.name, *self._blame(), reason)
            reasons.append(reason if len(self._brokers) == 1 else f"{self._brokers[number].where}: {reason}")
        return "; ".join(reasons)

    async def _connect_to(self, number: int, first_address: int) -> str:
        """Connect to one broker, stay until the connection ends, and return the reason."""
        self._broker, options, broker = number, self.options, self._brokers[number]
        try:
            username, password, way, self._has_expired_certificate = await self._files.run(lambda: self._read(broker))
        except ConfigurationError as exc:
            return self._failed(LinkFailure.FILES, f"{exc.key}: {exc}")
        except OSError as exc:  # reading takes too long
            return self._failed(LinkFailure.FILES, f"files: {exc.strerror}")
        loop = asyncio.get_running_loop()
        traffic = self._traffic
        make = partial(Connection, options.max_packet_bytes, traffic.on_frames, traffic.on_writable, self._on_lost)
        good_address = self._choice.good_addresses.get(number)
        try:
            if options.of_streamer is not None:
                refusal = await self._try_session(options.of_streamer, way, number, username, password)
                if refusal is not None:
                    return self._failed(*refusal)
            connection, address = await dial(way, make, first_address, good_address)
        except TimeoutError:
            return self._failed(LinkFailure.TIMEOUT, f"no connection within {options.connect_timeout_s:g} s")
        except ProxyError as exc:
            return self._failed(LinkFailure.PROXY, str(exc))
        except WebSocketError as exc:
            return self._failed(LinkFailure.PROTOCOL, str(exc))
        except (OSError, UnicodeError) as exc:
            if self._will is not None and isinstance(exc, ConnectionRefusedError):
                self._will.counts_as_offline()
            return self._failed(*failure_of(exc))
        self._address = address
        traffic.connection = connection
        if connection.lost.done():  # while `dial` returned it, when it was not ours yet
            self._on_lost(connection)
            return connection.reason
        self._keep_alive = keep_alive = KeepAlive(
            connection, self._session, options, self._continues_unanswered, loop.time()
        )
        connection.write(
            mqtt5.ConnectPacket(
                self._client_id,
                username=username,
                password=password,
                clean_start=options.clean_start,
                will=None if self._will is None else self._will.of_connection(self.context.now_ms()),
                keep_alive=options.keep_alive_s,
                session_expiry_interval=options.session_expiry_s,
                receive_max=options.receive_maximum,
                max_packet_size=options.max_packet_bytes,
            ).write()
        )
        testing: asyncio.Task[None] | None = None
        try:
            while not connection.lost.done():
                await asyncio.wait((connection.lost,), timeout=keep_alive.tick_s)
                now_s = loop.time()
                keep_alive.check(now_s)
                self._resume_search(now_s)
                if testing is None and self._session.is_connected and (every_s := self._choice.test_every_s) is not None:
                    testing = asyncio.create_task(self._test_first(every_s), name=f"mqtt5-test-{self.context.name}")
                self._return_to_first(connection, now_s)
        finally:
            if testing is not None:
                testing.cancel()
        return connection.reason

    async def _try_session(
        self, options: Mqtt5Options, way: Way, number: int, username: str | None, password: bytes | None
    ) -> tuple[LinkFailure, str] | None:
        """Find out whether a broker gives us a session of our own. Return why we may not connect; None: we may.

        ``options`` are those of the streamer. Raises OSError and UnicodeError as `dial` does.
        """
        if number not in self._ties:
            trials: list[Trial] = []  # one for each address; the last one is connected

            def new_connection() -> Connection:
                trials.append(Trial(options))
                return trials[-1].connection

            await dial(way, new_connection)
            connection = trials[-1].connection
            try:
                async with asyncio.timeout(options.connect_timeout_s):
                    packet = await trials[-1].ask(self._client_id, username, password)
            except ConnectionError:
                return self._why_not_accepted(connection)
            if not isinstance(packet, mqtt5.ConnAckPacket):
                return LinkFailure.PROTOCOL, no_broker(packet)
            if int(packet.reason_code):
                return _refusal(packet)
            self._ties[number] = packet.session_present
        return (LinkFailure.AUTHENTICATION, _TIED) if self._ties[number] else None

    def _why_not_accepted(self, connection: Connection) -> tuple[LinkFailure, str]:
        """Return why a connection has ended before the broker answered."""
        if connection.failure is LinkFailure.RESET and self._has_expired_certificate:
            # The broker's alert is lost if it resets the connection (MQTT over TLS 1.3).
            return LinkFailure.CERTIFICATE_EXPIRED, f"{connection.reason}: our certificate has expired"
        return connection.failure, connection.reason

    def _read(self, broker: Broker) -> tuple[str | None, bytes | None, Way, bool]:
        options = self.options
        now_s = self.context.now_ms() / 1000
        return (*options.credentials(), read_way(options, broker), options.has_expired_certificate(now_s))

    def _failed(self, failure: LinkFailure, text: str) -> str:
        self.link_failed(failure, text, self._brokers[self._broker].where)
        return text

    def _blame(self) -> tuple[str, LinkFailure]:
        """Return the address and the reason of the latest failure."""
        assert self.last_error is not None
        return self.last_error.address, self.last_error.reason

    async def can_connect(self) -> bool:
        for number, broker in enumerate(self._brokers):
            try:
                way = await self._files.run(partial(read_way, self.options, broker))
                if await accepts(way, self._choice.good_addresses.get(number)):
                    return True
            except (ConfigurationError, OSError):
                continue
        return False

    async def _test_first(self, every_s: float) -> None:
        """Find out again and again whether the first broker accepts connections, while another one is in use."""
        while True:
            try:
                way = await self._files.run(lambda: read_way(self.options, self._brokers[0]))
                is_good = await accepts(way, self._choice.good_addresses.get(0))
            except (ConfigurationError, OSError):
                is_good = False
            except Exception:  # no other task awaits this one: the broker would not be tested any more
                is_good = False
                logger.exception("broker_test_failed endpoint=%s broker=%s", self.context.name, self._brokers[0].where)
            self._choice.tested(is_good, asyncio.get_running_loop().time())
            await asyncio.sleep(every_s)

    def _return_to_first(self, connection: Connection, now_s: float) -> None:
        """End the connection in favour of the first broker, if that has proven itself and the link is idle."""
        is_quiet = now_s - max(connection.last_read_s, connection.last_write_s) > _QUIET_S
        if self._choice.may_return(now_s) and is_quiet and self._session.is_idle and self.state is LinkState.UP:
            self._choice.return_to_first()
            where = self._brokers[0].where
            logger.info("returning_to_first_broker endpoint=%s broker=%s", self.context.name, where)
            reason = f"the streamer returns to {where}"
            connection.disconnect_gently(self._say_farewell(reason), reason)

    def _resume_search(self, now_s: float) -> None:
        """Send the next suspect, if the connection has stood for long enough."""
        search = self._session.search
        if search.is_suspended and self._up_since_s is not None and now_s - self._connected_s >= search.stand_s:
            self._session.resume_search()
            self._traffic.write_outgoing()

    def awaits_acknowledgements(self, now_s: float) -> bool:
        return self._session.pressure.may_have_stopped(len(self._session.unacknowledged), now_s)

    # -- saying whether the streamer is there ------------------------------------------------------------------------

    def _say_online(self, session_present: bool) -> None:
        """Say that the endpoint has connected, unless nobody was told that it was disconnected."""
        if self._will is not None and self._will.is_news(asyncio.get_running_loop().time(), session_present):
            self._say(self._will.online(self.context.now_ms()))

    def _say_farewell(self, reason: str) -> DisconnectReasonCode:
        """Say that the endpoint disconnects. Return the reason for the DISCONNECT: if need be, the will says it."""
        if self._will is None or not self._session.is_connected:
            return DisconnectReasonCode.NORMAL_DISCONNECTION
        self._will.counts_as_offline()
        if self._say(self._will.offline(self.context.now_ms(), reason)):
            return DisconnectReasonCode.NORMAL_DISCONNECTION
        return DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE

    def _say(self, message: UMessage) -> bool:
        """Send a message of the endpoint itself. Return whether it is written; if it is not, it may be later.

        Once the broker has refused one, no more are sent: mosquitto ends the connection over each.
        """
        if self._will_problem:
            return False
        parcel = MessageParcel(message)
        self._traffic.submit((parcel,), self._was_said)
        return parcel.wire_bytes > 0

    def _was_said(self, parcels: Sequence[Parcel], result: SendResult) -> None:
        """Report that the broker has refused such a message. One that is lost with the link is out of date."""
        if self._will is not None and isinstance(result, SendError) and not isinstance(result, LinkLostError):
            self._will_problem = f"will: cannot say on {self._will.topic} that it is there: {result.message}"
            text = "will_refused endpoint=%s topic=%s reason=%s"
            logger.warning(text, self.context.name, self._will.topic, result.message)

    # -- sending ----------------------------------------------------------------------------------------------------

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        self._traffic.submit(parcels, done)

    # -- receiving --------------------------------------------------------------------------------------------------

    def _on_control(self, connection: Connection, frame: bytes) -> None:
        try:
            packet = frames.read(frame)
        except MalformedPacketError as exc:
            raise ProtocolError(DisconnectReasonCode.MALFORMED_PACKET, str(exc)) from None
        match packet:
            case mqtt5.ConnAckPacket() if not self._session.is_connected:
                self._on_connack(connection, packet)
            case mqtt5.SubAckPacket():
                self._answered(self.subscribing.confirmed(packet))
            case mqtt5.UnsubAckPacket():
                self._answered(self.subscribing.removed(packet))
            case mqtt5.PingRespPacket():
                self._traffic.ping_answers += 1
            case mqtt5.DisconnectPacket():
                self._on_disconnect(connection, packet)
            case _:
                raise ProtocolError(DisconnectReasonCode.PROTOCOL_ERROR, f"unexpected {type(packet).__name__}")

    # -- connection -------------------------------------------------------------------------------------------------

    def _on_connack(self, connection: Connection, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code):  # the codec's enumerations are always true
            failure, text = _refusal(packet)
            if self._will is not None and int(packet.reason_code) in _OF_A_WILL:
                text += f"; with will, this client has to be allowed to publish on {self._will.topic}"
            connection.close(text, failure)
            return
        if packet.max_qos == QoS.AT_MOST_ONCE:
            raise ProtocolError(DisconnectReasonCode.QOS_NOT_SUPPORTED, "the broker does not accept messages with QoS 1")
        if packet.server_keep_alive is not None and self._keep_alive is not None:
            self._keep_alive.keep_alive_s = packet.server_keep_alive
        self._apply_session_expiry(packet.session_expiry_interval)
        had_session = self._broker in self._have_session
        (self._have_session.add if self.source_retransmits else self._have_session.discard)(self._broker)
        if self._connections:
            self.context.events.reconnected()
            if had_session and not packet.session_present:
                logger.warning("session_forgotten endpoint=%s: what the broker had kept for it is lost", self.context.name)
        self._connections += 1
        self._choice.accepted(self._broker, self._address)
        if self._connections == 1:
            self._has_resumed = packet.session_present
        # What another broker did not confirm is not in this one's session.
        is_same, self._session_broker = self._session_broker in (None, self._broker), self._broker
        self._connected_s = asyncio.get_running_loop().time()
        self._session.give_back_expired(self.context.now_ms(), time.monotonic())
        is_present = packet.session_present and is_same
        self._session.connected(is_present, packet.receive_max, packet.max_packet_size)
        self._traffic.write_outgoing()
        self._say_online(is_present)
        logger.info(
            "connected endpoint=%s broker=%s client_id=%s session_present=%s window=%d",
            self.context.name,
            self._brokers[self._broker].where,
            self._client_id,
            packet.session_present,
            self.capacity,
            extra={"state": (f"link {self.context.name}", "up")},
        )
        can_share, has_wildcards = packet.shared_subscription_available, packet.wildcard_subscription_available
        self._answered(self.subscribing.connected(packet.session_present, can_share, has_wildcards, self._broker))

    def _apply_session_expiry(self, expiry_s: int | None) -> None:
        """Apply the session expiry of the CONNACK, which may be shorter than ours (MQTT 5, 3.2.2.3.2). None: as ours."""
        asked_s = self.options.session_expiry_s
        self.source_retransmits = self._session.is_persistent = self.options.is_session_persistent and expiry_s != 0
        if expiry_s is not None and expiry_s < asked_s:
            logger.warning("session_expiry_lowered endpoint=%s asked_s=%d given_s=%d", self.context.name, asked_s, expiry_s)

    def _answered(self, is_up: bool) -> None:
        """Set the link's state to UP if ``is_up``: the last answer for which it waited has come."""
        if is_up:
            self._up_since_s = asyncio.get_running_loop().time()
            self.set_state(LinkState.UP)

    def _continues_unanswered(self) -> bool:
        """Return whether the connection continues without an answer, so that at least messages can be sent."""
        if not self.subscribing.continues_unanswered():
            return False
        self._answered(self.subscribing.give_up_unanswered())
        return True

    def _on_disconnect(self, connection: Connection, packet: mqtt5.DisconnectPacket) -> None:
        reason = packet.reason_code
        if self._will is not None:
            self._will.counts_as_offline()
        if reason == DisconnectReasonCode.SESSION_TAKEN_OVER:
            self._ties[self._broker] = self.options.of_streamer is not None
            logger.error(
                "session_taken_over endpoint=%s client_id=%s hint='another client uses the same client id'",
                self.context.name,
                self._client_id,
            )
        connection.is_ended_by_broker = int(reason) in _OVER_A_MESSAGE
        failure = LinkFailure.AUTHENTICATION if int(reason) in _NO_RIGHTS else LinkFailure.BROKER
        connection.close(f"the broker disconnected: {named(reason)}", failure)

    def _on_lost(self, connection: Connection) -> None:
        if connection is self._traffic.connection:
            self._traffic.connection = None
            self._carried = self._carried.plus(connection.carried or NO_BYTES)
            self.subscribing.disconnected()
            if self._will is not None and self._session.is_connected:
                self._will.lost(connection.last_read_s)
            # A connection that was not accepted says nothing about the messages sent on the one before.
            was_connected = self._session.is_connected
            lived_s = asyncio.get_running_loop().time() - self._connected_s
            is_ended_by_broker = connection.is_ended_by_broker and was_connected
            if self._session.has_timed_out and self._session.head is not None:
                message = self._session.head[0].message
                ends = message.attributes.source, message.attributes.sink
                text = "message_not_confirmed endpoint=%s id=%s source=%s sink=%s broker_answers=%s"
                logger.warning(text, self.context.name, format_id(message.id), *ends, self._session.is_alive)
            self._session.disconnected(lived_s if is_ended_by_broker else None)
            if suspects := self._session.search.suspects:
                text = "connection_ended_over_a_message endpoint=%s suspects=%d consequence=%s"
                logger.warning(text, self.context.name, suspects, "they are sent one at a time to find out which")
            if self._task is not None and not (was_connected and self._choice.is_returning):  # the end was not ours
                ended = connection.failure, connection.reason
                self._failed(*(ended if was_connected else self._why_not_accepted(connection)))
            self.set_state(LinkState.DOWN, connection.reason)
            self._is_culprit_found = self._session.report_culprit()

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        self.subscribing.open(self._filters(source, sink))

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        self.subscribing.close(self._filters(source, sink))

    def _filters(self, source: UUri, sink: UUri | None) -> tuple[str, ...]:
        return filters_for(source, sink, self.options.topics, self.context.authority, self.options.share)


def _refusal(packet: mqtt5.ConnAckPacket) -> tuple[LinkFailure, str]:
    """Return the reason and the text for a CONNACK that refuses a connection."""
    reason = int(packet.reason_code)
    meaning = f": {_REFUSED[reason]}" if reason in _REFUSED else ""
    failure = LinkFailure.AUTHENTICATION if reason in _NO_RIGHTS else LinkFailure.BROKER
    return failure, f"the broker refused: {named(packet.reason_code)}, {connack_code(reason).name}{meaning}"
