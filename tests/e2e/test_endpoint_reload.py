"""A broker moves, a Zenoh network moves, an endpoint goes and comes back: by a reload, under load, without a loss.

The senders keep the ledger: whatever they were rid of has to arrive, at the old place or at the new one.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.brokers import Mosquitto
from tests.configurations import config_of, endpoint_of
from tests.e2e.mqtt_sessions import is_kept
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint

pytestmark = pytest.mark.mosquitto

SENT = 300
PACE_S = 0.005
TOPICS = ["veh/#", "gw/#"]
DISPLAY = ("veh", 0x7F, 1, 0)
CLOUD = ("cloud", 0x80, 1, 0)


def up(number: int) -> Plain:
    return Plain(4, ("veh", 0x100, 1, 0x8100), CLOUD, b"%d" % number)


def down(number: int) -> Plain:
    return Plain(4, ("cloud", 0x80, 1, 0x8100), DISPLAY, b"%d" % number)


def config(directory: Path, vehicle_at: str, broker: Mosquitto | None) -> dict[str, Any]:
    """Without a broker there is no endpoint for the cloud."""
    vehicle = endpoint_of("zenoh", "veh", mode="peer", connect=[vehicle_at], uncertain_s=1)
    options = None if broker is None else {"broker": broker.url, "topics": "in-vehicle"}
    cloud = {"transport": "mqtt5", "authorities": ["cloud"], "options": options}
    return config_of(
        {"veh": vehicle} if broker is None else {"veh": vehicle, "cloud": cloud},
        [] if broker is None else [{"from": "veh", "to": "cloud"}, {"from": "cloud", "to": "veh"}],
        shutdown={"drain_s": 5},
        journal={"path": str(directory / "journal.db")},
    )


async def reload(daemon: StreamerProcess, changed: dict[str, Any]) -> None:
    """Have the daemon use another configuration, and wait until it does."""
    kept = {key: daemon.config[key] for key in ("metrics", "log") if key in daemon.config}
    daemon.write(kept | changed)
    token = Path(daemon.config["journal"]["path"]).with_name("journal-token").read_text().strip()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = Request(f"http://127.0.0.1:{daemon.admin}/api/v1/reload", b"{}", headers)

    def post() -> int:
        with urlopen(request, timeout=60) as answer:
            return int(answer.status)

    assert await asyncio.to_thread(post) == 200, daemon.log


@asynccontextmanager
async def sending(side: ZenohSide | MqttSide, messages: list[Plain]) -> AsyncIterator[asyncio.Event]:
    """Messages leave at a pace meanwhile, and all have left in the end. The event is set when half of them have."""
    half = asyncio.Event()

    async def send() -> None:
        for number, message in enumerate(messages):
            await side.send([message])
            if number == len(messages) // 2:
                half.set()
            await asyncio.sleep(PACE_S)

    task = asyncio.create_task(send())
    try:
        yield half
        await task
    finally:
        task.cancel()


async def until_all(sent: list[Plain], *sides: ZenohSide | MqttSide) -> Counter[bytes]:
    """Wait until everything has arrived somewhere; how often each message did."""

    def arrived() -> Counter[bytes]:
        return Counter(each.id for side in sides for each in side.arrived)

    owed = {message.id for message in sent}
    await until(lambda: owed <= arrived().keys(), f"{len(owed)} messages", within_s=40)
    return arrived()


def in_order(arrived: Iterable[Plain]) -> bool:
    """Whether the messages of a flow, without repetitions, are in the order of their payloads."""
    numbers = list(dict.fromkeys(int(each.payload) for each in arrived))
    return numbers == sorted(numbers)


async def test_a_broker_moves_while_the_vehicle_sends(tmp_path: Path) -> None:
    at = free_endpoint()
    with Mosquitto() as old, Mosquitto() as new:
        async with (
            MqttSide(old.port, "in-vehicle", TOPICS) as before,
            MqttSide(new.port, "in-vehicle", TOPICS) as after,
            ZenohSide(listen=[at]) as vehicle,
            StreamerProcess(tmp_path, config(tmp_path, at, old)) as daemon,
        ):
            await vehicle.until_subscribed(up(0))
            sent = [up(number) for number in range(SENT)]
            async with sending(vehicle, sent) as half:
                await half.wait()
                await reload(daemon, config(tmp_path, at, new))
            await until_all(sent, before, after)
            assert (in_order(before.arrived), in_order(after.arrived)) == (True, True)
            assert before.arrived
            assert after.arrived
            orders = [down(number) for number in range(50)]
            await after.send(orders)
            await until_all(orders, vehicle)
            assert daemon.total("ustreamer_dead_letters_total") == 0


@pytest.mark.parametrize("moves", [False, True], ids=["another client id", "another broker"])
async def test_what_the_old_session_keeps_is_delivered_and_the_session_ends(tmp_path: Path, moves: bool) -> None:
    at = free_endpoint()
    with Mosquitto() as old, Mosquitto() as new:
        changed = config(tmp_path, at, new if moves else old)
        if not moves:
            changed["endpoints"]["cloud"]["options"]["client_id"] = "other"
        async with (
            MqttSide(old.port, "in-vehicle", TOPICS) as cloud,
            ZenohSide(listen=[at]) as vehicle,
            StreamerProcess(tmp_path, config(tmp_path, at, old)) as daemon,
        ):
            await daemon.until_up()
            sent = [down(number) for number in range(SENT)]
            async with sending(cloud, sent) as half:
                await half.wait()
                await reload(daemon, changed)
            if not moves:
                await until_all(sent, vehicle)

            def has_all_before_the_end() -> bool:
                numbers = {int(each.payload) for each in vehicle.arrived}
                return len(numbers) > SENT // 2 and numbers == set(range(len(numbers)))

            await until(has_all_before_the_end, "what the session kept until its end")
            assert not await is_kept(old, "gw")
            assert "session_ended" in daemon.log
            assert daemon.total("ustreamer_dead_letters_total") == 0


async def test_a_vehicle_moves_while_the_cloud_sends(tmp_path: Path) -> None:
    old, new = free_endpoint(), free_endpoint()
    with Mosquitto() as broker:
        async with (
            MqttSide(broker.port, "in-vehicle", TOPICS) as cloud,
            ZenohSide(listen=[old]) as before,
            ZenohSide(listen=[new]) as after,
            StreamerProcess(tmp_path, config(tmp_path, old, broker)) as daemon,
        ):
            sent = [down(number) for number in range(SENT)]
            async with sending(cloud, sent) as half:
                await half.wait()
                await reload(daemon, config(tmp_path, new, broker))
            await until_all(sent, before, after)
            assert (in_order(before.arrived), in_order(after.arrived)) == (True, True)
            assert before.arrived
            assert after.arrived
            assert daemon.total("ustreamer_dead_letters_total") == 0


async def test_what_waits_for_an_endpoint_that_goes_can_be_sent_again_once_it_is_back(tmp_path: Path) -> None:
    at = free_endpoint()
    with Mosquitto() as broker:
        async with ZenohSide(listen=[at]) as vehicle, StreamerProcess(tmp_path, config(tmp_path, at, broker)) as daemon:
            await vehicle.until_subscribed(up(0))
            broker.stop()
            await daemon.until_down("cloud")
            sent = [up(number) for number in range(20)]
            await vehicle.send(sent)
            await daemon.until_total(len(sent), "ustreamer_queue_messages", route="veh-cloud")
            await reload(daemon, config(tmp_path, at, None))
            (removed,) = [json.loads(line) for line in daemon.log.splitlines() if "endpoint_removed" in line]
            assert removed["dead_letters"] == len(sent)
            broker.start()
            async with MqttSide(broker.port, "in-vehicle", TOPICS) as cloud:
                await reload(daemon, config(tmp_path, at, broker))
                await daemon.until_up()
                redrive = [
                    sys.executable,
                    "-m",
                    "streamer",
                    "dead-letters",
                    "redrive",
                    "--config",
                    str(daemon.path),
                    "--all",
                    "--yes",
                ]
                done = await asyncio.to_thread(subprocess.run, redrive, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                assert set((await until_all(sent, cloud)).values()) == {1}


async def test_a_stop_in_the_middle_of_a_change_loses_nothing(tmp_path: Path) -> None:
    """The vehicle's network is being left when SIGTERM comes; what it has not confirmed is sent by the next start."""
    old, new = free_endpoint(), free_endpoint()
    with Mosquitto() as broker:
        first = config(tmp_path, old, broker)
        first["endpoints"]["veh"]["options"]["uncertain_s"] = first["shutdown"]["drain_s"] = 30
        async with AsyncExitStack() as stack:
            before = await stack.enter_async_context(ZenohSide(listen=[old]))
            async with MqttSide(broker.port, "in-vehicle", TOPICS) as cloud, StreamerProcess(tmp_path, first) as daemon:
                sent = [down(number) for number in range(100)]
                await cloud.send(sent)
                await until_all(sent, before)
                moved = config(tmp_path, new, broker) | {"shutdown": {"drain_s": 30}}
                reloading = asyncio.create_task(reload(daemon, moved))
                await until(lambda: "endpoint_drain_began" in daemon.log, "the drain")
                assert not reloading.done()
                daemon.signal(signal.SIGTERM)
                assert await daemon.ended() == 0
                await asyncio.gather(reloading, return_exceptions=True)
                await stack.aclose()
                async with ZenohSide(listen=[new]) as after:
                    daemon.start()
                    await until_all(sent, after)
