"""The last value of a topic comes to a network when somebody there subscribes to it, on real networks."""

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.usubscription_client import SUBSCRIBED, UsubscriptionClient
from tests.waiting import until


@pytest.mark.parametrize("late", [0, 1], ids=["zenoh", "mqtt"])
async def test_the_first_subscriber_of_a_network_gets_the_last_value_once(late: int) -> None:
    early = 1 - late
    services = {"initial": True, "local": ["alpha", "beta"]}
    async with Topology("zenoh", "mqtt/off-vehicle", utwin={}, usubscription=services) as topology:
        publisher, receiver = topology.networks[early], topology.networks[late]
        topic = (publisher.authority, 0x10, 1, 0x8001)
        old, last, after = [Plain(1, topic, payload=payload) for payload in (b"old", b"last", b"after")]
        await topology.exchange(early, [old, last])

        def values() -> list[bytes]:
            return [each.payload for each in list(receiver.side.arrived) if each.type == 1 and each.source == topic]

        first, second = [
            UsubscriptionClient(receiver.side, (receiver.authority, number, 1, 0), "gw") for number in (0x20, 0x21)
        ]
        assert values() == [b"old", b"last"]  # by the route's pattern: nobody has subscribed yet
        assert await first.subscribe(topic) == SUBSCRIBED
        await until(lambda: len(values()) > 2, "the last value")
        assert await second.subscribe(topic) == SUBSCRIBED
        assert await first.subscribe(topic) == SUBSCRIBED
        await topology.exchange(early, [after])
        assert values() == [b"old", b"last", b"last", b"after"]
        topology.daemon.check_books()
