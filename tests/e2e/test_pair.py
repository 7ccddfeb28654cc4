"""Two streamers, one active and one on standby."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import any_broker
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST, free_port
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

EVERYTHING = "FFFFFFFF/FF/FFFF"
APP = ("veh1", 0xA8000, 2, 0)


class Gateways:
    def __init__(self, folder: Path, broker: Any, endpoint: str) -> None:
        port = free_port()
        (folder / "key").write_text("k" * 40)
        self.daemons = []
        for name, where in (("a", "listen"), ("b", "connect")):
            (folder / name).mkdir()
            self.daemons.append(
                StreamerProcess(
                    folder / name,
                    {
                        "authority": "gw",
                        "endpoints": {
                            "vehicle": {
                                "transport": "zenoh",
                                "authorities": ["veh1"],
                                "options": {"mode": "peer", "connect": [endpoint]},
                            },
                            "cloud": {
                                "transport": "mqtt5",
                                "authorities": ["*"],
                                "options": {"broker": broker.url, "topics": "off-vehicle", "client_id": "the-pair"},
                            },
                        },
                        "routes": [
                            {"from": "vehicle", "to": "cloud", "publish": [f"//veh1/{EVERYTHING}"], "publish_to": ["cloud"]},
                            {"from": "cloud", "to": "vehicle", "publish": [f"//cloud/{EVERYTHING}"]},
                        ],
                        "journal": {"path": str(folder / name / "journal.db")},
                        "pair": {where: f"{HOST}:{port}", "key_file": str(folder / "key")},
                    },
                )
            )


@pytest.mark.long
async def test_a_kill(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(any_broker())
        endpoint = free_endpoint()
        car = await stack.enter_async_context(ZenohSide(listen=[endpoint]))
        gateways = Gateways(tmp_path, broker, endpoint)
        for daemon in gateways.daemons:
            daemon.start()
            stack.push_async_exit(daemon)
        await until(lambda: "pair_role" in gateways.daemons[0].log + gateways.daemons[1].log, "a role")
        working = next(each for each in gateways.daemons if "pair_role" in each.log)
        other = next(each for each in gateways.daemons if each is not working)
        await working.until_up()
        cloud = await stack.enter_async_context(MqttSide(broker.port, "off-vehicle", ["+/cloud"]))
        sent = [Plain(4, ("cloud", 0xC0, 1, 0x8001), APP, b"%d" % n) for n in range(2000)]
        up = [Plain(4, ("veh1", 0xA8000, 2, 0x8002), ("cloud", 0xC0, 1, 0), b"%d" % n) for n in range(2000)]

        async def feed() -> None:
            for n in range(0, 2000, 50):
                await cloud.send(sent[n : n + 50])
                car._put_all(up[n : n + 50])
                await asyncio.sleep(0.1)

        await until(lambda: other.log.count("pair_link_up"), "link")
        task = asyncio.create_task(feed())
        await until(lambda: len(car.arrived) > 300, "some")
        t = time.monotonic()
        working.signal(signal.SIGKILL)
        n0 = len(car.arrived)
        await until(lambda: len(car.arrived) > n0 + 60, "more")
        print("took", time.monotonic() - t)
        await task
        down = {m.id for m in sent}
        try:
            await until(lambda: len({m.id for m in car.arrived} & down) == 2000, "all of them", within_s=15)
        finally:
            ids = [m.id for m in car.arrived if m.id in down]
            print("down", len(set(ids)), "twice", len(ids) - len(set(ids)))
            upids = {m.id for m in up}
            got = [m.id for m in cloud.arrived if m.id in upids]
            print("up", len(set(got)), "twice", len(got) - len(set(got)))
            print(other.log[-6000:])
        assert False
