"""Malformed packets, at length a thousand of each kind, among good traffic: all counted by reason, the good arrive."""

import asyncio
import random

from tests.e2e.malformed import MQTT_KINDS, ZENOH_KINDS, put_all
from tests.e2e.topology import Topology
from tests.independent.message import Plain, inversions
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.lengths import at_length
from tests.waiting import until

EACH = at_length(1000, 250)
GOOD = 5 * EACH


def good(here: str, count: int) -> list[Plain]:
    return [Plain(1, (here, 0x100 + n % 10, 1, 0x8001), payload=n.to_bytes(4, "big"), priority=2) for n in range(count)]


async def test_malformed_mqtt_packets_among_good_traffic() -> None:
    async with Topology("mqtt/off-vehicle", "zenoh") as topology:
        near, far = topology.networks
        assert isinstance(near.side, MqttSide)
        messages = [near.as_sent(m) for m in good("alpha", GOOD)]
        bad = [change(message) for changes in MQTT_KINDS.values() for change in changes for message in messages[:EACH]]
        random.Random(1).shuffle(bad)
        step = len(bad) // 10
        for part in range(10):
            await asyncio.gather(
                near.side.send(messages[part * GOOD // 10 : (part + 1) * GOOD // 10]),
                *(near.side.send_raw("alpha/beta", b"x", properties) for properties in bad[part * step : (part + 1) * step]),
            )
        await until(lambda: len(far.side.arrived) >= GOOD, what="arrival of every good message")
        await topology.daemon.until_total(GOOD, "ustreamer_outcomes_total", outcome="delivered")
        assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in messages)
        assert inversions(far.side.arrived, messages) == 0
        for reason, changes in MQTT_KINDS.items():
            await topology.daemon.until_total(EACH * len(changes), "ustreamer_malformed_packets_total", reason=reason)
        topology.daemon.check_books()


async def test_malformed_zenoh_samples_among_good_traffic() -> None:
    async with Topology("mqtt/off-vehicle", "zenoh") as topology:
        far, near = topology.networks
        side = near.side
        assert isinstance(side, ZenohSide)
        messages = good("beta", GOOD)
        bad = [change(message) for changes in ZENOH_KINDS.values() for change in changes for message in messages[:EACH]]
        random.Random(1).shuffle(bad)
        step = len(bad) // 10
        key = "up/beta/100/0/1/8001/{}/{}/{}/{}/{}"
        for part in range(10):
            await side.send(messages[part * GOOD // 10 : (part + 1) * GOOD // 10])
            await asyncio.to_thread(put_all, side, key, bad[part * step : (part + 1) * step])
        await until(lambda: len(far.side.arrived) >= GOOD, what="arrival of every good message")
        await topology.daemon.until_total(GOOD, "ustreamer_outcomes_total", outcome="delivered")
        assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in messages)
        assert inversions(far.side.arrived, [far.as_arriving(m) for m in messages]) == 0
        for reason, changes in ZENOH_KINDS.items():
            await topology.daemon.until_total(EACH * len(changes), "ustreamer_malformed_packets_total", reason=reason)
        topology.daemon.check_books()
