"""The how-to pages about the way to the cloud, each followed literally, with real brokers and a real Zenoh network."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.how_to import TO_CLOUD, Broker, Gateway, down, numbers, until_subscribed, up
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

BROKER = "mqtt://127.0.0.1:1883"
ROOM = 400
"""Instead of the page's 400 000 messages."""


async def test_the_cloud_was_away(tmp_path: Path) -> None:
    broker = Broker()
    places = {BROKER: broker.url, "messages: 400000": f"messages: {ROOM}"}
    async with Gateway(tmp_path, "the-cloud-was-away", places) as gateway:
        shown = gateway.configure()
        assert shown["endpoints"]["cloud"]["options"]["session_expiry_s"] > 3 * 86_400
        broker.lines = gateway.text("conf").splitlines()
        with broker:
            gateway.start()
            async with ZenohSide(connect=[gateway.vehicle_at]) as vehicle:
                await gateway.until_up()
                await gateway.do()
                await gateway.until_up()
                await until_subscribed(vehicle, up(0))
                broker.stop()
                await gateway.until_down("cloud")

                await vehicle.send(up(number, ttl=1) for number in range(5))
                await gateway.until_total(5, "ustreamer_outcomes_total", outcome="expired")
                await vehicle.send(up(number) for number in range(ROOM + 3))
                await gateway.until_total(3, "ustreamer_outcomes_total", outcome="dead_lettered")
                said = await gateway.do(lines=1)
                assert f'ustreamer_queue_messages{{egress="cloud",ingress="vehicle",route="vehicle-cloud"}} {ROOM}' in said
                assert 'ustreamer_endpoint_up{endpoint="cloud",transport="mqtt5"} 0' in said

                assert (await gateway.shell("systemctl stop streamer"))[0] == 0  # it was switched off, too
                broker.start()
                async with MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud:
                    await cloud.send(down(number) for number in range(1500))  # more than mosquitto keeps by default
                    await asyncio.to_thread(broker.restart)
                    await cloud.reconnect()
                    assert (await gateway.shell("systemctl start streamer"))[0] == 0
                    await until(lambda: len(numbers(vehicle.arrived)) == 1500, "everything for the vehicle")
                    await until(lambda: len(cloud.arrived) >= ROOM, "everything for the cloud")
                    assert [*map(int, (each.payload for each in cloud.arrived))] == [*range(3, ROOM + 3)]
                    assert numbers(vehicle.arrived) == [*range(1500)]
            said = await gateway.do()
            assert "8 dead letters" in said
            assert '"connected"' in said
            gateway.check_books()
