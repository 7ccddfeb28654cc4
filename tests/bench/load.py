"""Load for the benchmark: one process per side, so that none of it counts as the subject's CPU.

``python -m tests.bench.load ROLE ...`` prints one JSON line when it is ready. Each line on its standard input is a phase:
``{"count": 1000, "rate": 500}``. It prints a line when the phase has begun, from when on a receiver counts, and one with
the result. Between phases a receiver takes what comes, and does not look at it. The first 8 bytes of a payload are the
sender's monotonic clock in nanoseconds (one machine, one clock), the next is a mark: a receiver may look at messages of one
mark only.
"""

import argparse
import asyncio
import json
import mmap
import select
import struct
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import mqtt5
import uvloop
import zenoh

from streamer.transports.mqtt5 import wire as mqtt_wire
from streamer.transports.zenoh import wire as zenoh_wire
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, UPriority, publish
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.bench.figures import percentile
from tests.bench.packets import Packets, puback
from tests.zenoh_peers import open_peer

FLOWS = 16
WINDOW = 1000
IDLE_S = 15.0  # a busy machine can hold everything up for seconds
_STAMP = struct.Struct(">Q")
_DECLARED = 1000  # keys that a sender declares; further ones are spelled out with each put
# Peers of one streamer do not find each other: what one sends would reach the other without it. And none gives up a link on
# which it is held back: what is on its way would be lost, and that is not what is measured.
_PATIENT_MS = 120_000
_PEER: dict[str, Any] = {
    "scouting__gossip__enabled": False,
    "transport__link__tx__lease": _PATIENT_MS,
    "transport__link__tx__queue__congestion_control__block__wait_before_close": _PATIENT_MS * 1000,
}


def source(authority: str, number: int) -> UUri:
    """The topic of a flow: entities with an instance for each of them once there are no more types."""
    instance, kind = divmod(number, 0xF000)
    return UUri(authority, instance << 16 | 0x100 + kind, 1, 0x8001)


VEHICLE = [source("veh1", n) for n in range(FLOWS)]


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def phase() -> tuple[int, float]:
    """The next phase: how many messages, how many a second; 0: as fast as they go. Ends the process if there is none.

    Say `begun` once everything is ready for it: from then on messages are sent.
    """
    line = sys.stdin.readline()
    if not line:
        raise SystemExit
    told = json.loads(line)
    return told["count"], told.get("rate", 0)


def begun() -> None:
    say(begun=True)


class Messages:
    """Messages of so many flows, in turn: Publishes that are addressed if there is a ``sink``."""

    def __init__(self, authority: str, sink: str | None, a: argparse.Namespace) -> None:
        self._authority, self._sink, self._first = authority, sink, a.first
        self._flows: int = a.flows
        self._options = Options(priority=UPriority(a.priority))
        self._size: int = a.size
        self._rest = (a.mark.encode() + b"x" * a.size)[: max(0, a.size - _STAMP.size)]
        self.attributes: Callable[[int], Attributes] = cache(self._attributes)

    def _attributes(self, flow: int) -> Attributes:
        made = publish(0, source(self._authority, self._first + flow), None, self._options).attributes
        if self._sink is None:
            return made
        return Attributes(UMessageType.PUBLISH, made.source, everything_at(self._sink), made.priority)

    def flow(self, number: int) -> int:
        return number % self._flows

    def make(self, number: int) -> UMessage:
        payload = _STAMP.pack(time.monotonic_ns()) + self._rest if self._size else b""
        return UMessage(new_id(time.time_ns() // 1_000_000), self.attributes(number % self._flows), payload)


class Progress:
    """How many messages of another mark have arrived, in a file that a receiver shares with their sender."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), _STAMP.size)

    @property
    def arrived(self) -> int:
        count: int = _STAMP.unpack_from(self._bytes)[0]
        return count

    @arrived.setter
    def arrived(self, count: int) -> None:
        _STAMP.pack_into(self._bytes, 0, count)


class Limit:
    """How many messages a sender may have on the way, from end to end, if that is bounded."""

    def __init__(self, a: argparse.Namespace) -> None:
        self._outstanding: int = a.outstanding
        self._progress = Progress(a.progress) if a.outstanding else None

    def room(self, sent: int) -> int:
        return WINDOW if self._progress is None else self._progress.arrived + self._outstanding - sent


class Arrivals:
    """Counts what arrives and keeps the latencies."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.mark = a.mark.encode()
        self.progress = Progress(a.progress) if a.progress else None
        self.begin(0)

    def begin(self, expected: int) -> None:
        self.expected = expected
        self.latencies_ns: list[int] = []
        self.first_ns = 0
        self.last_ns = time.monotonic_ns()

    def add(self, payload: bytes) -> None:
        if self.mark and payload[8:9] != self.mark:
            if self.progress is not None:
                self.progress.arrived += 1
            return
        now_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.latencies_ns.append(now_ns - _STAMP.unpack_from(payload)[0] if payload else 0)

    @property
    def is_complete(self) -> bool:
        return len(self.latencies_ns) >= self.expected

    @property
    def is_given_up(self) -> bool:
        """Whether nothing has come for long: less of course if it has not even begun."""
        patience_s = IDLE_S + 10 * (self.first_ns == 0)
        return time.monotonic_ns() - self.last_ns > patience_s * 1e9

    def result(self) -> dict[str, float]:
        return {
            "arrived": len(self.latencies_ns),
            "seconds": (self.last_ns - self.first_ns) / 1e9,
            "p50_ms": percentile(self.latencies_ns, 50) / 1e6,
            "p99_ms": percentile(self.latencies_ns, 99) / 1e6,
        }


class MqttPeer(asyncio.Protocol):
    """A bare MQTT 5 client: sends with a window of unconfirmed messages, acknowledges what it gets."""

    def __init__(self, arrivals: Arrivals | None, subscribe: str | None) -> None:
        self.arrivals = arrivals
        self.subscribe = subscribe
        self.ready = asyncio.Event()
        self.progress = asyncio.Event()
        self.unconfirmed = 0
        self.packets = Packets()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one only in what it does
        self.transport = transport
        packet = mqtt5.ConnectPacket(f"bench-{time.monotonic_ns()}", keep_alive=0, receive_max=WINDOW)
        transport.write(packet.write())

    def data_received(self, data: bytes) -> None:
        acks = bytearray()
        for packet in self.packets.read(data):
            if isinstance(packet, mqtt5.PublishPacket):
                assert self.arrivals is not None
                acks += puback(packet)
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
        if acks:
            self.transport.write(bytes(acks))
        self.progress.set()


async def _connected(port: int, arrivals: Arrivals | None = None, subscribe: str | None = None) -> MqttPeer:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: MqttPeer(arrivals, subscribe), "127.0.0.1", port)
    await peer.ready.wait()
    say(ready=True)
    return peer


async def mqtt_send(a: argparse.Namespace) -> None:
    messages, limit = Messages("cloud", "veh1", a), Limit(a)
    encoder = mqtt_wire.Encoder("off-vehicle", "cloud")
    peer = await _connected(a.port)
    number = 0
    while True:
        count, rate = await asyncio.to_thread(phase)
        begun()
        begin, sent = time.monotonic(), 0
        while sent < count:
            allowed = count if not rate else min(count, int((time.monotonic() - begin) * rate) + 1)
            burst = min(allowed - sent, limit.room(number), WINDOW - peer.unconfirmed, 64)
            if burst <= 0:
                await _pause(peer, peer.unconfirmed == WINDOW)
                continue
            packets = [encoder.encode(messages.make(n), n % 65535 + 1, False) for n in range(number, number + burst)]
            peer.transport.write(b"".join(packets))
            peer.unconfirmed += burst
            number += burst
            sent += burst
            await asyncio.sleep(0)
        while peer.unconfirmed:
            await _pause(peer, True)
        say(sent=sent)


async def _pause(peer: MqttPeer, is_full: bool) -> None:
    """Until something is confirmed, if the window is full; else until it is time for the next message."""
    if is_full:
        peer.progress.clear()
        await peer.progress.wait()
    else:
        await asyncio.sleep(0.0005)


async def mqtt_receive(a: argparse.Namespace) -> None:
    arrivals = Arrivals(a)
    peer = await _connected(a.port, arrivals, a.topics)
    while True:
        count, _ = await asyncio.to_thread(phase)
        arrivals.begin(count)
        begun()
        while not arrivals.is_complete and not arrivals.is_given_up:
            peer.progress.clear()
            try:
                async with asyncio.timeout(1):
                    await peer.progress.wait()
            except TimeoutError:
                continue
        say(**arrivals.result())


class Links:
    """How many links to other nodes a session has lost."""

    def __init__(self, session: zenoh.Session) -> None:
        self.lost = 0
        self._events = session.info.declare_transport_events_listener(self._on_event)

    def _on_event(self, event: zenoh.TransportEvent) -> None:
        self.lost += event.kind == zenoh.SampleKind.DELETE


def zenoh_send(a: argparse.Namespace) -> None:
    session = open_peer(listen=[a.endpoint], **_PEER)
    links = Links(session)
    messages, limit = Messages("veh1", None, a), Limit(a)
    priority = zenoh_wire.PRIORITIES[messages.attributes(0).priority_class]

    @cache
    def key(flow: int) -> zenoh.KeyExpr:
        text = zenoh_wire.key_for(messages.attributes(flow), "veh1")
        return session.declare_keyexpr(text) if flow < _DECLARED else zenoh.KeyExpr(text)

    say(ready=True)
    number = 0
    while True:
        count, rate = phase()
        begun()
        begin = time.monotonic()
        for sent in range(count):
            while (rate and sent > (time.monotonic() - begin) * rate) or limit.room(number) <= 0:
                time.sleep(0.0005)
            message = messages.make(number)
            session.put(
                key(messages.flow(number)),
                message.payload,
                attachment=zenoh_wire.encode_attachment(message),
                congestion_control=zenoh.CongestionControl.BLOCK,
                priority=getattr(zenoh.Priority, priority),
            )
            number += 1
        say(sent=count, links_lost=links.lost)


def zenoh_receive(a: argparse.Namespace) -> None:
    session = open_peer(listen=[a.endpoint], **_PEER)
    arrivals = Arrivals(a)
    subscriber = session.declare_subscriber("up/**", zenoh.handlers.FifoChannel(10_000))
    say(ready=True)
    while True:
        while not select.select([sys.stdin], [], [], 0.001)[0]:
            while subscriber.try_recv() is not None:
                pass
        count, _ = phase()
        arrivals.begin(count)
        begun()
        while not arrivals.is_complete:
            sample = subscriber.try_recv()
            if sample is not None:
                arrivals.add(sample.payload.to_bytes())
            elif arrivals.is_given_up:
                break
            else:
                time.sleep(0.0002)
        say(**arrivals.result())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["mqtt-send", "mqtt-receive", "zenoh-send", "zenoh-receive"])
    parser.add_argument("--port", type=int)
    parser.add_argument("--endpoint")
    parser.add_argument("--topics", default="veh1/+", help="what an MQTT receiver subscribes to")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--flows", type=int, default=FLOWS)
    parser.add_argument("--first", type=int, default=0, help="number of the first flow")
    parser.add_argument("--priority", type=int, default=0, help="1 to 7: CS0 to CS6")
    parser.add_argument("--mark", default="", help="a character: what is sent has it, and what has another is not looked at")
    parser.add_argument(
        "--outstanding", type=int, default=0, help="messages that have been sent and have not arrived, at most"
    )
    parser.add_argument("--progress", type=Path, help="file with the number of arrivals of another mark")
    a = parser.parse_args()
    if a.role == "mqtt-send":
        uvloop.run(mqtt_send(a))
    elif a.role == "mqtt-receive":
        uvloop.run(mqtt_receive(a))
    elif a.role == "zenoh-send":
        zenoh_send(a)
    else:
        zenoh_receive(a)


if __name__ == "__main__":
    main()
