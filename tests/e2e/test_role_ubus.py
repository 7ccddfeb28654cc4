"""uBus: what is sent arrives behind the right port and no other, and a publish behind every port that asked.

The daemon runs on ``config/roles/ubus.yaml`` itself; behind each port is a Zenoh peer that does not use our code.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.proto import utwin_v2_pb2 as utwin
from tests.e2e.roles import Role, arrival, ask_and_answer, at_streamer, call, request
from tests.independent.message import Plain
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.usubscription_client import SUBSCRIBED, Refused, UsubscriptionClient, until_heard
from tests.zenoh_peers import free_endpoint

PORTS = ("hpc", "zone-front", "zone-rear")
HPC_APP, HPC_OTHER_APP = ("hpc", 0x100, 1, 0), ("hpc", 0x101, 1, 0)
FRONT_APP, REAR_APP = ("zone-front", 0x200, 1, 0), ("zone-rear", 0x300, 1, 0)
FRONT_METHOD = ("zone-front", 0x200, 1, 7)
TOPIC = ("hpc", 0x100, 1, 0x8001)
LEFT, RIGHT = ("zone-front", 0xA8000, 2, 0x8011), ("zone-front", 0xA8000, 2, 0x8012)


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
