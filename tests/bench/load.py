"""Load for the benchmark: one process per side, so that none of it counts as the subject's CPU.

``python -m tests.bench.load ROLE ...`` prints one JSON line when it is ready and one with its result at the end. The
first 8 bytes of a payload are the sender's monotonic clock in nanoseconds (one machine, one clock).
"""

import argparse
import asyncio
import json
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import mqtt5
import uvloop
import zenoh

from streamer.transports.mqtt5 import wire as mqtt_wire
from streamer.transports.zenoh import wire as zenoh_wire
from streamer.uprotocol.message import UMessage, UMessageType, publish
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.zenoh_peers import open_peer

FLOWS = 16
VEHICLE = [UUri("veh1", 0x100 + n, 1, 0x8001) for n in range(FLOWS)]
CLOUD = [UUri("cloud", 0x100 + n, 1, 0x8001) for n in range(FLOWS)]
WINDOW = 1000
IDLE_S = 5.0


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def message_maker(sources: list[UUri], sink: str | None, size: int) -> Callable[[int], UMessage]:
    """Messages of `FLOWS` flows, in turn."""
    now_ms = time.time_ns() // 1_000_000
    templates = [publish(now_ms, source).attributes for source in sources]
    if sink is not None:
        templates = [type(t)(UMessageType.PUBLISH, t.source, everything_at(sink)) for t in templates]
    padding = b"x" * (size - 8)

    def make(number: int) -> UMessage:
        payload = struct.pack(">Q", time.monotonic_ns()) + padding
        return UMessage(new_id(time.time_ns() // 1_000_000), templates[number % FLOWS], payload)

    return make


class Arrivals:
    """Counts what arrives and keeps the latencies."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.latencies_ns: list[int] = []
        self.first_ns = 0
        self.last_ns = 0

    def add(self, payload: bytes) -> None:
        now_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.latencies_ns.append(now_ns - struct.unpack_from(">Q", payload)[0])

    @property
    def is_complete(self) -> bool:
        return len(self.latencies_ns) >= self.expected

    def result(self) -> dict[str, float]:
        ordered = sorted(self.latencies_ns) or [0]
        return {
            "arrived": len(self.latencies_ns),
            "seconds": (self.last_ns - self.first_ns) / 1e9,
            "p50_ms": ordered[len(ordered) // 2] / 1e6,
            "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e6,
        }


class MqttPeer(asyncio.Protocol):
    """A bare MQTT 5 client: sends with a window of unconfirmed messages, acknowledges what it gets."""

    def __init__(self, arrivals: Arrivals | None, subscribe: str | None) -> None:
        self.arrivals = arrivals
        self.subscribe = subscribe
        self.ready = asyncio.Event()
        self.progress = asyncio.Event()
        self.unconfirmed = 0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one only in what it does
        self.transport = transport
        packet = mqtt5.ConnectPacket(f"bench-{time.monotonic_ns()}", keep_alive=60, receive_max=WINDOW)
        transport.write(packet.write())

    def data_received(self, data: bytes) -> None:
        view = memoryview(self.rest + data if self.rest else data)
        at = 0
        acks = bytearray()
        while at < len(view):
            try:
                packet, size = mqtt5.read(view[at:])
            except IndexError:
                break
            at += size
            if isinstance(packet, mqtt5.PublishPacket):
                assert packet.packet_id is not None
                assert self.arrivals is not None
                acks += b"\x40\x02" + packet.packet_id.to_bytes(2, "big")
                self.arrivals.add(packet.payload)
            elif isinstance(packet, mqtt5.PubAckPacket):
                self.unconfirmed -= 1
            elif isinstance(packet, mqtt5.ConnAckPacket):
                if self.subscribe:
                    wanted = mqtt5.TopicFilter(self.subscribe, max_qos=mqtt5.QoS.AT_LEAST_ONCE)
                    self.transport.write(mqtt5.SubscribePacket(1, [wanted]).write())
                else:
                    self.ready.set()
            else:
                self.ready.set()
        self.rest = bytes(view[at:])
        if acks:
            self.transport.write(bytes(acks))
        self.progress.set()


async def mqtt_send(port: int, count: int, rate: float, size: int) -> None:
    _, peer = await asyncio.get_running_loop().create_connection(lambda: MqttPeer(None, None), "127.0.0.1", port)
    await peer.ready.wait()
    make = message_maker(CLOUD, "veh1", size)
    encoder = mqtt_wire.Encoder("off-vehicle", "cloud")
    say(ready=True)
    await asyncio.to_thread(sys.stdin.readline)
    begin = time.monotonic()
    sent = 0
    while sent < count:
        allowed = count if not rate else min(count, int((time.monotonic() - begin) * rate) + 1)
        burst = min(allowed - sent, WINDOW - peer.unconfirmed, 64)
        if burst <= 0:
            if allowed > sent:
                peer.progress.clear()
                await peer.progress.wait()
            else:
                await asyncio.sleep(0.0005)
            continue
        packets = [encoder.encode(make(sent + n), (sent + n) % 65535 + 1, False) for n in range(burst)]
        peer.transport.write(b"".join(packets))
        peer.unconfirmed += burst
        sent += burst
        await asyncio.sleep(0)
    while peer.unconfirmed:
        peer.progress.clear()
        await peer.progress.wait()
    say(sent=sent)


async def mqtt_receive(port: int, count: int) -> None:
    arrivals = Arrivals(count)
    factory = lambda: MqttPeer(arrivals, "veh1/+")  # noqa: E731
    _, peer = await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", port)
    await peer.ready.wait()
    say(ready=True)
    while not arrivals.is_complete:
        peer.progress.clear()
        try:
            await asyncio.wait_for(peer.progress.wait(), IDLE_S + 10 * (arrivals.first_ns == 0))
        except TimeoutError:
            break
    say(**arrivals.result())


def zenoh_send(endpoint: str, count: int, rate: float, size: int) -> None:
    session = open_peer(listen=[endpoint])
    make = message_maker(VEHICLE, None, size)
    say(ready=True)
    sys.stdin.readline()
    keys = [session.declare_keyexpr(zenoh_wire.key_for(make(n).attributes, "veh1")) for n in range(FLOWS)]
    begin = time.monotonic()
    for number in range(count):
        while rate and number > (time.monotonic() - begin) * rate:
            time.sleep(0.0005)
        message = make(number)
        session.put(
            keys[number % FLOWS],
            message.payload,
            attachment=zenoh_wire.encode_attachment(message),
            congestion_control=zenoh.CongestionControl.BLOCK,
        )
    say(sent=count)
    sys.stdin.readline()
    session.close()


def zenoh_receive(endpoint: str, count: int) -> None:
    session = open_peer(listen=[endpoint])
    arrivals = Arrivals(count)
    subscriber = session.declare_subscriber("up/**", zenoh.handlers.FifoChannel(10_000))
    say(ready=True)
    idle_since = time.monotonic()
    while not arrivals.is_complete and time.monotonic() - idle_since < IDLE_S + 10 * (arrivals.first_ns == 0):
        sample = subscriber.try_recv()
        if sample is None:
            time.sleep(0.0002)
            continue
        idle_since = time.monotonic()
        arrivals.add(sample.payload.to_bytes())
    say(**arrivals.result())
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["mqtt-send", "mqtt-receive", "zenoh-send", "zenoh-receive"])
    parser.add_argument("--port", type=int)
    parser.add_argument("--endpoint")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--size", type=int, default=256)
    a = parser.parse_args()
    if a.role == "mqtt-send":
        uvloop.run(mqtt_send(a.port, a.count, a.rate, a.size))
    elif a.role == "mqtt-receive":
        uvloop.run(mqtt_receive(a.port, a.count))
    elif a.role == "zenoh-send":
        zenoh_send(a.endpoint, a.count, a.rate, a.size)
    else:
        zenoh_receive(a.endpoint, a.count)


if __name__ == "__main__":
    main()
