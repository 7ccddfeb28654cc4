"""The how-to page about a pair, followed literally on two gateways."""

import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.e2e.how_to import TO_CLOUD, Broker, Gateway, copies, down, up
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST, free_port
from tests.waiting import until

pytestmark = [pytest.mark.mosquitto, pytest.mark.timeout(300)]  # it runs a dozen commands

LINK = "192.168.7.1:7420"


async def until_ready(gateway: Gateway) -> None:
    def is_ready() -> bool:
        status, body = gateway.get("/readyz")
        return status == 200 and bool(json.loads(body)["ready"])

    await until(is_ready, "a gateway that is ready", within_s=60)


async def until_pair(active: Gateway, standby: Gateway) -> None:
    """Until the one works and the other has a copy of everything."""
    await active.until_total(1, "ustreamer_pair_active")
    await standby.until_total(0, "ustreamer_pair_active")
    await active.until_up()
    await until_ready(standby)


async def crosses(vehicle: ZenohSide, cloud: MqttSide, numbers: Iterable[int]) -> None:
    """Each of these arrives once, in both directions. A few of those before may come twice, after a kill."""
    numbers = list(numbers)

    def arrived(side: ZenohSide | MqttSide) -> Counter[int]:
        return Counter({number: count for number, count in copies(side.arrived).items() if number in numbers})

    await vehicle.send(map(up, numbers))
    await cloud.send(map(down, numbers))
    for side in (vehicle, cloud):
        await until(lambda side=side: len(arrived(side)) == len(numbers), "all of them")  # type: ignore[misc]
        assert arrived(side) == Counter(numbers)


async def test_run_a_pair(tmp_path: Path) -> None:
    with Broker() as broker:
        places = {"mqtt://127.0.0.1:1883": broker.url, LINK: f"{HOST}:{free_port()}"}
        async with (
            Gateway(tmp_path / "first", None, places) as first,
            Gateway(tmp_path / "second", "run-a-pair", places) as second,
            MqttSide(broker.port, "off-vehicle", TO_CLOUD) as cloud,
        ):
            await second.do()
            key = "/etc/ustreamer/pair.key"
            assert second.place(key).stat().st_mode & 0o777 == 0o640
            shutil.copy(second.place(key), first.place(key))
            first.configure(second)
            second.configure()
            await first.service("start")
            await first.until_total(1, "ustreamer_pair_active")
            await second.do()
            async with ZenohSide(connect=[first.vehicle_at, second.vehicle_at]) as vehicle:
                await until_pair(first, second)
                await vehicle.until_subscribed(up(0))
                await second.do()  # see that it works
                await crosses(vehicle, cloud, range(50))

                await second.service("restart")  # upgrade
                await until_pair(first, second)
                await first.do(page=second)  # handover
                await until_pair(second, first)
                await crosses(vehicle, cloud, range(50, 100))

                second.signal(signal.SIGKILL)
                await second.ended()
                shutil.rmtree(second.place("/var/lib/streamer"))  # the machine is gone
                second.place("/var/lib/streamer").mkdir()
                await first.until_total(1, "ustreamer_pair_active")
                await first.until_up()
                await second.service("start")
                await until_pair(first, second)
                await crosses(vehicle, cloud, range(100, 150))

                for gateway in (first, second):
                    gateway.write(gateway.config | {"remember": {"ids": 100_000}})
                await second.service("restart")
                await second.until_total(1, "ustreamer_pair_differs")
                assert (await first.shell("streamer reload"))[0] == 0
                await second.until_total(0, "ustreamer_pair_differs")
                await until_pair(first, second)
                await crosses(vehicle, cloud, range(150, 200))
