"""Two streamers as a pair, a broker behind them, and a vehicle before them. No tests."""

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.brokers import any_broker
from tests.configurations import config_of, endpoint_of
from tests.fault.hanging_disk import WHILE
from tests.fault.hanging_disk import preloaded as preloaded_library
from tests.fault.proxy import Proxy
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST, free_port
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

EVERYTHING = "FFFFFFFF/FF/FFFF"
APP = ("veh1", 0xA8000, 2, 0)


class Gateways:
    """The two streamers, a broker behind them, and a vehicle before them."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.daemons: list[StreamerProcess] = []
        self.names: Sequence[str] = ("a", "b")
        self.disks_can_hang = False
        self.ways: dict[str, Proxy] = {}  # to the vehicle
        self.ways_to_broker: dict[str, Proxy] = {}
        self.client_ids: dict[str, str] = {}
        """Those that are not "the-pair", by name."""

    async def start(self, more: dict[str, Any] | None = None, **options: Any) -> None:
        """``more``: sections of both configurations; ``options``: those of `pair`."""
        self.broker = self._stack.enter_context(any_broker())
        endpoint = free_endpoint()
        self.ways = {}
        self.car = await self._stack.enter_async_context(ZenohSide(listen=[endpoint]))
        port, key = free_port(), self._folder / "key"
        self.link = await self._stack.enter_async_context(Proxy(port))
        key.write_text("k" * 40)
        key.chmod(0o600)
        environ = preloaded_library(self._folder) if self.disks_can_hang else {}
        for name in self.names:
            where = "listen" if name == "a" else "connect"
            folder = self._folder / name
            folder.mkdir()
            reached = port if where == "listen" else self.link.port
            way = self.ways[name] = await self._stack.enter_async_context(Proxy(int(endpoint.rpartition(":")[2])))
            to_broker = self.ways_to_broker[name] = await self._stack.enter_async_context(Proxy(self.broker.port))
            pair = {where: f"{HOST}:{reached}", "key_file": str(key), **options}
            self.daemons.append(
                StreamerProcess(
                    folder,
                    configuration(
                        folder,
                        f"mqtt://{HOST}:{to_broker.port}",
                        f"tcp/{HOST}:{way.port}",
                        pair,
                        self.client_ids.get(name, "the-pair"),
                    )
                    | (more or {}),
                    environ | {WHILE: str(folder / "hangs")},
                    program=(sys.executable, "-m", "streamer") if self.disks_can_hang else None,
                )
            )
            self.daemons[-1].start()
            self._stack.push_async_exit(self.daemons[-1])
        if len(self.names) > 1:
            await self.until_both_ready()
            await self.until_up()
        else:
            await self.daemons[0].until_up()
        self.cloud = await self._stack.enter_async_context(MqttSide(self.broker.port, "off-vehicle", ["+/cloud"]))

    @property
    def active(self) -> StreamerProcess:
        return next(each for each in self.daemons if each.total("ustreamer_pair_active") == 1)

    def other_than(self, daemon: StreamerProcess) -> StreamerProcess:
        return next(each for each in self.daemons if each is not daemon)

    async def until_both_ready(self) -> None:
        """One is active, and the other one could take over without a loss."""

        def are_ready() -> bool:
            answers = [daemon.get("/readyz") for daemon in self.daemons]
            totals = [daemon.total("ustreamer_pair_active") for daemon in self.daemons if answers]
            return [status for status, _ in answers] == [200, 200] and sorted(totals) == [0, 1]

        await until(are_ready, "both are ready", within_s=60)

    async def until_not_ready(self, daemon: StreamerProcess, why: str) -> None:
        """It says that it is not ready, and why."""
        await until(lambda: why in daemon.get("/readyz")[1], f"it is not ready: {why}")
        assert daemon.get("/readyz")[0] == 503

    async def until_both_lack(self, number: int) -> None:
        """Both say that the standby lacks so many nodes and brokers: the active one hears of it with the next report."""
        for daemon in self.daemons:
            await until(lambda daemon=daemon: daemon.total("ustreamer_pair_lacks") == number, f"it lacks {number}")  # type: ignore[misc]

    async def until_protected(self) -> None:
        """The active one says that the other one could take over."""
        await until(lambda: json.loads(self.active.get("/api/v1/pair")[1])["problem"] == "", "it is protected")

    async def until_up(self) -> None:
        """The active one is connected to the broker."""
        await self.active.until_up()


def configuration(
    folder: Path, broker: str, endpoint: str, pair: dict[str, Any], client_id: str = "the-pair"
) -> dict[str, Any]:
    return config_of(
        {
            "vehicle": endpoint_of("zenoh", "veh1", mode="peer", connect=[endpoint]),
            "cloud": endpoint_of("mqtt5", "*", broker=broker, topics="off-vehicle", client_id=client_id),
        },
        [
            {"from": "vehicle", "to": "cloud", "publish": [f"//veh1/{EVERYTHING}"], "publish_to": ["cloud"]},
            {"from": "cloud", "to": "vehicle", "publish": [f"//cloud/{EVERYTHING}"]},
        ],
        journal={"path": str(folder / "journal.db")},
        pair=pair,
    )
