"""The how-to pages about the gateway itself, single topics and messages, each followed literally."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.how_to import PAGES, TO_CLOUD, Broker, Gateway, copies, down, numbers, up
from tests.e2e.mqtt_sessions import is_kept
from tests.independent.message import Plain, id_text, uuid7
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.waiting import until

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]  # each runs a dozen commands

BROKER = "mqtt://127.0.0.1:1883"


async def test_replace_a_gateway(tmp_path: Path) -> None:
    broker = Broker()
    broker.lines = ["persistence true"]
    with broker:
        async with (
            Gateway(tmp_path, "replace-a-gateway", {BROKER: broker.url}) as gateway,
            ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
        ):
            gateway.start()
            await gateway.until_up()
            await vehicle.until_subscribed(up(0))
            pause = f"streamer pause --config {gateway.path} --topic //veh1/A8000/2/8A51"
            assert (await gateway.shell(pause))[0] == 0
            broker.stop()
            await gateway.until_down("cloud")
            await vehicle.send(up(number) for number in range(20))
            await gateway.until_total(20, "ustreamer_journal_written_messages_total")
            await gateway.do()
            broker.start()
            await cloud.reconnect()
            await until(lambda: len(cloud.arrived) == 20, "what had waited")
            before = [each.id for each in cloud.arrived]

            gateway.signal(signal.SIGKILL)
            await gateway.ended()
            shutil.rmtree(gateway.place("/var/lib/streamer"))  # the machine is gone
            gateway.place("/var/lib/streamer").mkdir()
            await cloud.send(down(number) for number in range(20))
            cloud.arrived.clear()
            await gateway.do()
            await gateway.until_up()
            await until(lambda: copies(cloud.arrived).total() == 20, "the messages of the copy")
            assert [each.id for each in cloud.arrived] == before
            await until(lambda: len(numbers(vehicle.arrived)) == 20, "what the broker has kept")
            assert numbers(vehicle.arrived) == [*range(20)]
            said = await gateway.do()
            assert '"waiting": 20' in said
            assert '"session_present": true' in said
            paused = await gateway.shell(f"streamer pause --config {gateway.path}")
            assert "//veh1/A8000/2/8A51" in paused[1]
            gateway.check_books()


async def test_change_the_vin(tmp_path: Path) -> None:
    broker = Broker()
    acl, words = broker.directory / "acl", broker.directory / "words"
    everything = "user cloud\ntopic readwrite #\n"
    acl.write_text(f"topic readwrite #\n{everything}")
    words.write_text("cloud:cloud\n")
    subprocess.run(["mosquitto_passwd", "-U", str(words)], check=True)
    broker.lines = [f"acl_file {acl}", f"password_file {words}", "allow_anonymous true"]
    with broker:
        async with (
            Gateway(tmp_path, "change-the-vin", {BROKER: broker.url, "user gateway-veh2\n": ""}) as gateway,
            ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD, user=("cloud", "cloud")) as cloud,
        ):
            gateway.start()
            await gateway.until_up()
            await vehicle.until_subscribed(up(0))
            await cloud.send(down(number) for number in range(20))
            await vehicle.send(up(number) for number in range(20))
            await gateway.until_total(40, "ustreamer_outcomes_total", outcome="delivered")
            gateway.configure()
            await gateway.do()
            assert numbers(vehicle.arrived) == numbers(cloud.arrived) == [*range(20)]
            assert not await is_kept(broker, "gateway-veh1")

            acl.write_text(gateway.text("acl") + everything)  # the test's gateway is anonymous: these are its rights
            broker.stop()
            broker.start()
            await cloud.reconnect()
            await gateway.do()
            await gateway.until_up()
            await vehicle.until_subscribed(replace(up(0), source=("veh2", 0xA8000, 2, 0x8A50)))
            await cloud.send(down(number, "veh2") for number in range(20, 40))
            await vehicle.send(replace(up(number), source=("veh2", 0xA8000, 2, 0x8A50)) for number in range(20, 40))
            await until(
                lambda: len(copies(cloud.arrived)) == len(copies(vehicle.arrived)) == 40, "everything under the new name"
            )
            assert {each.source[0] for each in cloud.arrived[20:]} == {"veh2"}
            assert gateway.total("ustreamer_unwanted_packets_total", endpoint="cloud") == 0
            assert gateway.total("ustreamer_dead_letters_total") == 0


async def test_flash_wear(tmp_path: Path) -> None:
    """That the figures are upper bounds: on a busy machine more messages share a transaction, and cost less."""

    def written(said: str) -> int:
        (line,) = re.findall(r"^write_bytes: (\d+)$", said, re.MULTILINE)
        return int(line)

    (alone,) = re.findall(r"\| at most (\d[\d ]+) if it comes alone", (PAGES / "flash-wear.md").read_text())
    with Broker() as broker:
        async with (
            Gateway(tmp_path, "flash-wear", {BROKER: broker.url}) as gateway,
            ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
        ):
            gateway.start()
            await gateway.until_up()
            await vehicle.until_subscribed(up(0))
            before = written(await gateway.do())
            gateway.configure()
            await gateway.do()
            await gateway.until_up()
            await vehicle.until_subscribed(up(0))
            broker.stop()
            await gateway.until_down("cloud")
            for number in range(50):
                await vehicle.send([replace(up(0), payload=b"1" * 256, id=uuid7())])
                await gateway.until_total(number + 1, "ustreamer_journal_written_messages_total")
            said = await gateway.do()
            assert "ustreamer_journal_written_messages_total 50" in said
            assert written(said) - before <= 50 * int(alone.replace(" ", ""))
            assert gateway.total("ustreamer_journal_bytes") <= 50 * (256 + 250)  # as the page about outages says


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
            found = await gateway.shell("sudo -u ustreamer streamer traces find 01938f2e-6a5b-7c21-9d3e-5f0a1b2c3d4e")
            assert found[0] == 1
            assert f"| none: `{found[1].splitlines()[-1]}` |" in (PAGES / "find-a-lost-message.md").read_text()
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
