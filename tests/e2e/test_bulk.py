"""Messages of 0 B to 1 MiB cross: once each, in order, bytes equal. At length 100 000, a quarter per pair of networks."""

import hashlib
import random

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain, inversions
from tests.lengths import at_length

COUNT = at_length(25_000, 2_500)
LARGE = [4096, 65_535, 65_536, 300_000, 1 << 20] * 4
WAYS = [
    pytest.param("mqtt/off-vehicle", "zenoh", id="mqtt-to-zenoh"),
    pytest.param("zenoh", "mqtt/in-vehicle", id="zenoh-to-mqtt"),
    pytest.param("mqtt/in-vehicle", "rumqttd/off-vehicle", id="mqtt-to-mqtt"),
    pytest.param("zenoh", "zenoh", id="zenoh-to-zenoh"),
]


def batch() -> list[Plain]:
    """Mostly small messages, some of every size class up to 1 MiB, over 20 flows."""
    chance = random.Random(7)
    block = chance.randbytes(1 << 20)
    every = COUNT // len(LARGE)
    messages = []
    for number in range(COUNT):
        size = LARGE[number // every] if number % every == 0 else chance.choice([0, 1, 64, 256])
        start = chance.randrange((1 << 20) - size + 1)
        source = ("alpha", 0x20000 + number % 20, 1, 0x8001)
        sink = ("beta", 3, 1, 0) if number % 2 else None
        messages.append(Plain(4 if sink else 1, source, sink, block[start : start + size], payload_format=6))
    return messages


@pytest.mark.parametrize(("first", "second"), WAYS)
async def test_all_arrive_once_in_order_with_equal_bytes(first: str, second: str) -> None:
    async with Topology(first, second) as topology:
        messages = batch()
        assert max(len(m.payload) for m in messages) == 1 << 20
        arrived = await topology.exchange(0, messages, within_s=120)
        far = topology.networks[1]
        assert len(arrived) == len(messages)
        assert {m.id: hashlib.sha256(m.payload).digest() for m in arrived} == {
            m.id: hashlib.sha256(m.payload).digest() for m in messages
        }
        assert inversions(arrived, [far.as_arriving(m) for m in messages]) == 0
        topology.daemon.check_books()
        await topology.daemon.until_total(COUNT, "ustreamer_outcomes_total", route="first-second", outcome="delivered")
        assert topology.daemon.total("ustreamer_outcomes_total") == COUNT
