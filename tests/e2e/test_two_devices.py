"""Two devices with a uSubscription service each: a subscriber on MQTT of one, a publisher on Zenoh of the other.

app (aiomqtt) ─ in-vehicle broker ─ gw1 ─ off-vehicle broker ─ gw2 ─ Zenoh ─ sensor (eclipse-zenoh)
"""

import itertools
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.usubscription_client import (
    RESET,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    Refused,
    UsubscriptionClient,
    until_heard,
)
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

pytestmark = pytest.mark.mosquitto

APP = ("dev1", 0x100, 1, 0)
OTHER_APP = ("dev1", 0x101, 1, 0)
TOPIC = ("dev2", 0x200, 1, 0x8001)
NEIGHBOUR = ("dev2", 0x200, 1, 0x8002)


@dataclass
class Devices:
    link: Mosquitto
    gw1: StreamerProcess
    gw2: StreamerProcess
    apps: MqttSide
    sensor: ZenohSide
    app: UsubscriptionClient
    other: UsubscriptionClient
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def publish(self) -> bytes:
        """Publish one message on the topic, once gw2 listens."""
        message = Plain(1, TOPIC, payload=str(next(self.numbers)).encode())
        await until_heard(self.sensor, message, zenoh_key)
        await self.sensor.send([message])
        return message.payload

    async def arrives(self) -> None:
        """A Publish gets to the app, exactly once."""
        payload = await self.publish()
        await until(lambda: payload in self.app.payloads(TOPIC), within_s=30, what=f"arrival of {payload!r}")
        assert self.app.payloads(TOPIC).count(payload) == 1

    async def nothing_is_received(self) -> None:
        """gw2 does not even hear the topic, while everything else passes."""
        await until_heard(self.sensor, Plain(1, TOPIC), zenoh_key, is_heard=False)
        before = self.gw2.total("ustreamer_received_messages_total", endpoint="vehicle")
        fence = Plain(4, NEIGHBOUR, APP, str(next(self.numbers)).encode())
        await self.sensor.send([Plain(1, TOPIC, payload=b"nobody"), fence])
        await until(
            lambda: fence.id in [each.id for each in self.apps.arrived], within_s=30, what="arrival of the notification"
        )
        assert self.gw2.total("ustreamer_received_messages_total", endpoint="vehicle") == before + 1
        assert b"nobody" not in self.app.payloads(TOPIC)


def configuration(device: str, own: dict[str, Any], link: Mosquitto, directory: Path) -> dict[str, Any]:
    """The service of the other device may subscribe to everything here, and reset what it has subscribed."""
    (directory / device).mkdir()
    peer = f"gw{3 - int(device[-1])}"
    return config_of(
        {
            "vehicle": own | {"authorities": [device]},
            "link": endpoint_of("mqtt5", "*", broker=link.url, topics="off-vehicle", client_id=f"gw-{device}"),
        },
        authority=f"gw{device[-1]}",
        journal={"path": str(directory / device / "journal.db")},
        usubscription={
            "local": [device],
            "subscribe": [{"from": f"//{peer}/0/3/0", "topics": [f"//{device}/FFFFFFFF/FF/FFFF"]}],
            "reset": [f"//{peer}/0/3/0"],
        },
    )


@pytest.fixture
async def devices(tmp_path: Path) -> AsyncIterator[Devices]:
    async with AsyncExitStack() as stack:
        link = stack.enter_context(Mosquitto(persistence=True))
        broker = stack.enter_context(Mosquitto())
        endpoint = free_endpoint()
        sensor = await stack.enter_async_context(ZenohSide(listen=[endpoint]))
        mqtt = {"transport": "mqtt5", "options": {"broker": broker.url, "topics": "in-vehicle"}}
        zenoh = {"transport": "zenoh", "options": {"connect": [endpoint], "uncertain_s": 1}}
        gw1 = await stack.enter_async_context(StreamerProcess(tmp_path, configuration("dev1", mqtt, link, tmp_path)))
        gw2 = await stack.enter_async_context(StreamerProcess(tmp_path, configuration("dev2", zenoh, link, tmp_path)))
        apps = await stack.enter_async_context(MqttSide(broker.port, "in-vehicle", ["dev2/#", "+/+/+/+/+/dev1/#"]))
        yield Devices(
            link,
            gw1,
            gw2,
            apps,
            sensor,
            UsubscriptionClient(apps, APP, "dev1"),
            UsubscriptionClient(apps, OTHER_APP, "dev1"),
        )


async def subscribed(devices: Devices) -> None:
    assert await devices.app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await devices.app.until_updates(TOPIC, [SUBSCRIBE_PENDING, SUBSCRIBED])


async def test_subscribed_topics_cross_through_every_outage_until_the_last_subscriber_leaves(devices: Devices) -> None:
    await devices.nothing_is_received()
    await subscribed(devices)
    await devices.arrives()

    # the link goes, and comes back
    devices.link.stop()
    await devices.gw1.until_down("link")
    await devices.gw2.until_down("link")
    waiting = [await devices.publish() for _ in range(5)]
    devices.link.start()
    await until(lambda: devices.app.payloads(TOPIC)[-5:] == waiting, within_s=60, what="what waited, in order")

    # either daemon restarts: one is killed, one ends in order
    devices.gw1.signal(signal.SIGKILL)
    await devices.gw1.ended()
    devices.gw1.start()
    await devices.gw1.until_up()
    await devices.arrives()
    devices.gw2.signal(signal.SIGTERM)
    await devices.gw2.ended()
    devices.gw2.start()
    await devices.gw2.until_up()
    await devices.arrives()
    assert await devices.app.subscribe(TOPIC) == SUBSCRIBED

    # a second one comes for three seconds: its time passes, the first one stays
    assert await devices.other.subscribe(TOPIC, expire=Timestamp(seconds=int(time.time()) + 3)) == SUBSCRIBED
    await devices.other.until_updates(TOPIC, [SUBSCRIBED, UNSUBSCRIBED])
    assert (await devices.app.subscribers(TOPIC))[0] == [APP]
    await devices.arrives()

    # one of two leaves, then the last one
    assert await devices.other.subscribe(TOPIC) == SUBSCRIBED
    assert await devices.app.unsubscribe(TOPIC) is None
    await devices.app.until_updates(TOPIC, [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED])
    await devices.arrives()
    assert await devices.other.unsubscribe(TOPIC) is None
    await devices.other.until_updates(TOPIC, [SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED])
    await devices.nothing_is_received()
    devices.gw1.check_books()
    devices.gw2.check_books()


async def test_a_reset_of_the_far_service_is_notified_and_the_near_one_can_subscribe_again(devices: Devices) -> None:
    await subscribed(devices)
    await devices.arrives()
    request = pb.ResetRequest(reason=pb.ResetRequest.Reason(code=pb.ResetRequest.Reason.Code.FACTORY_RESET))
    async with MqttSide(devices.link.port, "off-vehicle", ["+/backend", "+/gw1"]) as cloud:
        for stranger in (("backend", 0xC0, 1, 0), ("backend", 0, 3, 0)):
            refused = await UsubscriptionClient(cloud, stranger, "dev2").call(RESET, request, pb.ResetResponse)
            assert isinstance(refused, Refused)
            assert refused.code == 7
        await devices.arrives()
        service = UsubscriptionClient(cloud, ("gw1", 0, 3, 0), "dev2")
        assert await service.call(RESET, request, pb.ResetResponse) == pb.ResetResponse()
    await devices.app.until_updates(TOPIC, [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED])
    await devices.nothing_is_received()
    assert await devices.app.topics_of(APP) == {}
    assert await devices.app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    await devices.app.until_updates(TOPIC, [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED])
    await devices.arrives()


async def test_a_subscription_without_a_link_waits_for_it_over_a_restart(devices: Devices) -> None:
    devices.link.stop()
    await devices.gw1.until_down("link")
    assert await devices.app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    devices.gw1.signal(signal.SIGKILL)
    await devices.gw1.ended()
    devices.gw1.start()
    await devices.gw1.until_down("link")
    assert await devices.app.subscribe(TOPIC) == SUBSCRIBE_PENDING
    devices.link.start()
    await until(lambda: devices.app.updates(TOPIC)[-1:] == [SUBSCRIBED], within_s=60, what="the far answer")
    await devices.arrives()
