"""100 000 messages of 0 B to 1 MiB cross between mosquitto and Zenoh: once each, in order, bytes equal."""

import hashlib
import random

import pytest

from tests.brokers import needs_mosquitto
from tests.e2e.topology import Topology
from tests.independent import Plain, inversions

COUNT = 50_000  # in each direction


def batch(here: str, there: str, seed: int) -> list[Plain]:
    """Mostly small messages, some of every size class up to 1 MiB, over 20 flows."""
    chance = random.Random(seed)
    block = chance.randbytes(1 << 20)
    sizes = [0, 1, 64, 256]
    large = dict(enumerate([4096, 65_535, 65_536, 300_000, 1 << 20] * 4, start=1))
    messages = []
    for number in range(COUNT):
        size = large.get(number // (COUNT // 25), 0) if number % (COUNT // 25) == 0 else chance.choice(sizes)
        start = chance.randrange((1 << 20) - size + 1)
        source = (here, 0x20000 + number % 20, 1, 0x8001)
        sink = (there, 3, 1, 0) if number % 2 else None
        messages.append(Plain(4 if sink else 1, source, sink, block[start : start + size], payload_format=6))
    return messages


@pytest.mark.mosquitto
@needs_mosquitto
@pytest.mark.parametrize("direction", [0, 1], ids=["mqtt-to-zenoh", "zenoh-to-mqtt"])
async def test_all_arrive_once_in_order_with_equal_bytes(direction: int) -> None:
    async with Topology("mosquitto/off-vehicle", "zenoh") as topology:
        here, there = ("alpha", "beta") if direction == 0 else ("beta", "alpha")
        messages = batch(here, there, direction)
        assert max(len(m.payload) for m in messages) == 1 << 20
        arrived = await topology.exchange(direction, messages, within_s=120)
        far = topology.networks[1 - direction]
        assert len(arrived) == len(messages)
        assert {m.id: hashlib.sha256(m.payload).digest() for m in arrived} == {
            m.id: hashlib.sha256(m.payload).digest() for m in messages
        }
        assert inversions(arrived, [far.as_arriving(m) for m in messages]) == 0
        topology.daemon.check_books()
        route = "first-second" if direction == 0 else "second-first"
        assert topology.daemon.total("ustreamer_outcomes_total", route=route, outcome="delivered") == COUNT
        assert topology.daemon.total("ustreamer_outcomes_total") == COUNT
