"""Tests whether a broker accepts a connection: TCP, TLS, credentials.

The probe asks for a session of its own, and ends that. A broker that ties client ids to users gives it the streamer's
session instead, which `Trial` leaves unchanged, with all messages in it.
"""

import asyncio
import secrets
import socket
import ssl
from typing import Any

import mqtt5
from mqtt5 import DisconnectReasonCode, QoS

from streamer.files import in_thread
from streamer.transports.errors import ConfigurationError, MalformedPacketError
from streamer.transports.mqtt5.brokers import Broker, WebSocketError
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.dialing import attach, pass_proxy, read_way
from streamer.transports.mqtt5.frames import named, read
from streamer.transports.mqtt5.keep_alive import FAREWELL_S
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.subscriptions import NO_SHARING, NO_WILDCARDS
from streamer.transports.mqtt5.tunnel import ProxyError
from streamer.transports.probe import CONNECT_S, Answer, Verdict, cannot_tell, connect, ok, problem, reason

_ID_NOT_VALID = 0x85
_NOT_AUTHORIZED = 0x87
_NOT_ITS_OWN = (
    "; it gives the session of whoever has these credentials to the probe, so a streamer that runs was disconnected for a "
    "moment (no message is lost)"
)
_NO_TLS = "; does it speak TLS there, or plain MQTT (mqtt://)?"


def new_client_id() -> str:
    """Return a unique client id: with the streamer's id, the broker would end the streamer's connection."""
    return f"check{secrets.token_hex(8)}"  # every broker has to accept up to 23 letters and digits (MQTT 5, 3.1.3.1)


class Trial:
    """A connection on which a broker is asked for a session, and nothing else."""

    def __init__(self, options: Mqtt5Options) -> None:
        """``options`` are those of the streamer."""
        self._options = options
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.connection = Connection(options.max_packet_bytes, self._take, lambda is_writable: None, lambda connection: None)

    def _take(self, connection: Connection, frames: list[bytes]) -> bool:
        if not self._answer.done():
            try:
                self._answer.set_result(read(frames[0]))
            except MalformedPacketError as exc:
                self._answer.set_result(exc)
        return False

    async def ask(self, client_id: str, username: str | None, password: bytes | None) -> Any:
        """Send a CONNECT on the open connection, and disconnect. Return the first packet, or why it is none of MQTT 5.

        A session that was there stays with its messages, a new one ends. Raises ConnectionError if no answer comes.
        """
        options, connection, answer = self._options, self.connection, self._answer
        connection.write(
            mqtt5.ConnectPacket(
                client_id,
                username=username,
                password=password,
                clean_start=False,
                keep_alive=options.keep_alive_s,
                session_expiry_interval=options.session_expiry_s,
                receive_max=1,  # messages are not acknowledged, so they stay in the session
                max_packet_size=options.max_packet_bytes,
            ).write()
        )
        try:
            await asyncio.wait((answer, connection.lost), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionError(connection.reason)
            packet = answer.result()
            is_new = isinstance(packet, mqtt5.ConnAckPacket) and not packet.session_present
            connection.disconnect(DisconnectReasonCode.NORMAL_DISCONNECTION, "tried", 0 if is_new else None)
            await connection.wait_lost(FAREWELL_S)
            return packet
        finally:
            connection.abort("tried")


async def try_broker(options: Mqtt5Options, broker: Broker) -> Answer:
    """Connect to a broker as the streamer does, except for the client id, and disconnect."""
    try:
        username, password, way = await in_thread(lambda: (*options.credentials(), read_way(options, broker)))
    except ConfigurationError as exc:
        return problem(f"not tried: {exc.key}: {exc}")
    proxy = options.http_proxy
    where = broker.where if proxy is None else f"{broker.where} through the proxy {proxy.where}"
    try:
        link = await in_thread(lambda: connect(way.near.host, way.near.port), socket.socket.close)
    except OSError as exc:
        return problem(f"{where}: {'' if proxy is None else 'the proxy: '}{reason(exc)}")
    link.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await pass_proxy(way, link)
    except TimeoutError:
        link.close()
        return problem(f"{where}: the proxy does not answer within {CONNECT_S:g} s")
    except ProxyError as exc:
        link.close()
        return problem(f"{where}: {exc}")
    except BaseException:
        link.close()
        raise
    trial = Trial(options)
    try:
        await attach(way, trial.connection, sock=link)
    except (OSError, UnicodeError) as exc:
        link.close()
        if isinstance(exc, WebSocketError):
            return problem(f"{where}: {exc}")
        return problem(f"{where}: TLS: {_of_tls(exc)}{_NO_TLS if _is_no_tls(exc) else ''}")
    try:
        packet = await trial.ask(new_client_id(), username, password)
    except ConnectionError as exc:
        return problem(f"{where}: no answer to CONNECT: {exc}{_doubt(options, broker)}")
    found = _judged(where, packet, broker.uses_tls, username is not None or password is not None)
    if found.verdict is Verdict.OK and options.share is not None and not packet.shared_subscription_available:
        return problem(f"{where}: {NO_SHARING}")
    if found.verdict is Verdict.OK and not packet.wildcard_subscription_available:
        return problem(f"{where}: {NO_WILDCARDS}")
    return found


def _judged(where: str, packet: Any, is_encrypted: bool, has_credentials: bool) -> Answer:
    if not isinstance(packet, mqtt5.ConnAckPacket):
        return problem(f"{where}: {no_broker(packet)}")
    code = int(packet.reason_code)
    if code == _ID_NOT_VALID:
        return cannot_tell(f"{where}: the broker accepts only client ids that it knows, and the probe has one of its own")
    if code:
        hint = ", or it ties the user to a client id: the probe has one of its own" if code == _NOT_AUTHORIZED else ""
        return problem(f"{where}: the broker refused: {named(packet.reason_code)}{hint}")
    if packet.max_qos == QoS.AT_MOST_ONCE:
        return problem(f"{where}: the broker does not accept messages with QoS 1")
    accepted = [*(["TLS"] if is_encrypted else []), "the credentials" if has_credentials else "a client without credentials"]
    whose = _NOT_ITS_OWN if packet.session_present else ""
    return ok(f"{where}: the broker accepts {' and '.join(accepted)}{whose}")


def no_broker(answer: object) -> str:
    """Return what is wrong with an answer to CONNECT that is no CONNACK, as `Trial.ask` returns it."""
    why = f": {answer}" if isinstance(answer, MalformedPacketError) else ""
    return f"what answers there is not an MQTT 5 broker{why}"


def _doubt(options: Mqtt5Options, broker: Broker) -> str:
    """Return a hint for a broker that closes the connection: its reason can be lost with the connection."""
    if not broker.uses_tls:
        return "; does it want TLS there (mqtts://)?"
    return "; does it want a certificate (tls.cert_file)?" if options.tls.cert_file is None else ""


def _is_no_tls(exc: Exception) -> bool:
    return isinstance(exc, ConnectionError) or (isinstance(exc, ssl.SSLError) and exc.reason == "WRONG_VERSION_NUMBER")


def _of_tls(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {exc.verify_message}"
    if isinstance(exc, ssl.SSLError):
        return (exc.reason or type(exc).__name__).lower().replace("_", " ")
    return reason(exc) if isinstance(exc, OSError) else type(exc).__name__
