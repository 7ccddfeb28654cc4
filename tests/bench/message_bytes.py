"""How many bytes a message takes on the wire. ``python -m tests.bench.message_bytes``; needs mosquitto.

Sends `MESSAGES` messages through a transport, one at a time and then in batches, and divides what TCP has carried by
their number: bytes sent and received by the sender for one message, after the first ones.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamer.transports.base import NO_BYTES, UTransport
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.mqtt_peer import Endpoint
from tests.waiting import until
from tests.zenoh_peers import RawSubscriber, free_endpoint, now_ms, raw_peer, running, until_heard, until_up

MESSAGES, BATCH, SIZES = 500, 50, (64, 256)
TOPIC = UUri("veh1", 0xA8000, 2, 0x8A50)
FORMAT = Options(payload_format=UPayloadFormat.PROTOBUF)

Send = Callable[[list[UMessage]], Awaitable[None]]
"""Sends messages, and returns once they are confirmed, or have arrived."""


def messages(count: int, size: int, options: Options, sink: UUri | None) -> list[UMessage]:
    made = [publish(now_ms(), TOPIC, bytes(size), options) for _ in range(count)]
    addressed = replace(made[0].attributes, sink=sink)
    return [replace(each, attributes=addressed) for each in made]


async def measured(transport: UTransport, send: Send, size: int, batch: int, options: Options, sink: UUri | None) -> str:
    """Send, and return the bytes of one message."""
    await send(messages(4, size, options, sink))
    before = transport.report().wire_bytes or NO_BYTES
    for _ in range(0, MESSAGES, batch):
        await send(messages(batch, size, options, sink))
    after = transport.report().wire_bytes or NO_BYTES
    each = [(now - then) / MESSAGES for now, then in zip(after, before, strict=True)]
    return f"{each[0]:6.1f} sent, {each[1]:5.1f} received"


@asynccontextmanager
async def mqtt(server: Mosquitto, **options: Any) -> AsyncIterator[tuple[UTransport, Send]]:
    async with Endpoint(server.url, "veh1", keep_alive_s=600, **options).running() as car:
        await car.up()

        async def send(batch: list[UMessage]) -> None:
            before = len(car.confirmed)
            car.submit(batch)
            await until(lambda: len(car.confirmed) == before + len(batch))

        yield car.transport, send


@asynccontextmanager
async def zenoh() -> AsyncIterator[tuple[UTransport, Send]]:
    endpoint = free_endpoint()
    async with running(mode="peer", listen=[endpoint], authority="veh1") as vehicle:
        with raw_peer(connect=[endpoint]) as peer:
            subscriber = RawSubscriber(peer)
            await until_up(vehicle)
            await until_heard(vehicle, subscriber)

            async def send(batch: list[UMessage]) -> None:
                before = len(subscriber.poll())
                for each in batch:
                    vehicle.send(each)
                await until(lambda: len(subscriber.poll()) == before + len(batch))

            yield vehicle, send


async def show(name: str, transport: UTransport, send: Send, options: Options = FORMAT, sink: UUri | None = None) -> None:
    for size in SIZES:
        for batch in (1, BATCH):
            figures = await measured(transport, send, size, batch, options, sink)
            print(f"{name:44} {size:4} bytes, {batch:2} at a time: {figures}")  # its purpose


async def main() -> None:
    cloud = everything_at("cloud")
    with Mosquitto() as server:
        for topics, sink in (("in-vehicle", None), ("off-vehicle", cloud)):
            async with mqtt(server, topics=topics) as (transport, send):
                await show(f"mqtt5 {topics}", transport, send, FORMAT, sink)
                await show(f"mqtt5 {topics}, TTL 10 s", transport, send, FORMAT._replace(ttl=10_000), sink)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_certificates(folder)
        files = TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key", require_certificate=False)
        tls = {"ca_file": folder / "ca.pem"}
        with Mosquitto(tls=files) as server:
            async with mqtt(server, topics="off-vehicle", tls=tls) as (transport, send):
                await show("mqtt5 off-vehicle, TLS", transport, send, FORMAT, cloud)
    async with zenoh() as (transport, send):
        await show("zenoh", transport, send)
        await show("zenoh, TTL 10 s", transport, send, FORMAT._replace(ttl=10_000))


if __name__ == "__main__":
    asyncio.run(main())
