"""uStreamer: device to device, over the same transport and from one to another.

The daemon runs on ``config/roles/ustreamer.yaml`` itself. The devices' uEntities are `eclipse-zenoh` and `aiomqtt` clients.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.brokers import BrokerProcess, any_broker
from tests.e2e.roles import Role, arrival, ask_and_answer, request
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient, until_heard
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

DEVICES = ("hpc", "tcu", "ivi")
together = pytest.mark.asyncio(loop_scope="module")
"""For tests with `devices`, which they leave as they found it."""

PAIRS = [(one, other) for one in DEVICES for other in DEVICES if one != other]
HEARD_BY_ALL = 0x8010


def app(device: str) -> Uri:
    return device, 0x100, 1, 0


def topic(device: str) -> Uri:
    return device, 0x200, 1, 0x8001


@dataclass
class Devices:
    daemon: Role
    broker: BrokerProcess
    sides: dict[str, MqttSide | ZenohSide]

    async def until_forwarded(self, source: Uri, is_forwarded: bool = True) -> None:
        """The streamer listens to a topic where it is published, or does no more."""
        side = self.sides[source[0]]
        if isinstance(side, ZenohSide):
            await until_heard(side, Plain(1, source), zenoh_key, is_heard=is_forwarded)
        # An MQTT client cannot ask who listens: see `publish`.

    async def publish(self, source: Uri, payload: bytes, receiver: str) -> Plain:
        """Publish until it has arrived at ``receiver``; each copy is a message of its own. The first to arrive."""
        await self.until_forwarded(source)
        sent: list[Plain] = []
        arrived: list[Plain] = []

        def has_arrived() -> bool:
            ids = {each.id for each in sent}
            arrived[:] = [each for each in list(self.sides[receiver].arrived) if each.id in ids]
            return bool(arrived)

        for _ in range(100):
            sent.append(Plain(1, source, payload=payload, priority=2, ttl=60_001))
            await self.sides[source[0]].send([sent[-1]])
            try:
                await until(has_arrived, within_s=0.3)
            except AssertionError:
                continue
            first = next(each for each in sent if each.id == arrived[0].id)
            assert arrived[0] == first
            return first
        raise AssertionError(f"{source} did not get to {receiver}")


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Devices]:
    hpc, tcu = free_endpoint(), free_endpoint()
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(any_broker())
        sides: dict[str, MqttSide | ZenohSide] = {
            "hpc": await stack.enter_async_context(ZenohSide(listen=[hpc])),
            "tcu": await stack.enter_async_context(ZenohSide(listen=[tcu])),
            "ivi": await stack.enter_async_context(
                MqttSide(broker.port, "in-vehicle", ["hpc/+/+/+/+", "tcu/+/+/+/+", "+/+/+/+/+/ivi/#"])
            ),
        }
        daemon = await stack.enter_async_context(
            Role(directory, "ustreamer", HPC_CONNECT=hpc, TCU_CONNECT=tcu, IVI_BROKER=broker.url)
        )
        yield Devices(daemon, broker, sides)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def devices_of_all(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Devices]:
    async with running(tmp_path_factory.mktemp("ustreamer")) as devices:
        yield devices


@pytest.fixture
def devices(devices_of_all: Devices) -> Devices:
    for side in devices_of_all.sides.values():
        side.arrived.clear()
    return devices_of_all


@together
@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_rpc_goes_there_and_back(devices: Devices, client: str, server: str) -> None:
    asked = replace(
        request(app(client), (server, 0x300, 1, 7), b"\x00\xffping", ttl=12_345, payload_format=6),
        token="a token",
        permission_level=3,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    await ask_and_answer(devices.sides[client], devices.sides[server], asked)
    (third,) = set(DEVICES) - {client, server}
    assert [each for each in devices.sides[third].arrived if each.type in (2, 3)] == []
    devices.daemon.check_books()


@together
@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
async def test_a_publish_crosses_while_somebody_subscribes(devices: Devices, publisher: str, subscriber: str) -> None:
    client = UsubscriptionClient(devices.sides[subscriber], app(subscriber), subscriber)
    assert await client.subscribe(topic(publisher)) == SUBSCRIBED
    await devices.publish(topic(publisher), b"while subscribed", subscriber)
    (third,) = set(DEVICES) - {publisher, subscriber}
    assert await client.unsubscribe(topic(publisher)) is None
    await devices.until_forwarded(topic(publisher), is_forwarded=False)
    late = Plain(1, topic(publisher), payload=b"too late")
    fence = Plain(4, topic(publisher), app(subscriber), b"after it")
    await devices.sides[publisher].send([late, fence])
    await arrival(devices.sides[subscriber], fence)
    for device in (subscriber, third):
        assert late.id not in [each.id for each in devices.sides[device].arrived]
    assert [each for each in devices.sides[third].arrived if each.type == 1] == []


async def test_what_is_for_a_device_that_is_away_waits_and_survives_a_kill(tmp_path: Path) -> None:
    async with running(tmp_path) as devices:
        devices.broker.stop()
        await devices.daemon.until_down("ivi")
        sent = [Plain(4, topic("hpc"), app("ivi"), str(number).encode(), ttl=120_001) for number in range(20)]
        await devices.sides["hpc"].send(sent)
        await devices.daemon.until_total(20, "ustreamer_queue_messages", route="hpc-ivi")
        await devices.daemon.until_total(20, "ustreamer_journal_written_messages_total")
        devices.daemon.signal(signal.SIGKILL)
        await devices.daemon.ended()
        devices.broker.start()
        async with MqttSide(devices.broker.port, "in-vehicle", ["+/+/+/+/+/ivi/#"]) as ivi:
            devices.daemon.start()
            await devices.daemon.until_up()
            await until(lambda: len(ivi.arrived) >= 20, within_s=30, what="what waited")
            assert ivi.arrived == sent
