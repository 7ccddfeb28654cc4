"""Who counts as a receiver for a pair whose streamers are connected to each other over Zenoh: nobody of the two."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import any_broker
from tests.configurations import config_of, endpoint_of
from tests.e2e.pairs import APP, EVERYTHING, Gateways
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.ports import HOST, free_port
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, links, raw_peer

MESSAGES = 50
KEY = "up/*/*/*/*/*/veh1/8000/A/2/0"
"""What a program of the vehicle subscribes to."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


class NearGateways(Gateways):
    """Both listen in the vehicle, and the second one connects to the first."""

    async def start(self, more: dict[str, Any] | None = None, **options: Any) -> None:
        """``more``: instead of sections of both configurations; ``options``: those of the endpoint in the vehicle."""
        self.broker = self._stack.enter_context(any_broker())
        self.places = [free_endpoint(), free_endpoint()]
        port, key = free_port(), self._folder / "key"
        key.write_text("k" * 40)
        key.chmod(0o600)
        for name, where, listen, connect in (
            ("a", "listen", self.places[0], []),
            ("b", "connect", self.places[1], self.places[:1]),
        ):
            folder = self._folder / name
            folder.mkdir()
            vehicle = {"mode": "peer", "listen": [listen], "connect": connect, **options}
            config = config_of(
                {
                    "vehicle": endpoint_of("zenoh", "veh1", **vehicle),
                    "cloud": endpoint_of("mqtt5", "*", broker=self.broker.url, topics="off-vehicle", client_id="the-pair"),
                },
                [
                    {"from": "vehicle", "to": "cloud", "publish": [f"//veh1/{EVERYTHING}"], "publish_to": ["cloud"]},
                    {"from": "cloud", "to": "vehicle"},
                ],
                journal={"path": str(folder / "journal.db")},
                pair={where: f"{HOST}:{port}", "key_file": str(key)},
            )
            self.daemons.append(StreamerProcess(folder, config | (more or {})))
            self.daemons[-1].start()
            self._stack.push_async_exit(self.daemons[-1])
        await self.until_both_connected()
        self.cloud = await self._stack.enter_async_context(MqttSide(self.broker.port, "off-vehicle", ["+/cloud"]))

    async def until_both_connected(self) -> None:
        """One is active and connected to the broker, and the other one has a copy."""

        def are_there() -> bool:
            pairs = [json.loads(body or "{}") for _, body in (daemon.get("/api/v1/pair") for daemon in self.daemons)]
            return sorted(each.get("role", "") for each in pairs) == ["active", "standby"] and all(
                each.get("protected") for each in pairs
            )

        await until(are_there, "a pair", within_s=60)
        await until(lambda: self.active.total("ustreamer_endpoint_up", endpoint="cloud") == 1, "the broker", within_s=60)
        await until(lambda: links(self.places[0]) > 0, "a link between the two in the vehicle", within_s=60)


def notifications(start: int = 0, number: int = MESSAGES) -> list[Plain]:
    return [Plain(4, ("cloud", 0xC0, 1, 0x8001), APP, b"%d" % each) for each in range(start, start + number)]


@pytest.fixture
async def near(tmp_path: Path) -> AsyncIterator[NearGateways]:
    async with AsyncExitStack() as stack:
        yield NearGateways(tmp_path, stack)


def settled(daemon: StreamerProcess) -> dict[tuple[str, ...], float]:
    return daemon.samples("ustreamer_outcomes_total", route="cloud-vehicle")


async def until_waiting(daemon: StreamerProcess, number: int) -> None:
    """Exactly so many messages wait for a receiver: they have been tried, as far as anybody seemed to listen."""
    await until(
        lambda: (
            daemon.total("ustreamer_queue_messages", route="cloud-vehicle") == number
            and daemon.total("ustreamer_unconfirmed_messages", route="cloud-vehicle") == 0
        ),
        "messages that wait",
        within_s=60,
    )


async def all_arrive(near: NearGateways, sent: list[Plain]) -> None:
    """The vehicle's program comes, and gets everything once, in order."""
    async with ZenohSide(connect=near.places, keys=[KEY]) as vehicle:
        await until(lambda: len(vehicle.arrived) >= len(sent), "everything", within_s=60)
        assert [each.id for each in vehicle.arrived] == [each.id for each in sent]


async def test_while_nobody_of_the_vehicle_is_there_messages_wait(near: NearGateways) -> None:
    await near.start()
    sent = notifications()
    await near.cloud.send(sent)
    await until_waiting(near.active, MESSAGES)
    assert settled(near.active) == {}
    await all_arrive(near, sent)


async def test_a_node_that_listens_to_something_else_is_no_receiver_beside_a_standby(near: NearGateways) -> None:
    await near.start()
    with raw_peer(connect=near.places) as bystander:
        elsewhere = bystander.declare_subscriber("up/*/*/*/*/*/veh1/1/0/1/0", lambda sample: None)
        await near.active.until_up()
        sent = notifications()
        await near.cloud.send(sent)
        await until_waiting(near.active, MESSAGES)
        assert settled(near.active) == {}
        await all_arrive(near, sent)
        elsewhere.undeclare()


async def test_after_both_are_killed_and_back_nothing_is_lost_while_nobody_is_there(near: NearGateways) -> None:
    await near.start()
    sent: list[Plain] = []
    for start in range(0, 3 * MESSAGES, MESSAGES):
        sent += (more := notifications(start))
        await near.cloud.send(more)
        await until_waiting(near.active, len(sent))
        for daemon in near.daemons:
            daemon.signal(signal.SIGKILL)
        for daemon in near.daemons:
            await daemon.ended()
            daemon.start()
        await near.until_both_connected()
        await until_waiting(near.active, len(sent))
    await all_arrive(near, sent)


@pytest.mark.parametrize("sign", ["killed", "frozen", "restarted"])
async def test_the_loss_of_the_standby_is_no_sign_of_a_loss(near: NearGateways, sign: str) -> None:
    await near.start()
    active, standby = near.active, near.other_than(near.active)
    async with ZenohSide(connect=near.places, keys=[KEY], settings={"transport/link/tx/lease": 60_000}) as vehicle:
        await near.active.until_up()
        sent = notifications(0, 200)
        await near.cloud.send(sent)  # unconfirmed for long: the vehicle is heard every 15 s
        await until(lambda: len(vehicle.arrived) == 200, "everything")
        standby.signal(signal.SIGSTOP if sign == "frozen" else signal.SIGKILL)
        if sign == "frozen":
            await until(lambda: links(near.places[0]) == 1, "the end of its lease", within_s=60)
            standby.signal(signal.SIGCONT)
        else:
            await standby.ended()
        if sign == "restarted":
            standby.start()
            await near.until_both_connected()
            await until(lambda: links(near.places[0]) == 2, "both others", within_s=60)
        sent += (more := notifications(200, 200))
        await near.cloud.send(more)
        await until(lambda: len(vehicle.arrived) >= len(sent), "the rest", within_s=60)
        await until(lambda: active.total("ustreamer_unconfirmed_messages") == 0, "all confirmed", within_s=60)
        assert [each.id for each in vehicle.arrived] == [each.id for each in sent]


async def test_a_frozen_active_one_is_no_receiver_and_its_loss_no_sign_once_the_other_works(near: NearGateways) -> None:
    await near.start()
    frozen, other = near.active, near.other_than(near.active)
    async with ZenohSide(connect=near.places, keys=[KEY]) as vehicle:
        await frozen.until_up()
        await near.cloud.send(notifications(0, 200))  # what was delivered in the last half second may come twice
        await until(lambda: frozen.total("ustreamer_outcomes_total", route="cloud-vehicle") == 200, "all confirmed")
        frozen.signal(signal.SIGSTOP)
        await until(lambda: other.total("ustreamer_pair_active") == 1, "the other one works", within_s=60)
        await other.until_up()
        sent = notifications(200, 200)
        await near.cloud.send(sent)
        await until(lambda: links(near.places[1 if other is near.daemons[1] else 0]) == 1, "the frozen one's lease", 60)
        await until(lambda: other.total("ustreamer_unconfirmed_messages") == 0, "all confirmed", within_s=60)
        frozen.signal(signal.SIGCONT)
        await near.until_both_connected()
        wanted = {each.id for each in sent}
        assert [each.id for each in vehicle.arrived if each.id in wanted] == [each.id for each in sent]
