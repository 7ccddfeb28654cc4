"""The far broker is away while 300 topics are published over and over: what arrives of each afterwards, and in which order.

Zenoh → MQTT. Half of the topics keep the latest message, the others have no policy.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.lengths import at_length
from tests.waiting import until

ROUNDS = at_length(200, 20)
TOPICS = 100
LATEST, ALL = ([("alpha", kind + number, 1, 0x8001) for number in range(TOPICS)] for kind in (0x1000, 0x2000))
EVERYTHING = [*LATEST, *ALL]

pytestmark = pytest.mark.mosquitto


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
