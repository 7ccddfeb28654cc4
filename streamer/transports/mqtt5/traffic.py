"""Moves messages between a session and the broker: handles each read, and writes each batch.

Every message passes through here, so this is a file of its own that may be compiled. There is one write per batch and one
delivery per read.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mqtt5 import DisconnectReasonCode

from streamer.transports.base import Done, Parcel, Received
from streamer.transports.errors import LinkLostError
from streamer.transports.events import TransportEvents
from streamer.transports.listeners import ListenerRegistry
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.frames import ProtocolError
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.session import Session
from streamer.uprotocol.message import UMessageType

_REQUEST: Final = UMessageType.REQUEST  # looking up a member of an enumeration is slow
_CALLS_S: Final = 10.0
"""For how long more packets are expected after a Request was sent, or a message has come."""

logger = logging.getLogger("ustreamer.mqtt5")


class Traffic:
    """Joins the session of the endpoint ``name`` with its intake, its listeners, and the current connection, if any.

    ``control`` gets every packet that is neither a message nor its confirmation, and the connection that it came on.
    ``is_ended_for_excess``: the connection was ended so that the broker sends the ignored messages again.
    """

    def __init__(
        self,
        name: str,
        session: Session,
        intake: PacketIntake,
        registry: ListenerRegistry,
        events: TransportEvents,
        receive_maximum: int,
        control: Callable[[Connection, bytes], None],
    ) -> None:
        self.connection: Connection | None = None
        self.is_ended_for_excess = False
        self.ping_answers = 0
        self._name = name
        self._session = session
        self._intake = intake
        self._registry = registry
        self._events = events
        self._receive_maximum = receive_maximum
        self._control = control
        self._reading: Connection | None = None  # the connection of the current read
        self._pass: Callable[[bytes], None] = self._pass_on  # the bound method, made once
        self._flush_is_due = False
        self._expects_until_s = 0.0  # by the loop's clock

    # -- sending

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send parcels, as `UTransport.submit`."""
        session = self._session
        if not session.is_connected:
            done(parcels, LinkLostError())
            return
        connection = self.connection
        if connection is not None:
            for parcel in parcels:  # before they are submitted: one that is refused is settled, and has no message then
                if parcel.message.attributes.type is _REQUEST:
                    self._expects_until_s = connection.now_s() + _CALLS_S
                    break
        session.submit(parcels, done)
        self.write_outgoing()
        if self.connection is not None and session.unconfirmed:
            self.connection.set_reading(True)  # the confirmations come behind packets that wait to be read

    def write(self, packet: bytes) -> None:
        """Write a packet, if there is a connection."""
        if self.connection is not None:
            self.connection.write(packet)

    def write_outgoing(self) -> None:
        """Write the packets that the session has to send now."""
        if self._session.has_outgoing:
            packets = self._session.take_outgoing()
            if self.connection is not None:
                self.connection.write(packets[0] if len(packets) == 1 else b"".join(packets))

    def on_writable(self, is_writable: bool) -> None:
        """Send waiting messages if the socket takes more bytes; stop sending if not."""
        self._session.is_writable = is_writable
        self._session.drain()
        self.write_outgoing()

    # -- receiving

    def on_frames(self, connection: Connection, read: list[bytes]) -> bool:
        """Handle the packets of one read. Return whether more are expected from the broker soon.

        They are while something is unconfirmed, and where a Response or the next Request may follow at any moment.
        """
        session, intake = self._session, self._intake
        overflowed = intake.overflows
        batch: list[Received] = []
        error: ProtocolError | None = None
        self._reading = connection
        try:
            intake.take(read, self._pass, batch)
        except ProtocolError as exc:
            error = exc
        if intake.overflows and not overflowed:
            text = "receive_maximum_exceeded endpoint=%s receive_maximum=%d unacknowledged=%d bytes=%d"
            unacknowledged = len(session.unacknowledged)
            logger.warning(text, self._name, self._receive_maximum, unacknowledged, session.unacknowledged_bytes)
        session.report_results()
        self.write_outgoing()
        if batch:
            self._expects_until_s = connection.last_read_s + _CALLS_S
            session.pressure.note_received(len(session.unacknowledged))
            self._registry.deliver(batch)
            if session.pressure.is_at_bound(len(session.unacknowledged)):
                self._events.acknowledgements_awaited()
        if intake.refused:
            refused, intake.refused = intake.refused, []
            self._events.messages_refused(refused)
        if intake.is_full and not session.unconfirmed:
            connection.set_reading(False)
        if error is not None:
            connection.disconnect(error.reason, str(error))
        return session.unconfirmed > 0 or connection.last_read_s < self._expects_until_s

    def _pass_on(self, frame: bytes) -> None:
        if self._reading is not None:
            self._control(self._reading, frame)

    # -- acknowledging

    def acknowledge_soon(self) -> None:
        """Schedule `flush`, after all packets of this iteration are delivered."""
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write the acknowledgements that are due, and resume reading if there is room."""
        self._flush_is_due = False
        connection = self.connection
        if connection is not None:
            data = self._session.take_acknowledgements()
            if data:
                connection.write(data)
            if self._intake.has_room(1):
                connection.set_reading(True)
            self._end_for_excess(connection)

    def _end_for_excess(self, connection: Connection) -> None:
        """End the connection if messages were ignored and there is room again, so that the broker redelivers them."""
        if self._intake.overflows and connection.is_open and self._intake.has_room(0.5):
            self.is_ended_for_excess = True
            connection.disconnect_gently(
                DisconnectReasonCode.RECEIVE_MAX_EXCEEDED,
                f"receive_maximum {self._receive_maximum} or its bytes exceeded: the broker has to resend what was ignored",
            )
