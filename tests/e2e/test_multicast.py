"""Multicast through real networks: registered by name with raw protobuf, over kills and reloads, and the transient mark.

doors (eclipse-zenoh, veh1) ── gw ──┬── in-vehicle broker ── dash (aiomqtt, ivi)
                                    ├── off-vehicle broker "cloud" ── backend
                                    └── off-vehicle broker "phones" ── phone
"""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from tests.brokers import BrokerProcess, any_broker
from tests.e2e.roles import arrival, at_streamer, call
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.usubscription_client import SUBSCRIBED, Refused, UsubscriptionClient, plain_uri, until_heard
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

REGISTER, UNREGISTER, RESOLVE = 0x10, 0x11, 0x12
INVALID_ARGUMENT, NOT_FOUND = 3, 5
DOORS, NEWS = "//veh1/A8000/2/0/doorOpened", "//backend/C0/1/0/news"
LEFT, RIGHT, BOOT = (("veh1", 0xA8000, 2, resource) for resource in (0x8011, 0x8012, 0x8013))
LOCAL_NEWS, PLAIN_TOPIC = ("backend", 0xC0, 1, 0x9001), ("backend", 0xC0, 1, 0x9002)
DASH, DOOR_APP, BACKEND, PHONE = ("ivi", 0x10, 1, 0), ("veh1", 0xA8000, 2, 0), ("backend", 0x10, 1, 0), ("phone", 0x10, 1, 0)
CATALOGUE = [
    {
        "provider": "//veh1/A8000/2/0",
        "broadcast": "doorOpened",
        "partitions": {"front/left": 0x8011, "front/right": 0x8012, "boot": 0x8013},
    },
    {"provider": "//backend/C0/1/0", "broadcast": "news", "partitions": {"local": 0x9001}},
]


@dataclass
class MulticastSetup:
    gw: StreamerProcess
    doors: ZenohSide
    dash: MqttSide
    backend: MqttSide
    phone: MqttSide

    def side(self, entity: Uri) -> MqttSide | ZenohSide:
        sides: dict[str, MqttSide | ZenohSide] = {
            "veh1": self.doors,
            "ivi": self.dash,
            "backend": self.backend,
            "phone": self.phone,
        }
        return sides[entity[0]]

    async def register(self, receiver: Uri, pattern: str) -> list[Uri] | Refused:
        """The topics that the id stands for."""
        asked = pb.RegisterMulticastReceiverRequest(multicast_id=pattern)
        answer = await call(
            self.side(receiver), at_streamer(receiver, "gw", REGISTER, asked), pb.RegisterMulticastReceiverResponse
        )
        return answer if isinstance(answer, Refused) else [plain_uri(each.topic) for each in answer.topics]

    async def unregister(self, receiver: Uri, pattern: str) -> Refused | None:
        asked = pb.UnregisterMulticastReceiverRequest(multicast_id=pattern)
        request = at_streamer(receiver, "gw", UNREGISTER, asked)
        answer = await call(self.side(receiver), request, pb.UnregisterMulticastReceiverResponse)
        return answer if isinstance(answer, Refused) else None

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


def configuration(endpoint: str, brokers: dict[str, BrokerProcess], directory: Path) -> dict[str, Any]:
    def mqtt(name: str, authority: str, topics: str) -> dict[str, Any]:
        return {"transport": "mqtt5", "authorities": [authority], "options": {"broker": brokers[name].url, "topics": topics}}

    names = ("vehicle", "dash", "cloud", "phones")
    return {
        "authority": "gw",
        "endpoints": {
            "vehicle": {"transport": "zenoh", "authorities": ["veh1"], "options": {"connect": [endpoint], "uncertain_s": 1}},
            "dash": mqtt("dash", "ivi", "in-vehicle"),
            "cloud": mqtt("cloud", "backend", "off-vehicle"),
            "phones": mqtt("phones", "phone", "off-vehicle"),
        },
        "routes": [{"from": here, "to": there} for here in names for there in names if here != there],
        "usubscription": {"local": ["veh1", "ivi", "backend", "phone"]},
        "multicast": CATALOGUE,
        "journal": {"path": str(directory / "journal.db")},
    }


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
        gw = await stack.enter_async_context(StreamerProcess(tmp_path, configuration(endpoint, brokers, tmp_path)))
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


async def test_a_topic_is_received_until_the_last_registration_that_covers_it_is_gone(setup: MulticastSetup) -> None:
    await setup.is_heard(LEFT, is_heard=False)
    await setup.register(DASH, f"{DOORS}/front/*")
    await setup.register(("ivi", 0x11, 1, 0), f"{DOORS}/front/left")
    await setup.is_heard(LEFT)
    assert await setup.unregister(DASH, f"{DOORS}/front/*") is None
    await setup.is_heard(RIGHT, is_heard=False)
    await setup.is_heard(LEFT)
    assert await UsubscriptionClient(setup.dash, DASH, "ivi").subscribe(LEFT) == SUBSCRIBED
    assert await setup.unregister(("ivi", 0x11, 1, 0), f"{DOORS}/front/left") is None
    message = await setup.fire(f"{DOORS}/front/left")  # an ordinary subscription is there still
    assert await arrival(setup.dash, message) == message
    assert await UsubscriptionClient(setup.dash, DASH, "ivi").unsubscribe(LEFT) is None
    await setup.is_heard(LEFT, is_heard=False)


async def test_a_multicast_must_name_one_existing_partition(setup: MulticastSetup) -> None:
    for wildcard in ("front/+", "*"):
        refused = await setup.resolve(DOOR_APP, f"{DOORS}/{wildcard}")
        assert isinstance(refused, Refused)
        assert refused.code == INVALID_ARGUMENT
    unknown = await setup.resolve(DOOR_APP, f"{DOORS}/front/lift")
    assert isinstance(unknown, Refused)
    assert unknown.code == NOT_FOUND
    assert "front/left" in unknown.text


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


async def test_what_came_from_one_global_broker_is_not_published_on_another(setup: MulticastSetup) -> None:
    for receiver in (DASH, PHONE):
        assert await setup.register(receiver, f"{NEWS}/*") == [LOCAL_NEWS]
        assert await UsubscriptionClient(setup.side(receiver), receiver, receiver[0]).subscribe(PLAIN_TOPIC) == SUBSCRIBED
    news, plain = (Plain(1, topic, payload=b"news").addressed_to("gw") for topic in (LOCAL_NEWS, PLAIN_TOPIC))
    await setup.backend.send([news, plain])
    assert (await arrival(setup.phone, plain)).sink == ("phone", 0xFFFFFFFF, 0xFF, 0xFFFF)
    for message in (news, plain):
        assert (await arrival(setup.dash, message)).sink is None
    await until(lambda: len([each for each in setup.dash.arrived if each.type == 1]) == 2)
    assert news.id not in [each.id for each in setup.phone.arrived]
