"""The cloud hears that a gateway is gone: from the broker if it was killed, from the gateway itself if it was stopped."""

import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import everything_at
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.e2e.mqtt_messages import message
from tests.fault.proxy import Proxy
from tests.independent.mqtt import MqttSide
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

STATUS = ("gw", 4, 1, 0x8002)
DELAY_S = 3


class Cloud:
    """A broker, and what an application in the cloud has heard of the gateway there."""

    def __init__(self, server: Mosquitto, side: MqttSide) -> None:
        self.server, self.side = server, side

    def told(self) -> list[pb.Status]:
        arrived = [each for each in list(self.side.arrived) if each.source == STATUS]
        assert {(each.type, each.ttl) for each in arrived} <= {(1, None)}
        return [pb.Status.FromString(each.payload) for each in arrived]

    @property
    def links(self) -> list[str]:
        return [pb.Link.Name(each.link).removeprefix("LINK_") for each in self.told()]

    async def until_links(self, *expected: str) -> None:
        await until(lambda: self.links == list(expected), f"{expected}")


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(Mosquitto())
        side = await stack.enter_async_context(MqttSide(server.port, "off-vehicle", ["+/fleet"]))
        yield Cloud(server, side)


def endpoint(url: str, **options: Any) -> Endpoint:
    will = {"to": "fleet", "delay_s": DELAY_S}
    return Endpoint(url, "gw", **{"topics": "off-vehicle", "will": will, "keep_alive_s": 60, **options})


def configuration(tmp_path: Path, inside: str, url: str, **options: Any) -> dict[str, Any]:
    will = {"to": "fleet", "delay_s": DELAY_S}
    return config_of(
        {
            "vehicle": endpoint_of("mqtt5", "veh1", broker=inside, topics="in-vehicle"),
            "cloud": endpoint_of("mqtt5", "*", broker=url, will=will, **options),
        }
    )


async def test_a_gateway_that_is_killed_is_offline_after_the_delay_and_online_once_it_is_back(
    cloud: Cloud, tmp_path: Path
) -> None:
    with Mosquitto() as inside:
        config = configuration(tmp_path, inside.url, cloud.server.url)
        async with StreamerProcess(tmp_path, config) as daemon:
            await cloud.until_links("ONLINE")
            killed_s = time.monotonic()
            daemon.signal(signal.SIGKILL)
            await cloud.until_links("ONLINE", "OFFLINE")
            assert time.monotonic() - killed_s >= DELAY_S  # the broker waits
            online, offline = cloud.told()
            assert online.connected == offline.connected
            assert (list(offline.reasons), offline.endpoints[0].name) == (["the connection was lost"], "cloud")
        async with StreamerProcess(tmp_path, config) as daemon:
            await cloud.until_links("ONLINE", "OFFLINE", "ONLINE")
            daemon.signal(signal.SIGTERM)
            await cloud.until_links("ONLINE", "OFFLINE", "ONLINE", "OFFLINE")
            assert await daemon.ended() == 0
        assert list(cloud.told()[-1].reasons) == ["stopped"]
        assert cloud.told()[-1].connected == cloud.told()[-2].connected
    assert cloud.links == ["ONLINE", "OFFLINE", "ONLINE", "OFFLINE"]


async def test_a_flap_that_is_shorter_than_the_delay_says_nothing(cloud: Cloud) -> None:
    will = {"to": "fleet", "delay_s": 600}
    async with Proxy(cloud.server.port) as proxy, endpoint(f"mqtt://{HOST}:{proxy.port}", will=will).running() as gateway:
        await gateway.up()
        await cloud.until_links("ONLINE")
        for _ in range(3):
            proxy.reset()
            await until(lambda: not gateway.is_up)
            await gateway.up()
        await gateway.transport.stop()
        await cloud.until_links("ONLINE", "OFFLINE")  # the stop came after all flaps
        assert list(cloud.told()[-1].reasons) == ["stopped"]


async def test_a_reconnect_after_the_delay_says_that_it_is_back(cloud: Cloud) -> None:
    async with Proxy(cloud.server.port) as proxy, endpoint(f"mqtt://{HOST}:{proxy.port}").running() as gateway:
        await gateway.up()
        await cloud.until_links("ONLINE")
        await proxy.sever()
        await cloud.until_links("ONLINE", "OFFLINE")
        await proxy.heal()
        await gateway.up()
        await cloud.until_links("ONLINE", "OFFLINE", "ONLINE")
        connected = [each.connected.ToMilliseconds() for each in cloud.told()]
        assert connected[0] == connected[1] < connected[2]


async def test_a_broker_that_is_left_for_the_first_one_hears_that(cloud: Cloud) -> None:
    with Mosquitto() as spare:
        async with MqttSide(spare.port, "off-vehicle", ["+/fleet"]) as side, Proxy(cloud.server.port) as proxy:
            other = Cloud(spare, side)
            brokers: Any = [f"mqtt://{HOST}:{proxy.port}", spare.url]
            will = {"to": "fleet", "delay_s": 600}
            async with endpoint(brokers, will=will, return_after_s=0.2).running() as gateway:
                await gateway.up()
                await cloud.until_links("ONLINE")
                await proxy.sever()
                await other.until_links("ONLINE")
                await proxy.heal()
                await cloud.until_links("ONLINE", "ONLINE")
                await other.until_links("ONLINE", "OFFLINE")
                assert f"returns to {HOST}:{proxy.port}" in other.told()[-1].reasons[0]
                connected = [each.connected.ToMilliseconds() for each in (cloud.told()[0], *other.told(), cloud.told()[1])]
                assert connected[0] < connected[1] == connected[2] < connected[3]


async def test_a_session_that_another_client_has_taken_over_is_not_offline(cloud: Cloud) -> None:
    async with endpoint(cloud.server.url, client_id="same").running() as gateway:
        await gateway.up()
        await cloud.until_links("ONLINE")
        other = endpoint(cloud.server.url, client_id="same", reconnect={"initial_ms": 60_000, "max_ms": 60_000})
        async with other.running():
            await other.up()
            await until(lambda: not gateway.is_up or not other.is_up)
            assert "OFFLINE" not in cloud.links


async def test_in_the_vehicle_the_will_is_on_the_topic_of_the_status() -> None:
    with Mosquitto() as server:
        async with MqttSide(server.port, "in-vehicle", ["gw/4/0/1/8002"]) as side:
            async with endpoint(server.url, topics="in-vehicle", will={}).running() as gateway:
                await gateway.up()
                await until(lambda: len(side.arrived) == 1)
            await until(lambda: len(side.arrived) == 2)
            assert [each.source for each in side.arrived] == [STATUS, STATUS]


async def test_messages_that_the_broker_does_not_allow_are_a_problem_and_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic read #\ntopic write veh1/fleet\n")
    acl.chmod(0o644)
    sink = everything_at("fleet")
    with Mosquitto(extra=(f"acl_file {acl}",)) as server:
        async with endpoint(server.url).running() as gateway:
            await until(lambda: gateway.transport.report().problems)
            assert gateway.transport.report().problems == [
                "will: cannot say on gw/fleet that it is there: the broker does not allow this topic"
            ]
            await gateway.up()
            sent = replace(message("from the vehicle"), attributes=replace(message().attributes, sink=sink))
            gateway.submit([sent])
            await until(lambda: gateway.confirmed == [b"from the vehicle"])
    assert caplog.text.count("will_refused") == 1  # at the stop, it does not try again


async def test_a_will_for_which_the_broker_refuses_the_connection_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeBroker().running() as server, endpoint(server.url).running():
        peer = await server.peer()
        connect = await peer.accept(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED)
        assert connect.will is not None
        assert connect.will.topic == "gw/fleet"
        await until(lambda: "link_down" in caplog.text)
    assert "with will, this client has to be allowed to publish on gw/fleet" in caplog.text


async def test_a_stop_that_cannot_say_it_leaves_that_to_the_broker() -> None:
    async with FakeBroker().running() as server, endpoint(server.url, window=1, ack_timeout_s=60).running() as gateway:
        peer = await server.peer()
        await peer.accept()
        online = await peer.next(mqtt5.PublishPacket)
        assert pb.Status.FromString(online.payload).link == pb.LINK_ONLINE
        await gateway.up()
        await gateway.transport.stop()  # the window is full: ONLINE was not confirmed
        farewell = await peer.next(mqtt5.DisconnectPacket)
        assert farewell.reason_code == mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE


async def test_without_the_option_nothing_is_said() -> None:
    async with FakeBroker().running() as server, Endpoint(server.url, "gw").running() as gateway:
        peer = await server.peer()
        assert (await peer.accept()).will is None
        await gateway.up()
        await gateway.transport.stop()
        assert (await peer.next(mqtt5.DisconnectPacket)).reason_code == mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
