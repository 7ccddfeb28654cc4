"""A link of 4 kB/s to the broker: the present value of a topic does not queue behind what the link cannot carry yet."""

import asyncio

import pytest

from tests.e2e.topology import Topology
from tests.fault.proxy import ByteTap
from tests.independent.message import Plain, Uri
from tests.waiting import until

SPEED = ("alpha", 0x1000, 1, 0x8001)
REST = ("alpha", 0x2000, 1, 0x8001)
POLICY = {"topics": [{"topic": "//alpha/1000/1/8001", "keep": "latest"}]}
BYTES_PER_S = 4000
PUBLISHED = 1500
ARRIVED = 200
"""Enough, for the window to settle."""

BEHIND = 100
"""The most messages that arrive after the last one was published. In a second the link carries some 30."""

pytestmark = pytest.mark.mosquitto


@pytest.mark.parametrize("beside", [[], [REST]], ids=["alone", "beside a topic that keeps everything"])
async def test_what_a_slow_link_carries_of_a_topic_that_keeps_the_latest_is_its_present_value(beside: list[Uri]) -> None:
    async with Topology("mosquitto/in-vehicle", "mosquitto/in-vehicle", tap=ByteTap(), queue_policy=POLICY) as topology:
        near, far = topology.networks
        assert far.proxy is not None
        number = 0
        far.proxy.slow(BYTES_PER_S)
        while number < PUBLISHED or len(far.side.arrived) < ARRIVED:
            topics = [SPEED, *beside] if number % 2 else [SPEED]
            await near.side.send([Plain(1, topic, payload=number.to_bytes(4, "big")) for topic in topics])
            number += 1
            await asyncio.sleep(0.005)
        before = len(far.side.arrived)
        await until(lambda: values(far.side.arrived)[-1] == number - 1, within_s=60, what="the last value")
        behind = far.side.arrived[before:]
        far.proxy.heal_flow()
        assert values(far.side.arrived) == sorted(values(far.side.arrived))
        assert len(behind) <= BEHIND


def values(arrived: list[Plain]) -> list[int]:
    return [int.from_bytes(message.payload, "big") for message in arrived if message.source == SPEED]
