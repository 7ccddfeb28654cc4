"""Two streamers in a row on real brokers and Zenoh: what a broker drops is named, and an orderly day is quiet.

vehicle (Zenoh) ─ gw ─ broker ─ relay, which may drop ─ broker ─ hub ─ broker ─ cloud
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from tests.brokers import Mosquitto
from tests.independent.message import Plain, id_text
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.mqtt_peer import meanwhile
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

pytestmark = [pytest.mark.mosquitto, pytest.mark.long, pytest.mark.timeout(560)]

SENSOR = ("veh1", 0xA8000, 2, 0x8A50)
APP = ("cloud", 0xC0, 1, 0)


class Relay:
    """Carries everything from one broker to another, but for the payloads that it drops."""

    def __init__(self, first: Mosquitto, second: Mosquitto) -> None:
        self._ports = first.port, second.port
        self.drops: set[bytes] = set()
        self.dropped = 0

    async def run(self) -> None:
        first, second = (aiomqtt.Client(HOST, port, protocol=aiomqtt.ProtocolVersion.V5) for port in self._ports)
        async with first, second:
            await first.subscribe("#", qos=1)
            async for message in first.messages:
                if message.payload in self.drops:
                    self.dropped += 1
                else:
                    await second.publish(str(message.topic), message.payload, 1, properties=message.properties)


class Chain:
    def __init__(self, relay: Relay, streamers: list[StreamerProcess], vehicle: ZenohSide, cloud: MqttSide) -> None:
        self.relay = relay
        self.streamers = streamers
        self.vehicle = vehicle
        self.cloud = cloud
        self.number = 0

    @property
    def hub(self) -> StreamerProcess:
        return self.streamers[-1]

    async def notify(self, payload: bytes = b"x") -> Plain:
        message = Plain(4, SENSOR, APP, payload)
        await self.vehicle.send([message])
        self.number += 1
        return message

    async def arrived(self, message: Plain) -> None:
        await until(lambda: message.id in [each.id for each in self.cloud.arrived], within_s=60, what="arrival")

    async def tell(self, seconds: float) -> None:
        """Notify once a second, for so long."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await self.arrived(await self.notify())
            await asyncio.sleep(1)

    def audit(self) -> dict[str, Any]:
        status, body = self.hub.get("/api/v1/live-audit")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found


def zenoh(endpoint: str, authorities: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"mode": "peer", "uncertain_s": 1, "connect": [endpoint]}
    return {"transport": "zenoh", "authorities": authorities, "options": options}


def mqtt(broker: Mosquitto, authorities: list[str], name: str) -> dict[str, Any]:
    options = {"broker": broker.url, "topics": "off-vehicle", "client_id": name}
    return {"transport": "mqtt5", "authorities": authorities, "options": options}


def streamer(directory: Path, authority: str, down: Any, up: Any, to: str | None) -> StreamerProcess:
    (directory / authority).mkdir()
    return StreamerProcess(
        directory / authority,
        {
            "authority": authority,
            "endpoints": {"down": down, "up": up},
            "routes": [{"from": "down", "to": "up"}, {"from": "up", "to": "down"}],
            "usubscription": None,
            "live_audit": {"every_s": 1} | ({} if to is None else {"to": to}),
        },
    )


@pytest.fixture
async def chain(tmp_path: Path) -> AsyncIterator[Chain]:
    async with AsyncExitStack() as stack:
        first, second, last = (stack.enter_context(Mosquitto()) for _ in range(3))
        relay = Relay(first, second)
        await stack.enter_async_context(meanwhile(relay.run()))
        sensor = free_endpoint()
        vehicle = await stack.enter_async_context(ZenohSide(listen=[sensor]))
        cloud = await stack.enter_async_context(MqttSide(last.port, "off-vehicle", ["+/cloud"]))
        streamers = [streamer(tmp_path, "gw", zenoh(sensor, ["veh1"]), mqtt(first, ["*"], "gw"), "hub")]
        behind = mqtt(second, ["veh1", "gw"], "next")
        streamers.append(streamer(tmp_path, "hub", behind, mqtt(last, ["*"], "hub"), None))
        await asyncio.gather(*map(stack.enter_async_context, streamers))  # each is up once its neighbour is there
        yield Chain(relay, streamers, vehicle, cloud)


async def test_what_a_broker_drops_is_named_and_nothing_else(chain: Chain) -> None:
    senders = len(chain.streamers) - 1
    await chain.arrived(await chain.notify())
    await until(lambda: chain.audit()["streamers"] == senders, within_s=120, what="rows of every streamer")
    await chain.tell(170)  # until everybody is sure (`SETTLE_S`)
    chain.relay.drops = {b"lost"}
    lost = await chain.notify(b"lost")
    await until(lambda: chain.relay.dropped == 1, within_s=30, what="the loss")

    def is_named() -> bool:
        return any(found["verdict"] == "lost" for found in chain.audit()["findings"])

    await until(is_named, within_s=240, what="the name of the lost message")
    (found,) = [found for found in chain.audit()["findings"] if found["verdict"] in ("lost", "twice")]
    assert (found["streamer"], found["class"], found["id"]) == ("gw", "veh1 to cloud", id_text(lost.id))
    assert id_text(lost.id) in chain.hub.log
    assert chain.hub.total("ustreamer_live_audit_messages_total", verdict="lost") == 1
    assert chain.hub.total("ustreamer_live_audit_messages_total", verdict="equal") > 100
