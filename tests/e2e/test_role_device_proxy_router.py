"""Device proxy router: two devices that cannot reach each other, through a third.

The daemon runs on ``config/roles/device-proxy-router.yaml`` itself. dev-a is an `eclipse-zenoh` client that knows only the
proxy, dev-b an `aiomqtt` client that knows only its broker.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.brokers import Mosquitto
from tests.e2e.roles import Role, arrival, ask_and_answer, request
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient, until_heard
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

pytestmark = pytest.mark.mosquitto
together = pytest.mark.asyncio(loop_scope="module")
"""For tests with `devices`, which they leave as they found it."""

A_APP, B_APP = ("dev-a", 0x100, 1, 0), ("dev-b", 0x100, 1, 0)
A_METHOD, B_METHOD = ("dev-a", 0x200, 1, 7), ("dev-b", 0x200, 1, 7)
A_TOPIC, B_TOPIC = ("dev-a", 0x200, 1, 0x8001), ("dev-b", 0x200, 1, 0x8001)
UNWANTED_OF_B = {"outcome": "unwanted", "ingress": "dev-b"}


@dataclass
class Devices:
    proxy: Role
    broker: Mosquitto
    a: ZenohSide
    b: MqttSide


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Devices]:
    endpoint = free_endpoint()
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(Mosquitto(persistence=True))
        proxy = Role(directory, "device-proxy-router", DEV_A_LISTEN=endpoint, DEV_B_BROKER=broker.url)
        proxy.start()
        stack.push_async_exit(proxy)
        a = await stack.enter_async_context(ZenohSide(connect=[endpoint]))
        b = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/dev-b"]))
        await proxy.until_up()
        await until_heard(a, request(A_APP, B_METHOD), zenoh_key)
        yield Devices(proxy, broker, a, b)
        await proxy.__aexit__()  # before its neighbours, or it would wait for them


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def devices_of_all(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Devices]:
    async with running(tmp_path_factory.mktemp("proxy")) as devices:
        yield devices


@pytest.fixture
def devices(devices_of_all: Devices) -> Devices:
    devices_of_all.a.arrived.clear()
    devices_of_all.b.arrived.clear()
    return devices_of_all


@together
async def test_rpc_and_notifications_go_both_ways(devices: Devices) -> None:
    await ask_and_answer(devices.a, devices.b, request(A_APP, B_METHOD, b"from a", ttl=12_345))
    await ask_and_answer(devices.b, devices.a, request(B_APP, A_METHOD, b"from b", ttl=12_345))
    for source, sink, here, there in ((A_TOPIC, B_APP, devices.a, devices.b), (B_TOPIC, A_APP, devices.b, devices.a)):
        told = Plain(4, source, sink, b"told", priority=4, token="t")
        await here.send([told])
        assert await arrival(there, told) == told
    devices.proxy.check_books()


@together
@pytest.mark.parametrize("service", ["dev-a", "dev-b", "proxy"])
async def test_what_a_publishes_reaches_b_while_b_subscribes(devices: Devices, service: str) -> None:
    client = UsubscriptionClient(devices.b, B_APP, service)
    await until_heard(devices.a, Plain(1, A_TOPIC), zenoh_key, is_heard=False)
    assert await client.subscribe(A_TOPIC) == SUBSCRIBED
    await until_heard(devices.a, Plain(1, A_TOPIC), zenoh_key)
    message = Plain(1, A_TOPIC, payload=b"asked for", ttl=20_001)
    await devices.a.send([message])
    assert await arrival(devices.b, message) == message.addressed_to("dev-b")
    assert await client.unsubscribe(A_TOPIC) is None
    await until_heard(devices.a, Plain(1, A_TOPIC), zenoh_key, is_heard=False)


@together
@pytest.mark.parametrize("service", ["dev-a", "dev-b", "proxy"])
async def test_what_b_publishes_to_the_proxy_reaches_a_while_a_subscribes(devices: Devices, service: str) -> None:
    client = UsubscriptionClient(devices.a, A_APP, service)
    before, during, after = (Plain(1, B_TOPIC, payload=text).addressed_to("proxy") for text in (b"1", b"2", b"3"))
    unwanted = devices.proxy.total("ustreamer_outcomes_total", **UNWANTED_OF_B)
    await devices.b.send([before])
    await devices.proxy.until_total(unwanted + 1, "ustreamer_outcomes_total", **UNWANTED_OF_B)
    assert await client.subscribe(B_TOPIC) == SUBSCRIBED
    await devices.b.send([during])
    arrived = await arrival(devices.a, during)
    assert (arrived.payload, arrived.sink) == (b"2", None)
    assert await client.unsubscribe(B_TOPIC) is None
    await devices.b.send([after])
    await devices.proxy.until_total(unwanted + 2, "ustreamer_outcomes_total", **UNWANTED_OF_B)
    assert client.payloads(B_TOPIC) == [b"2"]


async def test_what_is_for_a_device_that_is_away_waits_over_a_kill_of_the_proxy(tmp_path: Path) -> None:
    async with running(tmp_path) as devices:
        assert await UsubscriptionClient(devices.b, B_APP, "dev-b").subscribe(A_TOPIC) == SUBSCRIBED
        await until_heard(devices.a, Plain(1, A_TOPIC), zenoh_key)
        devices.broker.stop()
        await devices.proxy.until_down("dev-b")
        await devices.proxy.until_total(0, "ustreamer_queue_messages")
        written = devices.proxy.total("ustreamer_journal_written_messages_total")
        sent = [Plain(1, A_TOPIC, payload=b"%d" % number, ttl=120_001) for number in range(20)]
        await devices.a.send(sent)
        await devices.proxy.until_total(20, "ustreamer_queue_messages", route="dev-a-dev-b")
        await devices.proxy.until_total(written + 20, "ustreamer_journal_written_messages_total")
        devices.proxy.signal(signal.SIGKILL)
        await devices.proxy.ended()
        devices.broker.start()
        await devices.b.reconnect()
        devices.proxy.start()
        await devices.proxy.until_up()

        def published() -> list[Plain]:
            return [each for each in devices.b.arrived if each.type == 1]

        await until(lambda: len(published()) >= 20, within_s=30, what="what waited")
        assert published() == [each.addressed_to("dev-b") for each in sent]


@together
async def test_no_device_speaks_in_the_other_s_name(devices: Devices) -> None:
    forged = Plain(4, ("dev-a", 0x200, 1, 0x8001), ("dev-a", 0x300, 1, 0), b"forged")
    fence = Plain(4, B_TOPIC, A_APP, b"own")
    await devices.b.send([forged, fence])
    await arrival(devices.a, fence)
    await devices.proxy.until_total(1, "ustreamer_outcomes_total", outcome="rejected", code="UNAUTHENTICATED")
    assert forged.id not in [each.id for each in devices.a.arrived]
