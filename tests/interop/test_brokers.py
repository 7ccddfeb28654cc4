"""The daemon on brokers other than mosquitto and rumqttd, between them and Zenoh: what it needs of a broker."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamer.uprotocol.message import publish
from tests.brokers import BrokerProcess
from tests.e2e.bulk import batch
from tests.e2e.crossings import cross_each_type
from tests.e2e.crossings import messages as any_messages
from tests.e2e.mqtt_messages import NOW_MS, TOPIC, numbered, texts
from tests.e2e.topology import BROKER_CLASSES, Topology, TopologyThread
from tests.independent.message import Plain, inversions
from tests.independent.mqtt import MqttSide, mqtt_properties, mqtt_topic
from tests.interop.brokers import BROKERS, Lent, Mochi, OtherBroker
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint
from tests.process import StreamerProcess
from tests.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]
STRUCTURES = ["off-vehicle", "in-vehicle"]


@pytest.fixture(scope="module", params=list(BROKERS))
def broker(request: pytest.FixtureRequest) -> Iterator[OtherBroker]:
    """One for all tests: some take long to start."""
    with BROKERS[request.param]() as running:
        yield running


@pytest.fixture(autouse=True)
def able(request: pytest.FixtureRequest) -> None:
    """Skip what the broker cannot do."""
    if "broker" in request.fixturenames:
        broker: OtherBroker = request.getfixturevalue("broker")
        if (reason := broker.shortcomings.get(request.node.originalname)) is not None:
            pytest.skip(f"{type(broker).__name__}: {reason}")


def topology(broker: BrokerProcess, structure: str, is_first: bool = True, **changes: Any) -> Topology:
    """The broker and a Zenoh network. The streamer has a new authority, so the broker has no session of it."""
    BROKER_CLASSES["lent"] = lambda **options: Lent(broker)  # type: ignore[assignment]  # it has what is used
    first, second = (f"lent/{structure}", "zenoh") if is_first else ("zenoh", f"lent/{structure}")
    return Topology(first, second, authority=f"gw-{uuid.uuid4().hex[:8]}", **changes)


@pytest.fixture(scope="module", params=STRUCTURES)
def topology_thread(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[TopologyThread]:
    with TopologyThread(topology(broker, request.param)) as running:
        yield running


def counted(count: int, **attributes: Any) -> list[Plain]:
    return [Plain(1, ("alpha", 0x100 + n % 10, 1, 0x8001), payload=n.to_bytes(4, "big"), **attributes) for n in range(count)]


def exact(message: Plain) -> Plain:
    """A TTL in whole seconds is an expiry interval only, which brokers shorten by the time for which they have a message."""
    return replace(message, ttl=message.ttl + 1) if message.ttl and message.ttl % 1000 == 0 else message


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate])
@given(data=st.data())
@pytest.mark.parametrize("direction", [0, 1], ids=["forth", "back"])
def test_every_attribute_and_byte_arrives(topology_thread: TopologyThread, direction: int, data: st.DataObject) -> None:
    near, far = topology_thread.topology.networks[:: 1 if direction == 0 else -1]
    batch = [exact(m) for m in data.draw(st.lists(any_messages(near.authority, far.authority), min_size=20, max_size=40))]
    arrived = topology_thread.run(topology_thread.topology.exchange(direction, batch))
    assert {m.id: m for m in arrived} == {m.id: far.as_arriving(m) for m in batch}
    assert len(arrived) == len(batch)


@pytest.mark.parametrize("is_first", [True, False], ids=["from-it", "to-it"])
async def test_large_messages_arrive_once_in_order_with_equal_bytes(broker: BrokerProcess, is_first: bool) -> None:
    async with topology(broker, "in-vehicle", is_first) as crossing:
        messages = batch()
        assert max(len(m.payload) for m in messages) == 1 << 20
        arrived = await crossing.exchange(0, messages, within_s=200)
        assert {m.id: m.payload for m in arrived} == {m.id: m.payload for m in messages}
        assert len(arrived) == len(messages)
        assert inversions(arrived, messages) == 0


@pytest.mark.parametrize("is_first", [True, False], ids=["from-it", "to-it"])
async def test_nothing_is_missing_after_a_restart_of_the_broker(broker: BrokerProcess, is_first: bool) -> None:
    """What it acknowledged, to the sender and to the streamer, arrives; the streamer's session is still there."""
    async with topology(broker, "off-vehicle", is_first) as crossing:
        near, far = crossing.networks
        messages = [near.as_sent(m) for m in counted(2000)]
        mqtt = near.side if is_first else far.side
        assert isinstance(mqtt, MqttSide)
        await near.side.send(messages[:1000])
        await until(lambda: len(far.side.arrived) > 100, what="some messages")
        await asyncio.to_thread(broker.restart)
        await mqtt.reconnect()
        await near.side.send(messages[1000:])
        wanted = {m.id for m in messages}
        await until(lambda: {m.id for m in far.side.arrived} == wanted, within_s=120, what="arrival of everything")
        assert inversions(far.side.arrived, messages) == 0
        assert '"session_present": true' in crossing.daemon.log
        assert crossing.daemon.total("ustreamer_dead_letters_total") == 0
        crossing.daemon.check_books()


async def test_the_broker_keeps_for_a_streamer_that_is_away_what_has_not_expired(broker: BrokerProcess) -> None:
    async with topology(broker, "off-vehicle") as crossing:
        near, far = crossing.networks
        await crossing.daemon.__aexit__()
        lasting, brief = counted(50), counted(50, ttl=1000)
        await near.side.send(near.as_sent(m) for m in [*brief, *lasting])
        gone_s = time.time() + 1
        await until(lambda: time.time() > gone_s, what="the end of the time to live")
        crossing.daemon.start()
        await crossing.daemon.until_up()
        await until(lambda: len(far.side.arrived) >= 50, what="what has not expired")
        assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in lasting)
        assert inversions(far.side.arrived, lasting) == 0


async def test_retained_messages_cross_once_and_do_not_come_again(broker: BrokerProcess) -> None:
    """uProtocol has no retained messages: what somebody retains is an ordinary message."""
    async with topology(broker, "in-vehicle") as crossing:
        near, far = crossing.networks
        assert isinstance(near.side, MqttSide)
        retained, after = (replace(counted(1)[0], payload=text) for text in (b"retained", b"after"))
        topic, properties = mqtt_topic(retained, "in-vehicle"), mqtt_properties(retained)
        await near.side.client.publish(topic, retained.payload, qos=1, retain=True, properties=properties)
        await until(lambda: far.side.arrived == [retained], what="the retained message")
        await crossing.daemon.__aexit__()
        crossing.daemon.start()
        await crossing.daemon.until_up()
        await near.side.send([after])
        await until(lambda: len(far.side.arrived) >= 2, what="the message after it")
        assert far.side.arrived == [retained, after]
        await near.side.client.publish(topic, b"", qos=1, retain=True)


async def test_two_streamers_divide_what_the_broker_has(broker: BrokerProcess, tmp_path: Path) -> None:
    share = {"share": f"gateways-{uuid.uuid4().hex[:8]}"}
    async with topology(broker, "off-vehicle") as crossing:
        first, far = crossing.daemon, crossing.networks[1]
        await first.__aexit__()  # it comes back with a share
        config = first.config
        config["endpoints"]["first"]["options"] |= share
        first.write(config)
        first.start()
        await first.until_up()
        other = config | {"authority": f"gw-{uuid.uuid4().hex[:8]}"}
        async with StreamerProcess(tmp_path, {key: value for key, value in other.items() if key != "metrics"}) as second:
            near = crossing.networks[0]
            messages = [Plain(4, ("alpha", n % 50, 1, 0x8001), ("beta", 2, 1, 0), b"%d" % n) for n in range(1000)]
            await near.side.send(messages)
            await until(lambda: len(far.side.arrived) >= 1000, what="arrival of everything")
            assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in messages)
            parts = [each.total("ustreamer_accepted_messages_total", ingress="first") for each in (first, second)]
            assert sum(parts) == 1000  # HiveMQ gives all of it to one that takes it as fast as it comes


async def test_the_broker_keeps_to_our_receive_maximum(broker: BrokerProcess) -> None:
    inbox = RecordingListener(releases=False)
    name = f"cloud-{uuid.uuid4().hex[:8]}"
    async with (
        Endpoint(broker.url, name, receive_maximum=10, receive_excess_bytes=0, keep_alive_s=2).running() as cloud,
        Endpoint(broker.url, f"car-{uuid.uuid4().hex[:8]}").running() as car,
    ):
        await cloud.transport.register_listener(TOPIC, None, inbox)
        await cloud.up()
        await car.up()
        car.submit(numbered(50))
        await until(lambda: len(car.confirmed) == 50 and len(inbox.received) > 0)
        await cloud.heard_out()
        for number in range(50):
            await until(lambda so_far=number: len(inbox.received) > so_far)  # type: ignore[misc]  # bound per round
            assert len(inbox.received) - number <= 10  # HiveMQ sends fewer at times, until the first is acknowledged
            inbox.received[number].release()
    assert inbox.payloads == texts(50)


async def test_a_strange_puback_is_a_success() -> None:
    """Mochi as it is confirms with a reason code that MQTT 5 has for SUBACKs only; below 0x80 it means success."""
    with Mochi(as_it_is=True) as server:
        async with Endpoint(server.url, "car").running() as car:
            await car.up()
            car.submit([publish(NOW_MS, TOPIC, b"once")])
            await until(lambda: car.told != [], "what became of it")
            assert car.refused == []
            assert car.confirmed == [b"once"]


@pytest.mark.parametrize("direction", [0, 1], ids=["forth", "back"])
def test_messages_of_each_type_arrive_once_and_in_order(topology_thread: TopologyThread, direction: int) -> None:
    cross_each_type(topology_thread, direction)
