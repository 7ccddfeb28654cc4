"""Peers that send garbage at full speed: instead of messages, and instead of packets."""

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.mqtt5.options import ReconnectOptions
from tests.brokers import Mosquitto
from tests.constants import with_constants
from tests.e2e.malformed import MQTT_KINDS, ZENOH_KINDS, put_all
from tests.e2e.topology import Topology
from tests.fault.hostile import QUICK_END, configuration, ids, mqtt_endpoint, notifications, publish_bytes, said
from tests.independent.message import inversions
from tests.independent.mqtt import MqttSide, mqtt_topic
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.ports import HOST
from tests.process import StreamerProcess
from tests.waiting import until

# -- garbage, where messages belong


class Shouter:
    """An MQTT client that sends what it is given as fast as the broker takes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def at(cls, number: int) -> AsyncIterator["Shouter"]:
        reader, writer = await asyncio.open_connection(HOST, number)
        try:
            writer.write(mqtt5.ConnectPacket("shouter", clean_start=True).write())
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def shout(self, packets: list[bytes]) -> None:
        """Send these; returns when the broker has confirmed all of them."""
        confirming = asyncio.create_task(self._confirmed(len(packets)))
        for packet in packets:
            self._writer.write(packet)
            await self._writer.drain()
        await asyncio.wait_for(confirming, 60)

    async def _confirmed(self, count: int) -> None:
        buffer = b""
        while count:
            data = await self._reader.read(65_536)
            assert data, "the broker has closed the connection"
            buffer += data
            view, position = memoryview(buffer), 0
            while len(buffer) - position >= 2:
                size = 2 + buffer[position + 1]
                if len(buffer) - position < size:
                    break
                packet, _ = mqtt5.read(view[position : position + size])
                count -= isinstance(packet, mqtt5.PubAckPacket)
                position += size
            buffer = buffer[position:]


def mqtt_garbage(each: int) -> tuple[list[bytes], Counter[str]]:
    """PUBLISHes of every kind, shuffled, on topics that the daemon listens to; and how many of which reason."""
    packets: list[bytes] = []
    reasons: Counter[str] = Counter()
    models = notifications("alpha", "beta", each)
    for reason, changes in MQTT_KINDS.items():
        for change in changes:
            reasons[reason] += each
            for model in models:
                topic = mqtt_topic(model, "in-vehicle")
                packets.append(publish_bytes(topic, os.urandom(8), change(model).pack(), 1 + len(packets) % 60_000))
    random.Random(1).shuffle(packets)
    return packets, reasons


@pytest.mark.mosquitto
async def test_mqtt_client_that_publishes_garbage_at_full_speed_stops_nobody(tmp_path: Path) -> None:
    garbage, reasons = mqtt_garbage(1000)
    with Mosquitto() as near, Mosquitto() as far:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        async with (
            MqttSide(near.port, "in-vehicle", ["beta/#"]) as alpha,
            MqttSide(far.port, "in-vehicle", ["alpha/#"]) as beta,
            StreamerProcess(tmp_path, configuration(tmp_path, *ends)) as daemon,
            Shouter.at(near.port) as shouter,
        ):
            down, up = notifications("alpha", "beta", 2000), notifications("beta", "alpha", 1000)
            await asyncio.gather(shouter.shout(garbage), alpha.send(down), beta.send(up))
            await until(lambda: len(beta.arrived) >= len(down) and len(alpha.arrived) >= len(up), what="good messages")
            assert (sorted(ids(beta.arrived)), sorted(ids(alpha.arrived))) == (sorted(ids(down)), sorted(ids(up)))
            assert inversions(beta.arrived, down) == inversions(alpha.arrived, up) == 0
            for reason, number in reasons.items():
                await daemon.until_total(number, "ustreamer_malformed_packets_total", reason=reason)
            assert sorted(line["reason"] for line in said(daemon, "malformed_packet")) == sorted(reasons)
            assert daemon.total("ustreamer_reconnects_total") == 0
            await daemon.until_total(3000, "ustreamer_outcomes_total", outcome="delivered")
            daemon.check_books()


async def test_zenoh_peer_that_puts_garbage_at_full_speed_stops_nobody() -> None:
    quiet: dict[str, Any] = {"log": {"level": "info", "repeat_s": 3600}, "shutdown": QUICK_END}
    async with Topology("mqtt/in-vehicle", "zenoh", **quiet) as topology:
        near, far = topology.networks
        assert isinstance(far.side, ZenohSide)
        models = notifications("beta", "alpha", 1000)
        key = zenoh_key(models[0])
        kinds = [(reason, change) for reason, changes in ZENOH_KINDS.items() for change in changes]
        garbage = [change(model) for _, change in kinds for model in models]
        random.Random(1).shuffle(garbage)
        side = far.side
        up = notifications("beta", "alpha", 2000)
        down = notifications("alpha", "beta", 1000)
        await asyncio.gather(asyncio.to_thread(put_all, side, key, garbage), side.send(up), near.side.send(down))
        await until(lambda: len(near.side.arrived) >= 2000 and len(side.arrived) >= 1000, what="good messages")
        daemon = topology.daemon
        reasons = Counter(reason for reason, _ in kinds)
        for reason, number in reasons.items():
            await daemon.until_total(1000 * number, "ustreamer_malformed_packets_total", reason=reason)
        assert (sorted(ids(near.side.arrived)), sorted(ids(side.arrived))) == (sorted(ids(up)), sorted(ids(down)))
        assert inversions(near.side.arrived, up) == inversions(side.arrived, down) == 0
        assert sorted(line["reason"] for line in said(daemon, "malformed_packet")) == sorted(reasons)
        await daemon.until_total(3000, "ustreamer_outcomes_total", outcome="delivered")
        daemon.check_books()


# -- garbage, where packets belong


def http_answer(_: random.Random) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def random_bytes(chance: random.Random) -> bytes:
    return b"\x00" + chance.randbytes(100_000)


def endless_publish(_: random.Random) -> bytes:
    """It would be too large, and nobody has asked for it: QoS 2."""
    return b"\x34\xff\xff\xff\x7f" + bytes(100_000)


@pytest.mark.parametrize("is_accepted", [False, True], ids=["instead of a CONNACK", "after the CONNACK"])
@pytest.mark.parametrize("garbage", [http_answer, random_bytes, endless_publish])
async def test_broker_that_does_not_speak_mqtt_is_called_more_and_more_rarely(
    garbage: Any, is_accepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ustreamer.mqtt5")
    chance = random.Random(1)
    ladder = [0.02, 0.04, 0.08, 0.16, 0.3, 0.3]
    reconnect = with_constants(ReconnectOptions, initial_ms=20, max_ms=300, jitter=0)

    def waits() -> list[float]:
        return [record.args[-1] for record in caplog.records if str(record.msg).startswith("link_down")]  # type: ignore[index,misc]

    def waited_more_than(known: int) -> bool:
        return len(waits()) > known

    async with FakeBroker().running() as fake, Endpoint(fake.url, reconnect=reconnect).running() as endpoint:
        while len(waits()) < len(ladder):
            peer = await fake.peer()
            if is_accepted:
                await peer.accept()
            peer.write(garbage(chance))
            known = len(waits())
            await until(partial(waited_more_than, known), what="the end of the connection")
        assert not endpoint.is_up
    assert waits()[: len(ladder)] == ladder
