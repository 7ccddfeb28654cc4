"""uProtocol over UDP: one datagram is one UMessage in protobuf form."""

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict

from streamer.transports.base import Done, LinkState, ListenerOptions, Parcel, Received
from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.listening import ListeningTransport
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto, message_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import check_id


class UdpOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    port: int
    peer_port: int
    listeners: ListenerOptions = ListenerOptions()  # limits on listeners: every ListeningTransport has them


class UdpTransport(ListeningTransport, asyncio.DatagramProtocol):
    kind = "udp"
    Options = UdpOptions
    _socket: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        here, there = ("127.0.0.1", self.options.port), ("127.0.0.1", self.options.peer_port)
        self._socket, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, here, there)
        self.set_state(LinkState.UP)  # from now on `submit` is called

    async def stop(self) -> None:
        self.set_state(LinkState.DOWN)
        if self._socket is not None:
            self._socket.close()

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to subscribe to: everything that is sent to the port arrives."""

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        """Nothing to unsubscribe from."""

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        for parcel in parcels:
            self._socket.sendto(message_to_proto(parcel.message).SerializeToString())
        done(parcels, None)  # UDP confirms nothing; else: when the confirmation comes, or with a SendError

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        try:
            message = message_from_proto(pb.UMessage.FromString(data))
            check_id(message.id)
        except (DecodeError, ValueError) as exc:
            self.context.on_malformed(MalformedPacketError(Malformed.PACKET, str(exc)))
        else:
            self.registry.deliver((Received(message),))  # override Received.acknowledge to confirm to the sender
