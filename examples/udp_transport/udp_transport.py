"""uProtocol over UDP as a transport of uStreamer: each datagram is one UMessage in protobuf form.

UDP confirms nothing: here "delivered" means no more than that a datagram has left.
"""

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from pydantic import Field

from streamer.transports.base import (
    Done,
    LinkState,
    Parcel,
    Received,
    TransportContext,
    WireOptions,
)
from streamer.transports.errors import LinkLostError, Malformed, MalformedPacketError, PermanentError, check_token
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto, message_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import check_id

MAX_DATAGRAM_BYTES = 65_507


class UdpOptions(WireOptions):
    """Where to receive and where to send."""

    host: str = "127.0.0.1"
    """The address to receive on."""
    port: int = Field(ge=1, le=65_535)
    """The port to receive on."""
    peer_host: str = "127.0.0.1"
    """The address to send to."""
    peer_port: int = Field(ge=1, le=65_535)
    """The port to send to."""


class UdpTransport(ListeningTransport, asyncio.DatagramProtocol):
    """One socket, between one address here and one there."""

    kind = "udp"
    Options = UdpOptions

    def __init__(self, context: TransportContext, options: UdpOptions) -> None:
        super().__init__(context, options)
        self.options: UdpOptions = options
        self._socket: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        """Open the socket. Raises OSError if the port is taken, which ends the daemon: waiting would not help."""
        here, there = (self.options.host, self.options.port), (self.options.peer_host, self.options.peer_port)
        self._socket, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, here, there)
        self.set_state(LinkState.UP)  # from now on the router sends

    async def stop(self) -> None:
        """Close the socket. There is nothing to give back, because `submit` keeps nothing."""
        self.set_state(LinkState.DOWN)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to do: everything that is sent to the port arrives, and the listeners' filters are applied to it."""

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to do."""

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        """Send each message. A network with confirmations would call ``done`` later, when they come."""
        if self._socket is None:
            done(parcels, LinkLostError())
            return
        for parcel in parcels:
            data = message_to_proto(parcel.message).SerializeToString()
            if len(data) > MAX_DATAGRAM_BYTES:
                error = PermanentError(
                    UCode.RESOURCE_EXHAUSTED, f"a message of {len(data)} bytes; UDP takes {MAX_DATAGRAM_BYTES}"
                )
                done((parcel,), error)
            else:
                self._socket.sendto(data)
                done((parcel,), None)

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Deliver what has arrived, or count it as malformed."""
        self.context.events.packets_received(1)
        try:
            proto = pb.UMessage.FromString(data)
            if proto.attributes.ByteSize() > self.options.max_header_bytes:
                raise MalformedPacketError(Malformed.HEADER, "its attributes are larger than max_header_bytes")
            check_token(proto.attributes.token, self.options.max_token_bytes)
            message = message_from_proto(proto)
            check_id(message.id)
        except MalformedPacketError as exc:
            self.context.events.packet_malformed(exc)
        except (DecodeError, ValueError) as exc:
            self.context.events.packet_malformed(MalformedPacketError(Malformed.PACKET, str(exc)))
        else:
            self.registry.deliver((Received(message),))  # override Received.acknowledge to confirm to the sender
