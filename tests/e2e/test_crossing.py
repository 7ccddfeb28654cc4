"""Messages of every kind and size cross in both directions between every pair of networks, once, with every byte."""

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.bulk import COUNT, batch
from tests.e2e.crossings import cross_each_type, messages
from tests.e2e.topology import Topology, TopologyThread
from tests.independent.message import inversions

PAIRS = [
    ("mosquitto/off-vehicle", "zenoh"),
    ("mosquitto/in-vehicle", "zenoh"),
    ("rumqttd/off-vehicle", "zenoh"),
    ("rumqttd/in-vehicle", "zenoh"),
    ("mosquitto/off-vehicle", "rumqttd/in-vehicle"),
    ("mosquitto/in-vehicle", "rumqttd/off-vehicle"),
    ("zenoh", "zenoh"),
]
WAYS = [
    pytest.param("mqtt/off-vehicle", "zenoh", id="mqtt-to-zenoh"),
    pytest.param("zenoh", "mqtt/in-vehicle", id="zenoh-to-mqtt"),
    pytest.param("mqtt/in-vehicle", "rumqttd/off-vehicle", id="mqtt-to-mqtt"),
    pytest.param("zenoh", "zenoh", id="zenoh-to-zenoh"),
]


def needs(pair: tuple[str, str]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.mosquitto] if any(kind.startswith("mosquitto") for kind in pair) else []


@pytest.fixture(scope="module", params=[pytest.param(pair, marks=needs(pair), id="~".join(pair)) for pair in PAIRS])
def topology_thread(request: pytest.FixtureRequest) -> Iterator[TopologyThread]:
    with TopologyThread(Topology(*request.param)) as topology_thread:
        yield topology_thread


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
@pytest.mark.parametrize("direction", [0, 1], ids=["forth", "back"])
def test_every_attribute_and_byte_arrives(topology_thread: TopologyThread, direction: int, data: st.DataObject) -> None:
    here, there = ("alpha", "beta") if direction == 0 else ("beta", "alpha")
    batch = data.draw(st.lists(messages(here, there), min_size=20, max_size=40))
    far = topology_thread.topology.networks[1 - direction]
    arrived = topology_thread.run(topology_thread.topology.exchange(direction, batch))
    assert {m.id: m for m in arrived} == {m.id: far.as_arriving(m) for m in batch}
    assert len(arrived) == len(batch)


@pytest.mark.parametrize("direction", [0, 1], ids=["forth", "back"])
def test_messages_of_each_type_arrive_once_and_in_order(topology_thread: TopologyThread, direction: int) -> None:
    cross_each_type(topology_thread, direction)


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
