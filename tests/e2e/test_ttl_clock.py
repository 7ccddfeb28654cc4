"""A device without a clock on a real broker: what it sends with a TTL goes through, and is sent on as it should be."""

import asyncio
from pathlib import Path

import aiomqtt
import pytest

from streamer.transports.base import LinkState
from streamer.uprotocol.uuid import new_id
from tests.brokers import Mosquitto
from tests.configurations import endpoint_of
from tests.independent.message import Plain, id_text
from tests.independent.mqtt import mqtt_properties, mqtt_topic
from tests.ports import HOST
from tests.unit.features.api.daemon import running
from tests.waiting import until

pytestmark = pytest.mark.mosquitto
SPEED = ("veh1", 0xA8000, 2, 0x8A50)


async def test_what_a_device_sends_that_booted_in_1970_arrives_with_its_id(tmp_path: Path) -> None:
    with Mosquitto() as vehicle, Mosquitto() as cloud:
        endpoints = {
            "vehicle": endpoint_of("mqtt5", "veh1", broker=vehicle.url, topics="in-vehicle") | {"ttl_clock": "arrival"},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": {"broker": cloud.url}},
        }
        routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/A8000/2/8A50"], "publish_to": ["backend"]}]
        message = Plain(1, SPEED, payload=b"cold", ttl=60_000, id=new_id(40_000))
        async with (
            running(tmp_path, endpoints=endpoints, routes=routes) as served,
            aiomqtt.Client(HOST, vehicle.port, protocol=aiomqtt.ProtocolVersion.V5) as device,
            aiomqtt.Client(HOST, cloud.port, protocol=aiomqtt.ProtocolVersion.V5) as backend,
            asyncio.timeout(60),
        ):
            await backend.subscribe("#", qos=1)
            await until(lambda: all(each.state is LinkState.UP for each in served.daemon.transports.values()))
            topic = mqtt_topic(message, "in-vehicle")
            await device.publish(topic, message.payload, qos=1, properties=mqtt_properties(message))
            received = await anext(aiter(backend.messages))
        assert (str(received.topic), received.payload) == ("veh1/backend", b"cold")
        assert received.properties is not None
        carried = dict(received.properties.UserProperty)  # type: ignore[attr-defined]
        assert (carried["1"], carried["6"]) == (id_text(message.id), "0")  # the receiver cannot judge
        expiry_s = received.properties.MessageExpiryInterval  # type: ignore[attr-defined]
        assert 0 < expiry_s <= 61  # the broker can; rounded up twice
