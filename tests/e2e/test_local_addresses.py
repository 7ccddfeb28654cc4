"""Addresses without authority: on every network they mean the device of whoever sends, and they leave it with its name."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.e2e.local_addresses import local, send_as
from tests.e2e.topology import Topology
from tests.independent.message import Plain, Uri, uuid7
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.usubscription_client import SUBSCRIBE, SUBSCRIBED, proto_uri
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

APP: Uri = ("cloud", 0xC0, 1, 0)
TOPIC: Uri = ("cloud", 0x200, 1, 0x8001)


def subscription_request() -> Plain:
    payload = pb.SubscriptionRequest(topic=proto_uri(TOPIC)).SerializeToString()
    return Plain(2, APP, ("cloud", 0, 3, SUBSCRIBE), payload, 5, 30_000, payload_format=2)


@pytest.mark.parametrize("network", ["mqtt/in-vehicle", "mqtt/off-vehicle", "zenoh"])
@pytest.mark.parametrize("is_source_local", [False, True], ids=["local sink", "both local"])
@pytest.mark.mosquitto
async def test_service_of_the_local_device_answers(network: str, is_source_local: bool, tmp_path: Path) -> None:
    """This is how the client of uSubscription in up-rust asks."""
    message = subscription_request()
    assert message.sink is not None
    written = replace(message, sink=local(message.sink), source=local(APP) if is_source_local else APP)
    with Mosquitto() as broker:
        address = free_endpoint()
        structure = network.partition("/")[2]
        if structure:
            topics = ["+/cloud"] if structure == "off-vehicle" else ["+/+/+/+/+/cloud/C0/0/1/0"]
            side: MqttSide | ZenohSide = MqttSide(broker.port, structure, topics)
            endpoint = {"transport": "mqtt5", "options": {"broker": broker.url, "topics": structure}}
        else:
            side = ZenohSide(listen=[address], keys=["up/*/*/*/*/*/cloud/C0/0/1/0"])
            endpoint = {"transport": "zenoh", "options": {"connect": [address], "uncertain_s": 1}}
        config = config_of(
            {"device": endpoint | {"authorities": ["cloud"]}, "elsewhere": endpoint_of("memory", "*")},
            journal={"path": str(tmp_path / "journal.db")},
            usubscription={"local": ["cloud"]},
        )
        async with side, StreamerProcess(tmp_path, config) as daemon:
            await send_as(side, message, written)
            await until(lambda: any(each.type == 3 for each in side.arrived), what="the Response")
            (response,) = (each for each in side.arrived if each.type == 3)
            assert (response.source, response.sink, response.reqid) == (message.sink, APP, message.id), side.arrived
            assert not response.commstatus
            answer = pb.SubscriptionResponse.FromString(response.payload)
            assert answer.status.state == SUBSCRIBED
            daemon.check_books()


def one_of_each() -> list[Plain]:
    """A message of each type. Some have a TTL."""
    topic, entity, method = ("alpha", 0x100, 1, 0x8001), ("alpha", 0x100, 1, 0), ("alpha", 0x100, 1, 7)
    sink = ("beta", 0x200, 1, 0)
    return [
        Plain(1, topic, payload=b"publish"),
        Plain(4, topic, sink, b"notification"),
        Plain(2, entity, ("beta", 0x200, 1, 7), b"request", 5, 30_000),
        Plain(3, method, sink, b"response", 5, 30_000, reqid=uuid7()),
    ]


@pytest.mark.parametrize(("first", "second"), [("mqtt/in-vehicle", "zenoh"), ("zenoh", "mqtt/in-vehicle")])
async def test_local_source_leaves_its_network_with_its_authority(first: str, second: str) -> None:
    async with Topology(first, second) as topology:
        near, far = topology.networks
        messages = one_of_each()
        for message in messages:
            await send_as(near.side, message, replace(message, source=local(message.source)))
        await until(lambda: len({each.id for each in far.side.arrived}) == len(messages), what="every message")
        arrived = {message.id: message for message in far.side.arrived}
        assert arrived == {message.id: message for message in messages}
        topology.daemon.check_books()
