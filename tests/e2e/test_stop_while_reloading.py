"""SIGTERM while a reload gives an endpoint another MQTT session: wherever the reload is, the earlier session ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import load
from streamer.daemon import Daemon
from streamer.features.every import FILE
from streamer.transports.base import LinkState
from tests.await_points import AwaitPoints, Point
from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.e2e.mqtt_sessions import is_kept
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.ports import HOST, free_port
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

SENT = 20


def order(number: int) -> Plain:
    return Plain(4, ("cloud", 0x80, 1, 0x8100), ("veh", 0x7F, 1, 0), b"%d" % number)


class Setup:
    """A daemon between two brokers, which is told to reload: its endpoint for the cloud gets another session."""

    def __init__(self, folder: Path, vehicle: Mosquitto, drain_s: float = 20) -> None:
        folder.mkdir()
        self.file = folder / "streamer.yaml"
        self._folder = folder
        self._vehicle = vehicle
        self._drain_s = drain_s
        self.daemon: Daemon

    def write(self, broker: str, client_id: str) -> None:
        options: dict[str, Any] = {"topics": "in-vehicle", "reconnect": {"initial_ms": 10}}
        cloud, vehicle = {"broker": broker, "client_id": client_id} | options, {"broker": self._vehicle.url} | options
        config = config_of(
            {"cloud": endpoint_of("mqtt5", "cloud", **cloud), "veh": endpoint_of("mqtt5", "veh", **vehicle)},
            [{"from": "cloud", "to": "veh"}],
            journal={"path": str(self._folder / "journal.db")},
            metrics={"listen": f"{HOST}:0"},
            shutdown={"drain_s": self._drain_s},
        )
        self.file.write_text(yaml.safe_dump(config))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[int]]:
        self.daemon = Daemon(load(self.file, kind=FILE), self.file)
        task = asyncio.create_task(self.daemon.run())
        try:
            links = [each for each in self.daemon.transports.values() if each.kind == "mqtt5"]
            await until(lambda: all(each.state is LinkState.UP for each in links), "UP")
            yield task
        finally:
            self.daemon.stop()
            await asyncio.gather(task, return_exceptions=True)

    async def reload_and_stop(self, stops_at: Callable[[Point], bool]) -> list[Point]:
        """Reload, and stop at the first point that is wanted, or afterwards; the points of the reload."""
        points: dict[Point, None] = {}

        def visit(point: Point) -> None:
            points[point] = None
            if stops_at(point):
                self.daemon.stop()

        watch = AwaitPoints(visit)
        with watch.watched_tasks():
            assert await asyncio.create_task(watch.watch(self.daemon.reload("test", "here"))) == []
        self.daemon.stop()
        return list(points)


@pytest.mark.parametrize("moves", [False, True], ids=["another client id", "another broker"])
async def test_wherever_a_reload_is_a_stop_ends_the_earlier_session(tmp_path: Path, moves: bool) -> None:
    """At each place where the reload waits. What has come to the session until then arrives, at the latest after a start."""
    with Mosquitto() as old, Mosquitto() as new, Mosquitto() as vehicle:
        points: list[Point | None] = [None]
        async with (
            MqttSide(vehicle.port, "in-vehicle", ["cloud/#"]) as display,
            MqttSide(old.port, "in-vehicle", []) as sender,
        ):
            for number, wanted in enumerate(points):  # which grow with the first one
                setup = Setup(tmp_path / str(number), vehicle)
                setup.write(old.url, "first")
                orders = [order(SENT * number + each) for each in range(SENT)]
                async with setup.running() as run:
                    setup.write(new.url if moves else old.url, "second")
                    sending = asyncio.create_task(sender.send(orders))
                    if moves:  # what comes after the end of the session is for nobody
                        await sending
                    found = await setup.reload_and_stop(lambda point, wanted=wanted: point == wanted)  # type: ignore[misc]
                    assert await run == 0
                await sending
                points += [] if wanted else found
                assert not await is_kept(old, "first"), wanted
                async with setup.running():
                    ids = {each.id for each in orders}
                    await until(lambda ids=ids: ids <= {each.id for each in display.arrived}, f"all, {wanted}")  # type: ignore[misc]
        assert len(points) > 10


async def test_a_stop_waits_no_longer_than_for_the_drain_and_says_what_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mosquitto() as old, Mosquitto() as vehicle:
        setup = Setup(tmp_path / "gw", vehicle, drain_s=0.1)
        setup.write(old.url, "first")
        async with setup.running() as run:
            setup.write(f"mqtt://{HOST}:{free_port()}", "second")
            await setup.reload_and_stop(lambda point: True)
            assert await run == 0
        assert await is_kept(old, "first")
    assert "session_left endpoint=cloud" in caplog.text
    assert "reason=there was no time" in caplog.text
