"""Messages of 0 B to 1 MiB cross: once each, in order, bytes equal. At length 100 000, a quarter per pair of networks."""

import hashlib

import pytest

from tests.e2e.bulk import COUNT, batch
from tests.e2e.topology import Topology
from tests.independent.message import inversions

WAYS = [
    pytest.param("mqtt/off-vehicle", "zenoh", id="mqtt-to-zenoh"),
    pytest.param("zenoh", "mqtt/in-vehicle", id="zenoh-to-mqtt"),
    pytest.param("mqtt/in-vehicle", "rumqttd/off-vehicle", id="mqtt-to-mqtt"),
    pytest.param("zenoh", "zenoh", id="zenoh-to-zenoh"),
]


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
