"""Calls through the streamer, in both directions: how long after its Request the Response is back.

    python -m tests.bench.calls

One call at a time, then one every 5 ms, through each broker of the tests as it comes, and through mosquitto without Nagle's
algorithm. Beside the streamer stands a raw loop, which maps each message, and leaves TCP as it comes. Medians of the rounds.
"""

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import mqtt5
import uvloop
import zenoh

from streamer.transports.mqtt5 import wire as mqtt_wire
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.zenoh.wire import SampleDecoder
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage, UMessageType, request, response
from streamer.uprotocol.uri import UUri
from tests.bench.figures import percentile, plain, spread
from tests.bench.forms import NAMES, Child, say, streamers
from tests.bench.packets import Packets, puback
from tests.bench.run import Streamer, configuration
from tests.brokers import BrokerProcess, Mosquitto, Rumqttd
from tests.ports import HOST, free_port
from tests.zenoh_peers import open_peer, put

TTL_MS = 10_000
_ATTEMPTS = 60
BROKERS: dict[str, Callable[[], BrokerProcess]] = {
    "mosquitto": Mosquitto,
    "mosquitto, set_tcp_nodelay": partial(Mosquitto, extra=("set_tcp_nodelay true",)),
    "rumqttd": Rumqttd,
}
WAYS = {"up": ("veh1", "cloud"), "down": ("cloud", "veh1")}
"""The authorities of the caller and of the service."""
PACES = {"one at a time": 0.0, "every 5 ms": 0.005}

OnMessage = Callable[[UMessage], None]


class MqttEnd(asyncio.Protocol):
    """A client of the broker that sends messages, and passes on those for an authority."""

    def __init__(self, own: str, wanted: str, on_message: OnMessage, is_prompt: bool = True) -> None:
        """``is_prompt``: its TCP acknowledges at once, so that no delay which is measured comes from here."""
        self._is_prompt = is_prompt
        self.ready = asyncio.Event()
        self._wanted = wanted
        self._on_message = on_message
        self._encoder = mqtt_wire.Encoder("off-vehicle", own)
        self._decoder = PublishDecoder("off-vehicle", own, 1024, Flows())
        self._packets = Packets()
        self._last_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one only in what it does
        self._socket = transport.get_extra_info("socket")
        self._transport.write(mqtt5.ConnectPacket(f"calls-{time.monotonic_ns()}", keep_alive=60).write())

    def send(self, message: UMessage) -> None:
        self._last_id = self._last_id % 65_535 + 1
        self._transport.write(self._encoder.encode(message, self._last_id, False))

    def data_received(self, data: bytes) -> None:
        if self._is_prompt:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        for packet in self._packets.read(data):
            if isinstance(packet, mqtt5.PublishPacket):
                self._transport.write(puback(packet))
                self._on_message(self._decoder.decode(packet))  # type: ignore[arg-type]  # it has the same fields
            elif isinstance(packet, mqtt5.ConnAckPacket):
                wanted = mqtt5.TopicFilter(f"+/{self._wanted}", max_qos=mqtt5.QoS.AT_LEAST_ONCE)
                self._transport.write(mqtt5.SubscribePacket(1, [wanted]).write())
            elif isinstance(packet, mqtt5.SubAckPacket):
                self.ready.set()


class ZenohEnd:
    """A Zenoh peer that sends messages, and passes on those from one authority to another."""

    def __init__(self, keys: str, on_message: OnMessage, **where: Any) -> None:
        self._session = open_peer(**where)
        loop, decoder = asyncio.get_running_loop(), SampleDecoder("", 8192, 1024, Flows())

        def hear(sample: zenoh.Sample) -> None:
            loop.call_soon_threadsafe(lambda: on_message(decoder.message_of(sample)))

        self._subscriber = self._session.declare_subscriber(keys, hear)

    def send(self, message: UMessage) -> None:
        put(self._session, message)

    def close(self) -> None:
        self._session.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Calls:
    """A caller and a service, each at its end: calls the method, and notes how long each answer takes."""

    def __init__(self, way: str) -> None:
        caller, service = WAYS[way]
        self._caller, self._method = UUri(caller, 0xA, 1, 0), UUri(service, 0xA, 1, 7)
        self._open: dict[bytes, tuple[float, asyncio.Future[float]]] = {}
        self.call: OnMessage = lambda message: None
        self.answer: OnMessage = lambda message: None

    def take(self, message: UMessage) -> None:
        """Answer a Request; note a Response."""
        if message.attributes.type is UMessageType.REQUEST:
            self.answer(response(now_ms(), message, b"fine"))
        elif (found := self._open.pop(message.attributes.reqid or b"", None)) is not None and not found[1].done():
            found[1].set_result((time.perf_counter() - found[0]) * 1000)

    def begin(self) -> asyncio.Future[float]:
        """Call the method; the result is how long it took, in ms."""
        message = request(now_ms(), self._caller, self._method, TTL_MS, b"how are you?")
        answered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._open[message.id] = time.perf_counter(), answered
        self.call(message)
        return answered

    async def warm_up(self) -> None:
        """Call until an answer comes: routes and subscriptions spread. Raises RuntimeError if none comes."""
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(1):
                    await self.begin()
            except TimeoutError:
                continue
            return
        raise RuntimeError("no call is answered")

    async def run(self, count: int, pause_s: float) -> list[float]:
        """Make so many calls, each after the answer to the one before or after a pause; return how long each took, in ms."""
        answers = []
        for _ in range(count):
            answers.append(self.begin())
            await (asyncio.sleep(pause_s) if pause_s else answers[-1])
        async with asyncio.timeout(TTL_MS / 1000):
            return list(await asyncio.gather(*answers))


async def raw(port: int, endpoint: str) -> None:
    """Map each message from one network to the other. The floor."""
    ends: list[Any] = []
    zenoh_end = ZenohEnd("up/veh1/**", lambda message: ends[0].send(message), connect=[endpoint])
    loop = asyncio.get_running_loop()
    _, mqtt_end = await loop.create_connection(lambda: MqttEnd("gateway", "veh1", zenoh_end.send, False), "127.0.0.1", port)
    ends.append(mqtt_end)
    await mqtt_end.ready.wait()
    print("ready", flush=True)
    await asyncio.Event().wait()


def rust(directory: Path, port: int, endpoint: str) -> str:
    """Write the configuration of up-streamer-rust, and return its path."""
    zenoh_ends, mqtt_ends = (
        [{"authority": own, "endpoint": own, "forwarding": [other]}] for own, other in (("veh1", "cloud"), ("cloud", "veh1"))
    )
    mqtt = {"hostname": HOST, "port": port, "username": "", "session_expiry_interval": 60}
    mqtt |= {"max_buffered_messages": 100, "max_subscriptions": 100}
    peer = {"mode": "peer", "connect": {"endpoints": [endpoint]}, "scouting": {"multicast": {"enabled": False}}}
    paths = [str(directory / f"{name}.json5") for name in ("subscriptions", "zenoh", "mqtt", "streamer")]
    whole = {
        "up_streamer_config": {"message_queue_size": 10_000},
        "streamer_uuri": {"authority": "gateway", "ue_id": 78, "ue_version_major": 1},
        "usubscription_config": {"mode": "static_file", "file_path": paths[0]},
        "transports": {
            "zenoh": {"config_file": paths[1], "endpoints": zenoh_ends},
            "mqtt": {"config_file": paths[2], "endpoints": mqtt_ends},
        },
    }
    for path, content in zip(paths, ({}, peer, mqtt, whole), strict=True):
        Path(path).write_text(json.dumps(content))
    return paths[-1]


@contextmanager
def subject(name: str, port: int, endpoint: str) -> Iterator[None]:
    """The raw loop or a streamer, between the broker and the Zenoh peer. Another name is the program of up-streamer-rust."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        if "/" in name:
            child = Child("--config", rust(Path(directory), port, endpoint), program=name)
            if not any("READY" in line for line in iter(child.line, "")):
                raise RuntimeError(f"{name} does not start")
        elif name == "raw":
            child = Child("tests.bench.calls", "--raw", "--port", str(port), "--endpoint", endpoint)
            child.line()
        else:
            place = {"port": port, "admin": free_port(), "endpoints": [endpoint]}
            child = Streamer(name, directory, configuration(directory, place))
        try:
            yield
        finally:
            child.end()


async def measured(name: str, way: str, make: Callable[[], BrokerProcess], count: int) -> dict[str, list[float]]:
    """The milliseconds of each call of one subject, by pace."""
    calls, endpoint = Calls(way), f"tcp/127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        broker = stack.enter_context(make())
        vehicle = ZenohEnd("up/cloud/**", calls.take, listen=[endpoint])
        stack.callback(vehicle.close)
        loop = asyncio.get_running_loop()
        _, cloud = await loop.create_connection(lambda: MqttEnd("cloud", "cloud", calls.take), "127.0.0.1", broker.port)
        await cloud.ready.wait()
        calls.call, calls.answer = (vehicle.send, cloud.send) if way == "up" else (cloud.send, vehicle.send)
        stack.enter_context(subject(name, broker.port, endpoint))
        await calls.warm_up()
        return {pace: await calls.run(count, pause_s) for pace, pause_s in PACES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="calls of each round")
    parser.add_argument("--only", nargs="+", choices=BROKERS, default=list(BROKERS), help="these brokers")
    parser.add_argument("--rust", nargs=1, default=[], help="the program configurable-streamer, with its mode OffVehicle")
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.raw:
        uvloop.run(raw(a.port, a.endpoint))
        return
    found: dict[tuple[str, str, str, str], list[list[float]]] = {}
    for _ in range(a.rounds):
        for broker in a.only:
            for way in WAYS:
                for name in ("raw", *a.rust, *streamers()):
                    say(f"{broker}, {way}, {NAMES.get(name, name)}")
                    for pace, took_ms in uvloop.run(measured(name, way, BROKERS[broker], a.count)).items():
                        found.setdefault((broker, way, pace, name), []).append(took_ms)
    header = ["broker", "caller → service", "calls", "subject", "p50 ms", "p99 ms"]
    rows = [
        [
            broker,
            " → ".join(WAYS[way]),
            pace,
            NAMES.get(name, "Rust"),
            *(spread([percentile(each, p) for each in runs]) for p in (50, 99)),
        ]
        for (broker, way, pace, name), runs in sorted(found.items())
    ]
    print(*plain(header, rows), sep="\n")


if __name__ == "__main__":
    main()
