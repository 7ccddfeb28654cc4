"""The floor: loops that decode, map, encode, send and acknowledge, and route nothing. What a router costs is on top.

``python -m tests.bench.raw up|down --port P --endpoint E``: ``down`` is MQTT → Zenoh, ``up`` is Zenoh → MQTT.
"""

import argparse
import asyncio
import threading
from typing import cast

import mqtt5
import uvloop
import zenoh

from streamer.transports.mqtt5 import wire as mqtt_wire
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.zenoh import wire as zenoh_wire
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.uri import everything_at
from tests.bench.load import WINDOW
from tests.bench.packets import Packets, puback
from tests.zenoh_peers import open_peer


class Down(asyncio.Protocol):
    """MQTT → Zenoh."""

    def __init__(self, session: zenoh.Session) -> None:
        self.session = session
        self.keys: dict[object, zenoh.KeyExpr] = {}
        self.decoder = PublishDecoder("off-vehicle", "gateway", 1024, Flows())
        self.packets = Packets()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one only in what it does
        self.transport = transport
        transport.write(mqtt5.ConnectPacket("raw", keep_alive=60, receive_max=WINDOW).write())
        wanted = mqtt5.TopicFilter("+/veh1", max_qos=mqtt5.QoS.AT_LEAST_ONCE)
        transport.write(mqtt5.SubscribePacket(1, [wanted]).write())

    def data_received(self, data: bytes) -> None:
        acks = bytearray()
        for packet in self.packets.read(data):
            if not isinstance(packet, mqtt5.PublishPacket):
                continue
            message = self.decoder.decode(packet)  # type: ignore[arg-type]  # the codec's packet has the same fields
            key = self.keys.get(message.attributes)
            if key is None:
                key = self.session.declare_keyexpr(zenoh_wire.key_for(message.attributes, "gateway"))
                self.keys[message.attributes] = key
            self.session.put(
                key,
                message.payload,
                attachment=zenoh_wire.encode_attachment(message),
                congestion_control=zenoh.CongestionControl.BLOCK,
            )
            acks += puback(packet)
        if acks:
            self.transport.write(bytes(acks))


class Up(asyncio.Protocol):
    """Zenoh → MQTT, pipelined."""

    def __init__(self, session: zenoh.Session) -> None:
        self.loop = asyncio.get_running_loop()
        self.encoder = mqtt_wire.Encoder("off-vehicle", "gateway")
        self.decoder = zenoh_wire.SampleDecoder("gateway", 8192, 1024, Flows())
        self.unconfirmed = 0
        self.next_id = 0
        self.packets = Packets()
        self.attributes: dict[Attributes, Attributes] = {}
        self.subscriber = session.declare_subscriber("up/**", zenoh.handlers.FifoChannel(10_000))
        self.handler = self.subscriber.handler
        self.again = threading.Event()
        self.first: list[zenoh.Sample] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one only in what it does
        self.transport = transport
        transport.write(mqtt5.ConnectPacket("raw", keep_alive=60).write())
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        while True:
            self.first.append(self.handler.recv())
            self.again.clear()
            self.loop.call_soon_threadsafe(self.drain)
            self.again.wait()

    def drain(self) -> None:
        packets: list[bytes] = []
        while self.unconfirmed < WINDOW and len(packets) < 256:
            sample = self.first.pop() if self.first else self.handler.try_recv()
            if sample is None:
                self.again.set()
                break
            message = self.decoder.message_of(sample)
            addressed = self.attributes.get(message.attributes)
            if addressed is None:
                addressed = type(message.attributes)(UMessageType.PUBLISH, message.attributes.source, everything_at("cloud"))
                self.attributes[message.attributes] = addressed
            self.next_id = self.next_id % 65535 + 1
            self.unconfirmed += 1
            packets.append(self.encoder.encode(UMessage(message.id, addressed, message.payload), self.next_id, False))
        else:
            if self.unconfirmed < WINDOW:
                self.loop.call_soon(self.drain)
            else:
                self.stalled = True
        if packets:
            self.transport.write(b"".join(packets))

    stalled = False

    def data_received(self, data: bytes) -> None:
        for packet in self.packets.read(data):
            if isinstance(packet, mqtt5.PubAckPacket):
                self.unconfirmed -= 1
        if self.stalled:
            self.stalled = False
            self.drain()


async def run(direction: str, port: int, endpoint: str) -> None:
    session = open_peer(connect=[endpoint])
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Down(session) if direction == "down" else Up(session), "127.0.0.1", port)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("direction", choices=["up", "down"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--endpoint", required=True)
    a = parser.parse_args()
    uvloop.run(run(a.direction, a.port, a.endpoint))
