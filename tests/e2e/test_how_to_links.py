"""The how-to pages about the way to the cloud, each followed literally, with real brokers and a real Zenoh network."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.how_to import PAGES, TO_CLOUD, Broker, Gateway, copies, down, numbers, up
from tests.e2e.mqtt_sessions import is_kept
from tests.fault.proxy import ByteTap, Proxy
from tests.http_proxy import HttpProxyServer
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST
from tests.waiting import until

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]  # each runs a dozen commands

BROKER = "mqtt://127.0.0.1:1883"
PAGE_OF_DATA = PAGES / "limit-mobile-data.md"
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
                await vehicle.until_subscribed(up(0))
                broker.stop()
                await gateway.until_down("cloud")

                await vehicle.send(up(number, ttl=1) for number in range(5))
                await gateway.until_total(5, "ustreamer_outcomes_total", outcome="expired")
                await vehicle.send(up(number) for number in range(ROOM + 3))
                await gateway.until_total(3, "ustreamer_outcomes_total", outcome="dead_lettered")
                said = await gateway.do(lines=1)
                assert f'ustreamer_queue_messages{{egress="cloud",ingress="vehicle",route="vehicle-cloud"}} {ROOM}' in said
                assert 'ustreamer_endpoint_up{endpoint="cloud",transport="mqtt5"} 0' in said

                await gateway.service("stop")  # it was switched off, too
                broker.start()
                async with MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud:
                    await cloud.send(down(number) for number in range(1500))  # more than mosquitto keeps by default
                    await asyncio.to_thread(broker.restart)
                    await cloud.reconnect()
                    await gateway.service("start")
                    await until(lambda: len(numbers(vehicle.arrived)) == 1500, "everything for the vehicle")
                    await until(lambda: len(cloud.arrived) >= ROOM, "everything for the cloud")
                    assert [*map(int, (each.payload for each in cloud.arrived))] == [*range(3, ROOM + 3)]
                    assert numbers(vehicle.arrived) == [*range(1500)]
            said = await gateway.do()
            assert "8 dead letters" in said
            assert '"connected"' in said
            gateway.check_books()


NEW = "mqtt://new.example"


class Move(NamedTuple):
    """A running gateway that is to move from an old broker to a new one; ``before`` and ``after`` are clients of these."""

    gateway: Gateway
    vehicle: ZenohSide
    old: Broker
    before: MqttSide
    after: MqttSide


@asynccontextmanager
async def move(folder: Path) -> AsyncIterator[Move]:
    with Broker() as old, Broker() as new:
        places = {BROKER: old.url, NEW: new.url}
        async with (
            Gateway(folder, "another-broker", places) as gateway,
            MqttSide(old.port, "off-vehicle", TO_CLOUD) as before,
            MqttSide(new.port, "off-vehicle", TO_CLOUD) as after,
        ):
            gateway.start()
            async with ZenohSide(connect=[gateway.vehicle_at]) as vehicle:
                await gateway.until_up()
                await vehicle.until_subscribed(up(0))
                yield Move(gateway, vehicle, old, before, after)


async def test_another_broker(tmp_path: Path) -> None:
    async with move(tmp_path) as (gateway, vehicle, old, before, after):
        await vehicle.send(up(number) for number in range(50))
        await before.send(down(number) for number in range(50))
        gateway.configure()
        await gateway.do()
        await vehicle.send(up(number) for number in range(50, 100))
        await gateway.do()
        await after.send(down(number) for number in range(50, 100))
        await until(lambda: len(numbers(vehicle.arrived)) == 100, "everything for the vehicle")
        assert numbers(vehicle.arrived) == [*range(100)]
        await until(lambda: len(copies([*before.arrived, *after.arrived])) == 100, "everything for the cloud")
        assert (numbers(before.arrived), numbers(after.arrived)) == ([*range(50)], [*range(50, 100)])
        assert not await is_kept(old, "gateway-veh1")

        gateway.skip(1)  # the way for senders that cannot wait


async def test_senders_that_cannot_wait_for_another_broker(tmp_path: Path) -> None:
    async with move(tmp_path) as (gateway, vehicle, _, before, after):
        first = gateway.config
        gateway.skip(3)
        shown = gateway.configure()
        reload = f"streamer reload --config {gateway.path}"
        assert (await gateway.shell(reload))[0] == 0
        await gateway.until_up()
        await vehicle.send(up(number) for number in range(50))
        for number in range(50):
            await (before if number % 2 else after).send([down(number)])
        del shown["endpoints"]["cloud"], shown["permissions"]["endpoints"]["cloud"]
        shown["routes"] = [each for each in shown["routes"] if each["from"] != "cloud"]
        gateway.write(first | shown)
        status, said = await gateway.shell(reload)
        assert status == 0, said
        await vehicle.send(up(number) for number in range(50, 100))
        await after.send(down(number) for number in range(50, 100))
        await until(lambda: len(copies(vehicle.arrived)) == 100, "everything for the vehicle")
        await until(lambda: len(copies(after.arrived)) == 100, "everything for the cloud")
        assert before.arrived == []
        assert gateway.total("ustreamer_dead_letters_total") == 0


async def test_two_brokers(tmp_path: Path) -> None:
    with Broker() as one, Broker() as two:
        places = {"mqtts://one.example": one.url, "mqtts://two.example": two.url, "return_after_s: 300": "return_after_s: 1"}
        async with (
            Gateway(tmp_path, "two-brokers", places) as gateway,
            MqttSide(one.port, "off-vehicle", TO_CLOUD) as at_one,
            MqttSide(two.port, "off-vehicle", TO_CLOUD) as at_two,
            ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
        ):
            gateway.configure()
            gateway.start()
            await gateway.until_up()
            await vehicle.until_subscribed(up(0))
            await vehicle.send(up(number) for number in range(50))
            await until(lambda: numbers(at_one.arrived) == [*range(50)], "everything, at the first broker")
            one.stop()
            await until(lambda: "link_down" in gateway.log, "the loss of the first broker")
            await vehicle.send(up(number) for number in range(50, 100))
            await until(lambda: numbers(at_two.arrived) == [*range(50, 100)], "everything, at the second broker")
            assert f'"broker": "{HOST}:{two.port}"' in await gateway.do()
            one.start()
            connected = re.compile(rf'"connected", .*"{HOST}:{one.port}"')
            await until(lambda: len(connected.findall(gateway.log)) == 2, "the return")
            await at_one.reconnect()
            await vehicle.send(up(number) for number in range(100, 150))
            await until(lambda: numbers(at_one.arrived)[50:] == [*range(100, 150)], "everything, at the first broker again")


async def test_through_a_proxy(tmp_path: Path) -> None:
    with Broker() as broker:
        async with HttpProxyServer(credentials="gateway:PASSWORD") as proxy:
            places = {"mqtts://broker.example:8883": broker.url, "http://proxy.example:3128": proxy.url, " -g ustreamer": ""}
            async with (
                Gateway(tmp_path, "through-a-proxy", places) as gateway,
                MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
                ZenohSide(connect=[gateway.vehicle_at]) as vehicle,
            ):
                shown = gateway.configure()
                await gateway.do()
                gateway.configure()  # where only port 443 is allowed: nobody is there to try it with
                status, said = await gateway.shell("streamer check")
                assert status == 0, said
                gateway.write(gateway.config | shown)
                await gateway.do()
                gateway.start()
                await gateway.until_up()
                await vehicle.until_subscribed(up(0))
                await vehicle.send(up(number) for number in range(50))
                await cloud.send(down(number) for number in range(50))
                await until(lambda: numbers(cloud.arrived) == numbers(vehicle.arrived) == [*range(50)], "everything")
                assert proxy.heads[-1].startswith(f"CONNECT {HOST}:{broker.port} ".encode())


async def test_limit_mobile_data(tmp_path: Path) -> None:
    counted = ByteTap()
    with Broker() as broker:
        async with (
            Proxy(broker.port, counted) as link,
            Gateway(tmp_path, "limit-mobile-data", {BROKER: f"mqtt://{HOST}:{link.port}"}) as gateway,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
        ):
            gateway.start()
            async with ZenohSide(connect=[gateway.vehicle_at]) as vehicle:
                await gateway.until_up()
                rows = [[cell.strip() for cell in line.split("|")] for line in PAGE_OF_DATA.read_text().splitlines()]
                written = {cells[1]: cells[2] for cells in rows if len(cells) > 3}
                assert counted.bytes.total() <= int(written["a connection"].split(";")[0])
                gateway.configure()
                await gateway.do()
                await gateway.until_up()
                await vehicle.until_subscribed(up(0))
                costs = []
                for number, size in enumerate((64, 64, 256)):
                    before = counted.bytes.total()
                    await vehicle.send([replace(up(0), payload=b"1" * size)])
                    await gateway.until_total(number + 1, "ustreamer_outcomes_total", outcome="delivered")
                    costs.append(counted.bytes.total() - before)
                of_64, of_256 = (int(written[f"a Publish of {size} bytes"]) for size in (64, 256))
                assert costs == [of_64, of_64, of_256]

                cloud.arrived.clear()
                await vehicle.send(replace(up(number), source=("veh1", 0xA8000, 2, 0x8A51)) for number in range(50))
                # 4 600 bytes each for the rate: 43 may leave at once, then four in a second: also a slow machine is faster
                await vehicle.send(replace(up(number), payload=b"%04d" % number * 1000) for number in range(400))
                said = await gateway.do(lines=1)
                await until(lambda: len(cloud.arrived) > 43, "more than one burst")
                await gateway.until_total(403, "ustreamer_received_packets_total", endpoint="vehicle")
                assert 'ustreamer_outcomes_total{code="OK",egress="cloud",ingress="vehicle",outcome="delivered"' in said
                assert gateway.total("ustreamer_rate_limited_total", route="vehicle-cloud") > 0
                assert (
                    gateway.total("ustreamer_received_packets_total", endpoint="vehicle") == 403
                )  # the other topic is not received
                assert "vehicle-cloud" in await gateway.do()


async def test_two_gateways(tmp_path: Path) -> None:
    with Broker() as broker:
        places = {BROKER: broker.url}
        async with (
            Gateway(tmp_path / "first", None, places) as first,
            Gateway(tmp_path / "second", "two-gateways", places) as second,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
        ):
            first.start()
            second.configure()
            await second.do(lines=1)
            await second.do(lines=1)
            async with ZenohSide(connect=[first.vehicle_at, second.vehicle_at]) as vehicle:
                for gateway in (first, second):
                    await gateway.until_up()
                    await vehicle.until_subscribed(up(0))
                await second.do()  # ready
                await vehicle.send(up(number) for number in range(50))
                await cloud.send(down(number) for number in range(50))
                for side in (vehicle, cloud):
                    await until(lambda side=side: copies(side.arrived).total() == 100, "each message twice")  # type: ignore[misc]
                    assert copies(side.arrived) == Counter(dict.fromkeys(range(50), 2))
                    assert len({each.id for each in side.arrived}) == 50
                    side.arrived.clear()

                await second.do()  # stop
                await vehicle.send(up(number) for number in range(50, 100))
                await cloud.send(down(number) for number in range(50, 100))
                for side in (vehicle, cloud):
                    await until(lambda side=side: copies(side.arrived).total() == 50, "each message once")  # type: ignore[misc]
                    assert copies(side.arrived) == Counter(range(50, 100))
                    side.arrived.clear()

                await second.do()  # start
                await second.until_up()
                await until(
                    lambda: copies(vehicle.arrived) == Counter(range(50, 100)), "the copies that the broker has kept"
                )
                await vehicle.send([up(100)])
                await until(lambda: copies(cloud.arrived) == Counter({100: 2}), "the message, twice")
