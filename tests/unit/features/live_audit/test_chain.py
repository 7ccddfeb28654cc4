"""Streamers in a row on real brokers and Zenoh: what a broker drops is named, and an orderly day is quiet.

vehicle (Zenoh) ─ gw ─ broker ─ relay, which may drop ─ broker ─ perhaps mid, and such a link again ─ hub ─ broker ─ cloud
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
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

pytestmark = [pytest.mark.mosquitto, pytest.mark.long, pytest.mark.timeout(400)]

SENSOR = ("veh1", 0xA8000, 2, 0x8A50)
AUTHORITIES = "first", "second"  # a class each; a message of the second one is lost on the second link
HURRIED = (sys.executable, "-m", "tests.unit.features.live_audit.hurried")


class Relay:
    """Carries everything from one broker to another, but for the payloads that it drops."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.near, self.far = (stack.enter_context(Mosquitto()) for _ in range(2))
        self.drops: set[bytes] = set()
        self.dropped = 0
        self.is_open = asyncio.Event()

    async def run(self) -> None:
        both = (aiomqtt.Client(HOST, each.port, protocol=aiomqtt.ProtocolVersion.V5) for each in (self.near, self.far))
        first, second = both
        async with first, second:
            await first.subscribe("#", qos=1)
            self.is_open.set()
            async for message in first.messages:
                if message.payload in self.drops:
                    self.dropped += 1
                else:
                    await second.publish(str(message.topic), message.payload, 1, properties=message.properties)


class Chain:
    def __init__(self, relays: list[Relay], streamers: list[StreamerProcess], vehicle: ZenohSide, cloud: MqttSide) -> None:
        self.relays = relays
        self.streamers = streamers
        self.vehicle = vehicle
        self.cloud = cloud

    @property
    def hub(self) -> StreamerProcess:
        return self.streamers[-1]

    async def notify(self, authority: str, payload: bytes = b"x", number: int = 1) -> list[Plain]:
        made = [Plain(4, SENSOR, (authority, 0xC0, 1, 0), payload) for _ in range(number)]
        await self.vehicle.send(made)
        return made

    async def notify_all(self, number: int) -> None:
        """Notify each authority, and wait until they have it all."""
        ids = {message.id for each in AUTHORITIES for message in await self.notify(each, number=number)}
        await until(lambda: ids <= {each.id for each in self.cloud.arrived}, within_s=120, what="arrival")

    def audit(self) -> dict[str, Any]:
        status, body = self.hub.get("/api/v1/live-audit")
        found: dict[str, Any] = json.loads(body) if status == 200 else {}
        return found

    async def audited(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until what the hub has found is as it should be."""
        deadline_s = time.monotonic() + 180
        while not ((found := await asyncio.to_thread(self.audit)) and condition(found)):
            assert time.monotonic() < deadline_s, (found, self.hub.log)
            await asyncio.sleep(0.2)  # it is asked over HTTP, and the relays have to run
        return found


def zenoh(endpoint: str, authorities: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"mode": "peer", "uncertain_s": 1, "connect": [endpoint]}
    return {"transport": "zenoh", "authorities": authorities, "options": options}


def mqtt(broker: Mosquitto, authorities: list[str], name: str) -> dict[str, Any]:
    options = {"broker": broker.url, "topics": "off-vehicle", "client_id": name}
    return {"transport": "mqtt5", "authorities": authorities, "options": options}


def streamer(directory: Path, authority: str, down: Any, up: Any) -> StreamerProcess:
    (directory / authority).mkdir()
    return StreamerProcess(
        directory / authority,
        {
            "authority": authority,
            "endpoints": {"down": down, "up": up},
            "routes": [{"from": "down", "to": "up"}, {"from": "up", "to": "down"}],
            "usubscription": None,
            "live_audit": {"every_s": 1} | ({} if authority == "hub" else {"to": "hub"}),
        },
        program=HURRIED,
    )


@pytest.fixture(params=[("gw", "hub"), ("gw", "mid", "hub")], ids=len)
async def chain(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Chain]:
    names = request.param
    async with AsyncExitStack() as stack:
        relays = [Relay(stack) for _ in names[1:]]
        last, sensor = stack.enter_context(Mosquitto()), free_endpoint()
        vehicle = await stack.enter_async_context(ZenohSide(listen=[sensor]))
        cloud = await stack.enter_async_context(MqttSide(last.port, "off-vehicle", [f"+/{each}" for each in AUTHORITIES]))
        downs = [zenoh(sensor, ["veh1"])]
        downs += [mqtt(relay.far, ["veh1", *names[: place + 1]], "down") for place, relay in enumerate(relays)]
        ups = [mqtt(broker, ["*"], "up") for broker in (*(relay.near for relay in relays), last)]
        streamers = [streamer(tmp_path, *each) for each in zip(names, downs, ups, strict=True)]
        for relay in relays:
            await stack.enter_async_context(meanwhile(relay.run()))
            await asyncio.wait_for(relay.is_open.wait(), 30)  # else the first messages are lost
        for each in streamers:
            stack.push_async_exit(each)
            each.start()
        for each in streamers:  # each is up once its neighbour is there
            await each.until_up(within_s=120)  # three programs start at a time, beside other tests
        yield Chain(relays, streamers, vehicle, cloud)


async def test_what_a_broker_drops_is_named_and_nothing_else(chain: Chain) -> None:
    *senders, _ = (each.config["authority"] for each in chain.streamers)
    await chain.notify_all(20)
    expected = set()
    for place, (relay, authority) in enumerate(zip(chain.relays, AUTHORITIES, strict=False)):
        relay.drops = {b"lost"}
        (lost,) = await chain.notify(authority, b"lost")
        await until(lambda relay=relay: relay.dropped == 1, within_s=120, what="the loss")  # type: ignore[misc]
        relay.drops = set()
        expected |= {(name, f"veh1 to {authority}", "lost", id_text(lost.id)) for name in senders[: place + 1]}
    await chain.notify_all(20)
    found = await chain.audited(
        lambda found: found["open_minutes"] == len(chain.relays) and found["messages"]["lost"] >= len(expected)
    )
    assert {(each["streamer"], each["class"], each["verdict"], each["id"]) for each in found["findings"]} == expected
    messages = found["messages"]
    assert (messages["lost"], messages["twice"], messages["unknown"]) == (len(expected), 0, 0)
    assert all(message_id in chain.hub.log for *_, message_id in expected)
