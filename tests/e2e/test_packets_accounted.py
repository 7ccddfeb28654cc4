"""Every packet that arrives is accounted for, exactly: handed over, malformed or unwanted, on real networks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.brokers import Mosquitto
from tests.e2e.local_addresses import local, send_as
from tests.e2e.topology import Topology
from tests.fault.hostile import configuration, mqtt_endpoint
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide, mqtt_topic
from tests.independent.zenoh import ZenohSide, zenoh_key
from tests.process import StreamerProcess
from tests.waiting import until

EACH = 20
TOPIC = ("alpha", 0x100, 1, 0x8001)
OVERLAPPING: dict[str, Any] = {
    "routes": [
        {"from": "first", "to": "second", "publish": ["//alpha/FFFFFFFF/FF/FFFF", "//alpha/100/1/8001"]},
        {"from": "second", "to": "first"},
    ]
}
"""A Publish on `TOPIC` comes through two subscriptions."""


def speed(**changes: Any) -> Plain:
    return Plain(1, TOPIC, payload=b"x", **changes)


async def send_foreign(side: MqttSide | ZenohSide) -> None:
    """Something on the topic or key of a message that is none."""
    if isinstance(side, ZenohSide):
        side.put_raw(zenoh_key(speed()), b"x", None)
    else:
        await side.send_raw(mqtt_topic(speed(), side.structure), b"x", Properties(PacketTypes.PUBLISH))


def totals(daemon: StreamerProcess) -> dict[str, float]:
    """What became of the packets of the first endpoint."""
    names = ("received_packets", "received_messages", "malformed_packets", "unwanted_packets")
    return {name: daemon.total(f"ustreamer_{name}_total", endpoint="first") for name in names}


@pytest.mark.mosquitto
@pytest.mark.parametrize(("first", "second"), [("mosquitto/in-vehicle", "zenoh"), ("zenoh", "mosquitto/in-vehicle")])
async def test_received_is_handed_over_and_malformed_and_unwanted(first: str, second: str) -> None:
    is_zenoh = first == "zenoh"
    async with Topology(first, second, **OVERLAPPING) as topology:
        near, far = topology.networks
        good = [speed() for _ in range(EACH)]
        written_locally = [speed() for _ in range(EACH)]
        await near.side.send(good)
        for message in written_locally:
            await send_as(near.side, message, replace(message, source=local(message.source)))
        for _ in range(EACH):
            await send_foreign(near.side)
            await send_as(near.side, speed(), speed(token="t" * 2000))
            forged = Plain(1, ("evil", *TOPIC[1:]), payload=b"x")
            await send_as(near.side, speed(), forged)
            await near.side.send([Plain(2, ("alpha", 0x100, 1, 0), ("beta", 1, 1, 7), b"x", priority=2, ttl=60_000)])
        if is_zenoh:  # a Notification to nobody has the key of a Publish
            for _ in range(EACH):
                await send_as(near.side, speed(), replace(speed(), type=4))
        # Two copies of what is on the topic; Zenoh's subscriptions are one session's, so it hands over the first.
        malformed = 2 * 2 * EACH
        unwanted = 3 * EACH + 2 * EACH if is_zenoh else 0
        messages = (3 * EACH if is_zenoh else 2 * 3 * EACH) + EACH
        expected = {
            "received_packets": float(malformed + unwanted + messages),
            "received_messages": float(messages),
            "malformed_packets": float(malformed),
            "unwanted_packets": float(unwanted),
        }
        await until(lambda: totals(topology.daemon) == expected, what=f"{expected}")
        await until(lambda: len({each.id for each in far.side.arrived}) >= 2 * EACH, what="the good messages")
        arrived = {each.id for each in far.side.arrived}
        assert arrived == {each.id for each in (*good, *written_locally)}
        await topology.daemon.until_total(EACH, "ustreamer_outcomes_total", route="none", code="INVALID_ARGUMENT")
        await topology.daemon.until_total(EACH, "ustreamer_outcomes_total", route="none", code="RESOURCE_EXHAUSTED")
        topology.daemon.check_books()
        if is_zenoh:
            reasons = topology.daemon.samples("ustreamer_unwanted_packets_total", endpoint="first")
            assert {labels[1]: number for labels, number in reasons.items()} == {"copy": 60.0, "no_listener": 40.0}
            assert '"event": "unwanted_packets"' in topology.daemon.log


@pytest.mark.mosquitto
async def test_what_a_session_still_brings_of_an_earlier_subscription_is_unwanted(tmp_path: Path) -> None:
    with Mosquitto() as near, Mosquitto() as far:
        ends = mqtt_endpoint(near.url, "alpha"), mqtt_endpoint(far.url, "beta")
        config = configuration(tmp_path, *ends)
        wide = [{"from": "first", "to": "second", "publish": ["//alpha/100/1/8001"]}, {"from": "second", "to": "first"}]
        async with MqttSide(near.port, "in-vehicle", []) as alpha:
            async with StreamerProcess(tmp_path, config | {"routes": wide}):
                pass
            await alpha.send([speed() for _ in range(EACH)])
            narrow = [{"from": "first", "to": "second"}, {"from": "second", "to": "first"}]
            async with StreamerProcess(tmp_path, config | {"routes": narrow}) as daemon:
                await daemon.until_total(EACH, "ustreamer_unwanted_packets_total", reason="no_listener")
                assert daemon.total("ustreamer_received_packets_total", endpoint="first") == EACH
                daemon.check_books()
