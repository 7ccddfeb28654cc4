"""A broker is restarted, killed or away: what was acknowledged to its sender arrives, in order, present values first."""

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.topology import Network, Topology
from tests.fault.mqtt_tap import MqttTap
from tests.independent.message import Plain, Uri, inversions
from tests.independent.mqtt import MqttSide
from tests.lengths import at_length
from tests.waiting import until

COUNT = at_length(20_000, 3_000)
UNCONFIRMED = 100
FIRST, SECOND = "mosquitto/off-vehicle", "mosquitto/in-vehicle"
ROUNDS = at_length(200, 20)
TOPICS = 100
LATEST, ALL = ([("alpha", kind + number, 1, 0x8001) for number in range(TOPICS)] for kind in (0x1000, 0x2000))
EVERYTHING = [*LATEST, *ALL]

pytestmark = pytest.mark.mosquitto


def numbered(count: int = COUNT) -> list[Plain]:
    return [Plain(1, ("alpha", 0x100 + n % 10, 1, 0x8001), payload=n.to_bytes(4, "big")) for n in range(count)]


def ids(messages: Iterable[Plain]) -> set[bytes]:
    return {message.id for message in messages}


def mqtt_side(network: Network) -> MqttSide:
    assert isinstance(network.side, MqttSide)
    return network.side


async def send_into_a_stopped_broker(topology: Topology, tap: MqttTap, messages: list[Plain]) -> None:
    """Send everything. The far broker is stopped half way (SIGSTOP), and has many of the messages before it unconfirmed."""
    near, far = topology.networks
    assert far.broker is not None
    await near.side.send(near.as_sent(m) for m in messages[: COUNT // 2])
    await until(lambda: len(far.side.arrived) > COUNT // 10, what="a tenth of the messages")
    os.kill(far.broker.pid, signal.SIGSTOP)
    await near.side.send(near.as_sent(m) for m in messages[COUNT // 2 :])
    await until(lambda: len(set(tap.sent) - tap.confirmed) >= UNCONFIRMED, what="unconfirmed messages")


async def test_far_broker_restarts_and_nothing_is_missing() -> None:
    """MQTT → MQTT. The far broker saves its sessions when it stops, so it loses nothing of its own."""
    tap = MqttTap()
    async with Topology(FIRST, SECOND, broker={"persistence": True}, tap=tap) as topology:
        _, far = topology.networks
        messages = numbered()
        receiver = mqtt_side(far)
        await send_into_a_stopped_broker(topology, tap, messages)
        assert far.broker is not None
        os.kill(far.broker.pid, signal.SIGCONT)
        await asyncio.to_thread(far.broker.restart)
        await receiver.reconnect()
        await until(lambda: ids(receiver.arrived) == ids(messages), within_s=60, what="arrival of everything")
        assert inversions(receiver.arrived, messages) == 0
        await topology.daemon.until_total(COUNT, "ustreamer_outcomes_total", route="first-second", outcome="delivered")
        assert topology.daemon.total("ustreamer_reconnects_total", endpoint="second") == 1
        assert topology.daemon.total("ustreamer_dead_letters_total") == 0
        topology.daemon.check_books()


async def test_far_broker_is_killed_and_what_it_had_not_confirmed_arrives() -> None:
    """MQTT → MQTT. A killed broker loses what it had in memory: of that, only what it had confirmed may be missing.

    What it had confirmed is read on the wire, what arrived at the client: the daemon is not asked.
    """
    tap = MqttTap()
    async with Topology(FIRST, SECOND, tap=tap) as topology:
        _, far = topology.networks
        messages = numbered()
        receiver = mqtt_side(far)
        await send_into_a_stopped_broker(topology, tap, messages)
        assert far.broker is not None
        await asyncio.to_thread(far.broker.kill)
        await until(lambda: receiver.is_lost, what="the receiver's end of the link")
        await topology.daemon.until_down("second")
        lost_by_broker = tap.confirmed - ids(receiver.arrived)
        await asyncio.to_thread(far.broker.start)
        await receiver.reconnect()
        await until(
            lambda: ids(messages) - ids(receiver.arrived) <= lost_by_broker,
            within_s=60,
            what="arrival of everything that the broker had not confirmed",
        )
        assert inversions(receiver.arrived, messages) == 0
        topology.daemon.check_books()


async def test_near_broker_restarts_and_nothing_is_missing() -> None:
    """MQTT → Zenoh. What the near broker acknowledged to the sender, before and after, arrives."""
    async with Topology(FIRST, "zenoh", broker={"persistence": True}) as topology:
        near, far = topology.networks
        messages = [near.as_sent(m) for m in numbered()]
        sender = mqtt_side(near)
        await sender.send(messages[: COUNT // 2])
        await until(lambda: len(far.side.arrived) > COUNT // 10, what="a tenth of the messages")
        assert near.broker is not None
        await asyncio.to_thread(near.broker.restart)
        await sender.reconnect()
        await sender.send(messages[COUNT // 2 :])
        await until(lambda: ids(far.side.arrived) == ids(messages), within_s=60, what="arrival of everything")
        assert inversions(far.side.arrived, messages) == 0
        assert topology.daemon.total("ustreamer_dead_letters_total") == 0
        topology.daemon.check_books()


async def test_urgent_messages_overtake_a_full_queue() -> None:
    """Zenoh → MQTT. What piled up while the broker was away leaves by priority class, order inside a flow kept."""
    async with Topology(
        "zenoh", SECOND, broker={"persistence": True}, queue_policy={"queue": {"messages": 5000}}
    ) as topology:
        near, far = topology.networks
        assert far.broker is not None
        await asyncio.to_thread(far.broker.stop)
        await topology.daemon.until_down("second")
        low = [Plain(1, ("alpha", 0x100 + n % 10, 1, 0x8001), payload=b"low", priority=1) for n in range(4000)]
        urgent = [Plain(1, ("alpha", 0x200, 1, 0x8001), payload=bytes([n]), priority=7) for n in range(50)]
        await near.side.send([*low, *urgent])
        await topology.daemon.until_total(4050, "ustreamer_queue_messages", route="first-second")
        await asyncio.to_thread(far.broker.start)
        receiver = mqtt_side(far)
        await receiver.reconnect()
        await until(lambda: len(receiver.arrived) == 4050, within_s=60, what="arrival of everything")
        assert receiver.arrived[:50] == urgent
        assert inversions(receiver.arrived, low) == 0


def policy(bounds: dict[str, Any]) -> dict[str, Any]:
    latest = [{"topic": f"//alpha/{kind:X}/1/8001", "keep": "latest"} for _, kind, _, _ in LATEST]
    return {"queue": bounds, "topics": latest}


def round_of(number: int) -> list[Plain]:
    return [Plain(1, topic, payload=number.to_bytes(4, "big")) for topic in EVERYTHING]


@pytest.mark.parametrize("has_journal", [False, True], ids=["in memory", "journal"])
async def test_present_values_arrive_first_and_what_else_is_wanted_after_them(tmp_path: Path, has_journal: bool) -> None:
    bounds = {"messages": TOPICS * ROUNDS + TOPICS, "stalled_factor": 0}
    changes: dict[str, Any] = {"journal": {"path": str(tmp_path / "journal.db")} if has_journal else None}
    async with Topology(
        "zenoh", "mosquitto/in-vehicle", broker={"persistence": True}, queue_policy=policy(bounds), **changes
    ) as topology:
        near, far = topology.networks
        daemon, receiver = topology.daemon, far.side
        assert isinstance(receiver, MqttSide)
        assert far.broker is not None
        await topology.exchange(0, round_of(0))  # so that the flows are known, as they are in a vehicle
        await daemon.until_total(len(EVERYTHING), "ustreamer_outcomes_total", outcome="delivered")
        await asyncio.to_thread(far.broker.stop)
        await daemon.until_down("second")
        for number in range(1, ROUNDS + 1):
            await near.side.send(round_of(number))
        waiting = TOPICS * ROUNDS + TOPICS
        await daemon.until_total(TOPICS * (ROUNDS - 1), "ustreamer_outcomes_total", outcome="superseded")
        await daemon.until_total(waiting, "ustreamer_queue_messages", route="first-second")
        await asyncio.to_thread(far.broker.start)
        await receiver.reconnect()

        def since() -> list[Plain]:
            """What has arrived since the outage; the broker may send what came before it once more."""
            return [message for message in receiver.arrived if int.from_bytes(message.payload, "big")]

        await until(lambda: len(since()) >= waiting, within_s=60, what="arrival of everything")
        arrived = since()
        assert {message.source for message in arrived[: len(EVERYTHING)]} == set(EVERYTHING)
        of: dict[Uri, list[int]] = {topic: [] for topic in EVERYTHING}
        for message in arrived:
            of[message.source].append(int.from_bytes(message.payload, "big"))
        assert [of[topic] for topic in LATEST] == [[ROUNDS]] * TOPICS
        assert [of[topic] for topic in ALL] == [list(range(1, ROUNDS + 1))] * TOPICS
        await daemon.until_total(0, "ustreamer_queue_messages", route="first-second")
        assert daemon.total("ustreamer_dead_letters_total") == 0
        daemon.check_books()
