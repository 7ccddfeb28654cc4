"""Messages cross between an MQTT broker and the uProtocol SDK in Rust on Zenoh, in both directions."""

import asyncio
import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.brokers import Rumqttd
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain, uuid7
from tests.independent.mqtt import MqttSide
from tests.process import StreamerProcess
from tests.rust_peer import as_any, multicast, rust_peer  # noqa: F401  # a fixture
from tests.waiting import until


@pytest.mark.usefixtures("multicast")
async def test_publish_crosses_from_and_to_the_rust_sdk(tmp_path: Path) -> None:
    rust, cloud = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("rust", "cloud"))
    with Rumqttd() as broker:
        config = config_of(
            {
                "vehicle": endpoint_of("zenoh", rust, listen=["tcp/127.0.0.1:0"], scouting=True, uncertain_s=1),
                "cloud": endpoint_of("mqtt5", cloud, broker=broker.url, topics="off-vehicle"),
            },
            [
                {"from": "vehicle", "to": "cloud", "publish": [f"//{rust}/FFFFFFFF/FF/FFFF"]},
                {"from": "cloud", "to": "vehicle"},
            ],
        )
        async with (
            rust_peer(rust, cloud) as process,
            StreamerProcess(tmp_path, config),
            MqttSide(broker.port, "off-vehicle", [f"+/{cloud}"]) as side,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            heard = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
            down = Plain(1, (cloud, 0xA8000, 2, 0x8A50), payload=as_any("to Rust"), priority=4, payload_format=1)

            def say_it_again() -> bool:
                """Until Zenoh has told either side of the other one's subscriptions."""
                assert process.stdin is not None
                process.stdin.write("from Rust\n")
                process.stdin.flush()
                return bool(side.arrived)

            await until(say_it_again, within_s=20, what="a Publish from Rust")
            while not heard.done():
                await side.send([replace(down, id=uuid7()).addressed_to(rust)])
                await asyncio.wait([heard], timeout=0.2)
            assert json.loads(heard.result()) == "to Rust"
            arrived = side.arrived[0]
            assert arrived.source == (rust, 0x1A34B, 2, 0xB4C1)
            assert arrived.type == 1
            assert arrived.payload == as_any("from Rust")
            assert arrived.payload_format == 1
