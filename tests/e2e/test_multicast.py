"""Multicast through real networks: registered by name with raw protobuf, over kills and reloads.

doors (eclipse-zenoh, veh1) ── gw ──┬── in-vehicle broker ── dash (aiomqtt, ivi)
                                    ├── off-vehicle broker "cloud" ── backend
                                    └── off-vehicle broker "phones" ── phone
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.brokers import any_broker
from tests.configurations import config_of, endpoint_of
from tests.e2e.roles import arrival, at_streamer, call
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.usubscription_client import Refused, plain_uri, until_heard
from tests.zenoh_peers import free_endpoint

REGISTER, RESOLVE = 0x10, 0x12
DOORS = "//veh1/A8000/2/0/doorOpened"
LEFT, RIGHT, BOOT = (("veh1", 0xA8000, 2, resource) for resource in (0x8011, 0x8012, 0x8013))
DASH, DOOR_APP, BACKEND = ("ivi", 0x10, 1, 0), ("veh1", 0xA8000, 2, 0), ("backend", 0x10, 1, 0)
CATALOGUE = [
    {
        "provider": "//veh1/A8000/2/0",
        "broadcast": "doorOpened",
        "partitions": {"front/left": 0x8011, "front/right": 0x8012, "boot": 0x8013},
    }
]


@dataclass
class MulticastSetup:
    gw: StreamerProcess
    doors: ZenohSide
    dash: MqttSide
    backend: MqttSide
    phone: MqttSide

    def side(self, entity: Uri) -> MqttSide | ZenohSide:
        sides: dict[str, MqttSide | ZenohSide] = {"veh1": self.doors, "ivi": self.dash, "backend": self.backend}
        return sides[entity[0]]

    async def register(self, receiver: Uri, pattern: str) -> list[Uri] | Refused:
        """The topics that the id stands for."""
        asked = pb.RegisterMulticastReceiverRequest(multicast_id=pattern)
        answer = await call(
            self.side(receiver), at_streamer(receiver, "gw", REGISTER, asked), pb.RegisterMulticastReceiverResponse
        )
        return answer if isinstance(answer, Refused) else [plain_uri(each.topic) for each in answer.topics]

    async def resolve(self, caller: Uri, multicast_id: str) -> Uri | Refused:
        asked = pb.ResolveMulticastRequest(multicast_id=multicast_id)
        answer = await call(self.side(caller), at_streamer(caller, "gw", RESOLVE, asked), pb.ResolveMulticastResponse)
        return answer if isinstance(answer, Refused) else plain_uri(answer.topic)

    async def fire(self, multicast_id: str) -> Plain:
        """As a provider does: ask for the topic, then publish."""
        topic = await self.resolve(DOOR_APP, multicast_id)
        assert not isinstance(topic, Refused), topic
        message = Plain(1, topic, payload=multicast_id.encode())
        await until_heard(self.doors, message, zenoh_key)
        await self.doors.send([message])
        return message

    async def is_heard(self, topic: Uri, is_heard: bool = True) -> None:
        await until_heard(self.doors, Plain(1, topic), zenoh_key, is_heard=is_heard)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[MulticastSetup]:
    endpoint = free_endpoint()
    async with AsyncExitStack() as stack:
        brokers = {name: stack.enter_context(any_broker()) for name in ("dash", "cloud", "phones")}
        doors = await stack.enter_async_context(ZenohSide(listen=[endpoint]))
        dash, backend, phone = [
            await stack.enter_async_context(MqttSide(brokers[name].port, structure, topics))
            for name, structure, topics in (
                ("dash", "in-vehicle", ["veh1/+/+/+/+", "backend/+/+/+/+", "+/+/+/+/+/ivi/#"]),
                ("cloud", "off-vehicle", ["+/backend"]),
                ("phones", "off-vehicle", ["+/phone"]),
            )
        ]
        config = config_of(
            {
                "vehicle": endpoint_of("zenoh", "veh1", connect=[endpoint], uncertain_s=1),
                "dash": endpoint_of("mqtt5", "ivi", broker=brokers["dash"].url, topics="in-vehicle"),
                "cloud": endpoint_of("mqtt5", "backend", broker=brokers["cloud"].url, topics="off-vehicle"),
                "phones": endpoint_of("mqtt5", "phone", broker=brokers["phones"].url, topics="off-vehicle"),
            },
            usubscription={"local": ["veh1", "ivi", "backend", "phone"]},
            multicast=CATALOGUE,
            journal={"path": str(tmp_path / "journal.db")},
        )
        gw = await stack.enter_async_context(StreamerProcess(tmp_path, config))
        yield MulticastSetup(gw, doors, dash, backend, phone)


async def test_receivers_on_every_network_get_what_their_wildcards_match(setup: MulticastSetup) -> None:
    assert await setup.register(DASH, f"{DOORS}/front/+") == [LEFT, RIGHT]
    assert await setup.register(BACKEND, f"{DOORS}/*") == [BOOT, LEFT, RIGHT]
    left, boot = await setup.fire(f"{DOORS}/front/left"), await setup.fire(f"{DOORS}/boot")
    assert await arrival(setup.dash, left) == left
    for message in (left, boot):
        assert await arrival(setup.backend, message) == message.addressed_to("backend")
    assert boot.id not in [each.id for each in setup.dash.arrived]
    assert setup.phone.arrived == []
    setup.gw.check_books()


async def test_registrations_outlive_a_kill_and_follow_a_reload(setup: MulticastSetup) -> None:
    await setup.register(DASH, f"{DOORS}/front/*")
    setup.gw.signal(signal.SIGKILL)
    await setup.gw.ended()
    setup.gw.start()
    await setup.gw.until_up()
    message = await setup.fire(f"{DOORS}/front/right")
    assert await arrival(setup.dash, message) == message

    doors = CATALOGUE[0] | {"partitions": {"front/left": 0x8011, "front/top": 0x8014}}
    setup.gw.write(setup.gw.config | {"multicast": [doors]})
    setup.gw.signal(signal.SIGHUP)
    await setup.is_heard(RIGHT, is_heard=False)
    message = await setup.fire(f"{DOORS}/front/top")
    assert await arrival(setup.dash, message) == message
