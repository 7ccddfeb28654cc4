"""The Zenoh transport against the uProtocol SDK in Rust (`up-py-rs`)."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from streamer.transports.base import TransportContext
from streamer.transports.errors import LinkLostError
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.uprotocol.message import Options, UMessageType, UPayloadFormat, UPriority, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.listeners import RecordingListener
from tests.rust_peer import as_any, multicast, rust_peer  # noqa: F401  # a fixture

LATE_S = 60.0


@asynccontextmanager
async def ours(authority: str) -> AsyncIterator[ZenohTransport]:
    context = TransportContext("vehicle", authority)
    transport = ZenohTransport(context, ZenohOptions(listen=["tcp/127.0.0.1:0"], scouting=True))
    await transport.authenticate(UUri(authority, 4, 1, 0))
    await transport.start()
    try:
        yield transport
    finally:
        await transport.stop()


@pytest.mark.usefixtures("multicast")
async def test_publish_of_the_rust_sdk_arrives_with_its_attributes() -> None:
    gateway, rust = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("gateway", "rust"))
    inbox = RecordingListener()
    async with ours(gateway) as transport, rust_peer(rust, gateway) as process:
        await transport.register_listener(everything_at(rust), None, inbox)
        assert process.stdin is not None
        deadline = time.monotonic() + LATE_S
        while not inbox.messages:
            assert time.monotonic() < deadline, "nothing arrived from the Rust SDK"
            process.stdin.write("hello\n")
            process.stdin.flush()
            await asyncio.sleep(0.1)
    message = inbox.messages[0].check()
    attributes = message.attributes
    assert attributes.type is UMessageType.PUBLISH
    assert attributes.source == UUri(rust, 0x1A34B, 2, 0xB4C1)
    assert attributes.sink is None
    assert attributes.payload_format is UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
    assert message.payload == as_any("hello")
    assert abs(time.time() * 1000 - int.from_bytes(message.id[:6], "big")) < 60_000


@pytest.mark.usefixtures("multicast")
async def test_publish_of_ours_reaches_the_rust_sdk() -> None:
    gateway, rust = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("gateway", "rust"))
    topic = UUri(gateway, 0xA8000, 2, 0x8A50)
    options = Options(UPriority.CS3, ttl=60_000, payload_format=UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY)
    async with ours(gateway) as transport, rust_peer(rust, gateway) as process:
        assert process.stdout is not None
        line = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
        deadline = time.monotonic() + LATE_S
        while not line.done():
            assert time.monotonic() < deadline, "nothing arrived at the Rust SDK"
            plain = publish(time.time_ns() // 1_000_000, topic, as_any("to Rust"), options)
            # As the router hands it over: with the sink authority that a streamer sets. Rust would refuse it with one.
            attributes = replace(plain.attributes, sink=everything_at(rust))
            with suppress(LinkLostError):  # not found yet
                await transport.send(replace(plain, attributes=attributes))
            await asyncio.sleep(0.1)
        assert json.loads(line.result()) == "to Rust"
