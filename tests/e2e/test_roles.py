"""uStreamer: device to device, over the same transport and from one to another. uBus: what is sent arrives behind the right
port and no other, and a publish behind every port that asked.

The daemon runs on the role's file in ``config/roles`` itself, and no uEntity uses our code.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.proto import utwin_v2_pb2 as utwin
from tests.brokers import BrokerProcess, any_broker
from tests.e2e.roles import Role, arrival, ask_and_answer, at_streamer, call, request
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.usubscription_client import SUBSCRIBED, Refused, UsubscriptionClient, until_heard
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

DEVICES = ("hpc", "tcu", "ivi")
together = pytest.mark.asyncio(loop_scope="module")
"""For tests with `devices`, which they leave as they found it."""

PAIRS = [(one, other) for one in DEVICES for other in DEVICES if one != other]
HEARD_BY_ALL = 0x8010
PORTS = ("hpc", "zone-front", "zone-rear")
HPC_APP, HPC_OTHER_APP = ("hpc", 0x100, 1, 0), ("hpc", 0x101, 1, 0)
FRONT_APP, REAR_APP = ("zone-front", 0x200, 1, 0), ("zone-rear", 0x300, 1, 0)
FRONT_METHOD = ("zone-front", 0x200, 1, 7)
TOPIC = ("hpc", 0x100, 1, 0x8001)
LEFT, RIGHT = ("zone-front", 0xA8000, 2, 0x8011), ("zone-front", 0xA8000, 2, 0x8012)


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


@dataclass
class Bus:
    daemon: Role
    sides: dict[str, ZenohSide]

    def client(self, entity: tuple[str, int, int, int], service: str | None = None) -> UsubscriptionClient:
        return UsubscriptionClient(self.sides[entity[0]], entity, service or entity[0])

    async def publish(self, topic: tuple[str, int, int, int], payload: bytes) -> Plain:
        """Publish, once the bus listens to the topic."""
        message = Plain(1, topic, payload=payload)
        await until_heard(self.sides[topic[0]], message, zenoh_key)
        await self.sides[topic[0]].send([message])
        return message

    def events(self, port: str, message: Plain) -> bool:
        return message.id in [each.id for each in list(self.sides[port].arrived)]

    async def fence(self, source: str, *ports: str) -> None:
        """What was sent from ``source`` before has been dealt with: a Notification after it has arrived behind each port."""
        for port in ports:
            notification = Plain(4, (source, 0x1, 1, 0x8000), (port, 0x1, 1, 0))
            await self.sides[source].send([notification])
            await arrival(self.sides[port], notification)


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    listen = {port: free_endpoint() for port in PORTS}
    variables = {f"{port.upper().replace('-', '_')}_LISTEN": endpoint for port, endpoint in listen.items()}
    async with AsyncExitStack() as stack:
        daemon = Role(tmp_path, "ubus", **variables)
        daemon.start()
        stack.push_async_exit(daemon)
        sides = {port: await stack.enter_async_context(ZenohSide(connect=[endpoint])) for port, endpoint in listen.items()}
        await daemon.until_up()
        for port, side in sides.items():
            await until_heard(side, Plain(2, (port, 0x1, 1, 0), ("ubus", 0, 3, 1)), zenoh_key)
        yield Bus(daemon, sides)
        await daemon.__aexit__()  # before its neighbours, or it would wait for them


async def test_rpc_and_notifications_leave_through_the_port_of_their_sink_only(bus: Bus) -> None:
    await ask_and_answer(bus.sides["hpc"], bus.sides["zone-front"], request(HPC_APP, FRONT_METHOD, b"ping"))
    notification = Plain(4, ("zone-front", 0x200, 1, 0x8005), REAR_APP, b"hello", priority=3, ttl=20_001)
    await bus.sides["zone-front"].send([notification])
    assert await arrival(bus.sides["zone-rear"], notification) == notification
    await bus.fence("hpc", "zone-rear")
    await bus.fence("zone-front", "hpc")
    rear = [each for each in bus.sides["zone-rear"].arrived if each.source[1] != 0x1]
    assert rear == [notification]
    assert [each.type for each in bus.sides["hpc"].arrived if each.source[1] != 0x1] == [3]
    assert [each.type for each in bus.sides["zone-front"].arrived if each.source[1] != 0x1] == [2]


async def test_one_publish_reaches_every_interested_port_and_no_other(bus: Bus) -> None:
    front, rear = bus.client(FRONT_APP), bus.client(REAR_APP)
    await until_heard(bus.sides["hpc"], Plain(1, TOPIC), zenoh_key, is_heard=False)
    assert await front.subscribe(TOPIC) == SUBSCRIBED
    first = await bus.publish(TOPIC, b"front only")
    assert await arrival(bus.sides["zone-front"], first) == first
    assert await rear.subscribe(TOPIC) == SUBSCRIBED
    both = await bus.publish(TOPIC, b"both")
    assert await arrival(bus.sides["zone-front"], both) == both
    assert await arrival(bus.sides["zone-rear"], both) == both
    await bus.fence("hpc", "zone-rear")
    assert not bus.events("zone-rear", first)

    assert await front.unsubscribe(TOPIC) is None
    rear_only = await bus.publish(TOPIC, b"rear only")
    assert await arrival(bus.sides["zone-rear"], rear_only) == rear_only
    await bus.fence("hpc", "zone-front")
    assert not bus.events("zone-front", rear_only)
    assert await rear.unsubscribe(TOPIC) is None
    await until_heard(bus.sides["hpc"], Plain(1, TOPIC), zenoh_key, is_heard=False)
    bus.daemon.check_books()


async def test_subscribers_behind_one_port_share_a_copy(bus: Bus) -> None:
    assert await bus.client(HPC_APP).subscribe(LEFT) == SUBSCRIBED
    assert await bus.client(HPC_OTHER_APP, service="ubus").subscribe(LEFT) == SUBSCRIBED
    message = await bus.publish(LEFT, b"one copy")
    await arrival(bus.sides["hpc"], message)
    await bus.fence("zone-front", "hpc")
    assert [each.id for each in bus.sides["hpc"].arrived].count(message.id) == 1


async def test_a_receiver_registered_for_a_broadcast_by_name_gets_its_partitions(bus: Bus) -> None:
    asked = pb.RegisterMulticastReceiverRequest(multicast_id="//zone-front/A8000/2/0/doorOpened/+")
    answer = await call(bus.sides["hpc"], at_streamer(HPC_APP, "ubus", 0x10, asked), pb.RegisterMulticastReceiverResponse)
    assert not isinstance(answer, Refused), answer
    assert [each.topic.resource_id for each in answer.topics] == [0x8011, 0x8012]
    for topic in (LEFT, RIGHT):
        message = await bus.publish(topic, b"open")
        assert await arrival(bus.sides["hpc"], message) == message
    await bus.fence("zone-front", "zone-rear")
    assert [each for each in bus.sides["zone-rear"].arrived if each.type == 1] == []


async def test_the_last_message_of_a_topic_is_there_for_whoever_comes_late(bus: Bus) -> None:
    assert await bus.client(FRONT_APP).subscribe(TOPIC) == SUBSCRIBED
    for payload in (b"earlier", b"now"):
        await arrival(bus.sides["zone-front"], await bus.publish(TOPIC, payload))
    asked = utwin.GetLastMessagesRequest()
    for resource in (TOPIC[3], 0x8009):
        asked.topics.uris.add(authority_name=TOPIC[0], ue_id=TOPIC[1], ue_version_major=TOPIC[2], resource_id=resource)
    question = request(REAR_APP, ("zone-rear", 3, 2, 1), asked.SerializeToString())
    answer = await call(bus.sides["zone-rear"], question, utwin.GetLastMessagesResponse)
    assert not isinstance(answer, Refused), answer
    assert [each.status.code for each in answer.responses] == [0, 5]  # OK, NOT_FOUND
    assert answer.responses[0].message.payload == b"now"


async def test_nobody_speaks_in_the_name_of_another_port(bus: Bus) -> None:
    forged = Plain(4, ("zone-rear", 0x300, 1, 0x8001), HPC_APP, b"forged")
    await bus.sides["zone-front"].send([forged])  # each hears only the authorities that it lists
    await bus.fence("zone-front", "hpc")
    assert not bus.events("hpc", forged)
