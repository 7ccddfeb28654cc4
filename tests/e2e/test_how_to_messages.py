"""The how-to pages about single topics and messages, each followed literally."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.how_to import TO_CLOUD, Broker, Gateway, numbers, up
from tests.independent.message import Plain, id_text
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.waiting import until

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]  # each runs a dozen commands

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
                await vehicle.until_subscribed(up(0))
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


@pytest.mark.timeout(600)  # with a nightly report: Spark on a busy machine
async def test_find_a_lost_message(tmp_path: Path) -> None:
    def status(number: int, **more: Any) -> Plain:
        return replace(up(number, **more), type=4, sink=("cloud", 0xC0, 1, 0))

    with Broker() as broker:
        async with (
            Gateway(tmp_path, "find-a-lost-message", {BROKER: broker.url}) as gateway,
            ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
        ):
            gateway.configure()
            gateway.start()
            await gateway.until_up()
            await vehicle.until_subscribed(status(0))
            broker.stop()
            await gateway.until_down("cloud")
            lost = status(0, ttl=100)
            its_id = ("01938f2e-6a5b-7c21-9d3e-5f0a1b2c3d4e", id_text(lost.id))
            await vehicle.send([lost])
            await gateway.until_total(1, "ustreamer_outcomes_total", outcome="expired")
            await gateway.until_total(1, "ustreamer_trace_written_records_total")
            await gateway.do(its_id)
            await gateway.do(its_id)
            await gateway.do(its_id)
            await gateway.do(its_id)
            waits = json.loads(await gateway.do())
            assert [(flow["waiting"], flow["held"]) for flow in waits["flows"]] == [(1, [])]

            broker.start()
            async with MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud:
                await gateway.until_up()
                watching = asyncio.create_task(gateway.do())
                await until(lambda: "tap_began" in gateway.log, "the tap")
                await vehicle.send([status(1)])
                await watching
                assert lost.id in {each.id for each in cloud.arrived}
            await gateway.service("restart")  # if the stop had no time to make Parquet files of the records, the start does

            def dates() -> list[str]:
                files = gateway.place("/var/lib/streamer/traces").glob("date=*/hour=*/streamer=*/part-*.parquet")
                return sorted(file.parts[-4].partition("=")[2] for file in files)

            await until(dates, "the records as Parquet files")
            (day, *_) = dates()
            await gateway.do(("2026-11-20", day))
            assert list(gateway.place("/var/lib/streamer/tables/report").glob("report-*.html"))
