"""The how-to pages about single topics and messages, each followed literally."""

from pathlib import Path

import pytest

from tests.e2e.how_to import TO_CLOUD, Broker, Gateway, numbers, until_subscribed, up
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

BROKER = "mqtt://127.0.0.1:1883"


async def test_mirror_a_topic(tmp_path: Path) -> None:
    with Broker() as broker, Broker() as archives:
        places = {BROKER: broker.url, "mqtt://archive.example": archives.url}
        async with (
            Gateway(tmp_path, "mirror-a-topic", places) as gateway,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
            MqttSide(archives.port, "in-vehicle", ["veh1/8000/A/2/8A50"]) as archive,
        ):
            gateway.start()
            async with ZenohSide(connect=[gateway.vehicle_at]) as vehicle:
                await gateway.until_up()
                await until_subscribed(vehicle, up(0))
                gateway.configure()
                await gateway.do()
                await gateway.until_up()
                await vehicle.send(up(number) for number in range(50))
                await until(lambda: len(cloud.arrived) == len(archive.arrived) == 50, "everything at both places")
                assert numbers(cloud.arrived) == numbers(archive.arrived) == [*range(50)]
                await gateway.until_total(50, "ustreamer_outcomes_total", route="vehicle-archive", outcome="delivered")
                await gateway.do()

                archives.stop()
                await gateway.until_down("archive")
                await vehicle.send(up(number) for number in range(50, 100))
                await until(lambda: len(cloud.arrived) == 100, "the cloud does not wait for the archive")
