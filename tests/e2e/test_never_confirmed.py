"""The daemon before a broker that never confirms some messages: each of them has its outcome, and the rest goes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import Mosquitto
from tests.e2e.forgetful_broker import ForgetfulBroker
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.mqtt_peer import FakeBroker
from tests.process import StreamerProcess
from tests.waiting import until

pytestmark = pytest.mark.mosquitto


def news(payload: bytes, ttl: int | None = None, resource: int = 0x8100) -> Plain:
    return Plain(4, ("veh", 0x100, 1, resource), ("cloud", 0x80, 1, 0), payload, ttl=ttl)


def config(folder: Path, vehicle: Mosquitto, cloud: FakeBroker) -> dict[str, Any]:
    options = {"topics": "in-vehicle", "ack_timeout_s": 0.4, "reconnect": {"initial_ms": 20, "max_ms": 50}}
    return {
        "authority": "gw",
        "endpoints": {
            "veh": {"transport": "mqtt5", "authorities": ["veh"], "options": {"broker": vehicle.url} | options},
            "cloud": {"transport": "mqtt5", "authorities": ["cloud"], "options": {"broker": cloud.url} | options},
        },
        "routes": [{"from": "veh", "to": "cloud"}],
        "journal": {"path": str(folder / "journal.db")},
        "shutdown": {"drain_s": 1},
    }


@asynccontextmanager
async def scene(fake: FakeBroker, folder: Path) -> AsyncIterator[tuple[ForgetfulBroker, MqttSide, StreamerProcess]]:
    """A broker that never confirms what is bad, a program on another one that sends there, and the daemon between them."""
    broker = ForgetfulBroker(fake, b"bad")
    broker.grants = True
    with Mosquitto() as vehicle:
        async with (
            broker.serving(),
            MqttSide(vehicle.port, "in-vehicle", []) as sender,
            StreamerProcess(folder, config(folder, vehicle, fake)) as daemon,
        ):
            await daemon.until_up()
            yield broker, sender, daemon


async def test_one_without_a_ttl_becomes_a_dead_letter_and_others_are_delivered(fake: FakeBroker, tmp_path: Path) -> None:
    async with scene(fake, tmp_path) as (broker, sender, daemon):
        await sender.send([news(text) for text in (b"before", b"bad", b"behind")])
        await sender.send([news(b"other", resource=0x8101)])
        await daemon.until_total(1, "ustreamer_dead_letters_total")
        await sender.send([news(b"later")])
        await until(lambda: any(b"later" in sent for sent in broker.sent), "what comes later")
        await daemon.until_total(0, "ustreamer_queue_messages")
        assert daemon.total("ustreamer_dead_letters_total") == 1
        assert daemon.total("ustreamer_outcomes_total", route="veh-cloud", outcome="delivered") == 4
        daemon.check_books()


async def test_one_with_a_ttl_expires_although_nothing_else_is_sent(fake: FakeBroker, tmp_path: Path) -> None:
    async with scene(fake, tmp_path) as (_, sender, daemon):
        await sender.send([news(b"bad", ttl=1000)])
        await daemon.until_total(1, "ustreamer_outcomes_total", route="veh-cloud", outcome="expired")
        daemon.check_books()
