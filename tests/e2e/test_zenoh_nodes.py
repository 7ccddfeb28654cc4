"""Other Zenoh nodes beside a flow: one that joins and leaves all the time, and a second endpoint of the same streamer."""

import asyncio
from pathlib import Path

import pytest

from tests.brokers import any_broker
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, links, open_peer, raw_peer

ROUNDS = 12
MOST_JOINS = 2
"""A message that waits for a moment sees the end of one stay and the beginning of the next."""
MESSAGES = 50


class Flapping:
    """``joins`` is how often the node has come so far."""

    def __init__(self, endpoint: str, stays_s: float, away_s: float) -> None:
        self.joins = 0
        self._endpoint = endpoint
        self._stays_s = stays_s
        self._away_s = away_s

    async def run(self) -> None:
        while self.joins < ROUNDS:
            node = await asyncio.to_thread(open_peer, connect=[self._endpoint])
            self.joins += 1
            await asyncio.sleep(self._stays_s)
            await asyncio.to_thread(node.close)
            await asyncio.sleep(self._away_s)


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("stays_s", "away_s"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
async def test_a_node_that_flaps_holds_up_no_flow_with_a_receiver(tmp_path: Path, stays_s: float, away_s: float) -> None:
    endpoint = free_endpoint()
    with any_broker() as broker:
        config = config_of(
            {
                "vehicle": endpoint_of("zenoh", "veh1", mode="peer", listen=[endpoint]),
                "cloud": endpoint_of("mqtt5", "*", broker=broker.url, topics="off-vehicle", client_id="gw"),
            },
            [{"from": "cloud", "to": "vehicle"}],
            journal={"path": str(tmp_path / "journal.db")},
        )
        daemon = StreamerProcess(tmp_path, config)
        async with ZenohSide(connect=[endpoint]) as vehicle, MqttSide(broker.port, "off-vehicle", []) as cloud, daemon:
            flapping = Flapping(endpoint, stays_s, away_s)
            running = asyncio.create_task(flapping.run())
            sent_at: dict[bytes, int] = {}
            joins_meanwhile: dict[bytes, int] = {}
            sent: list[Plain] = []

            def note() -> None:
                for each in vehicle.arrived:
                    joins_meanwhile.setdefault(each.id, flapping.joins - sent_at[each.id])

            while not running.done():
                sent.append(Plain(4, ("cloud", 0xC0, 1, 0x8001), ("veh1", 0xA8000, 2, 0), b"%d" % len(sent)))
                sent_at[sent[-1].id] = flapping.joins
                await cloud.send(sent[-1:])
                await asyncio.sleep(0.05)
                note()
            await until(lambda: {each.id for each in sent} <= {each.id for each in vehicle.arrived}, "everything", 60)
            note()
            first = dict.fromkeys(each.id for each in vehicle.arrived)
            assert list(first) == [each.id for each in sent]
            assert max(joins_meanwhile.values()) <= MOST_JOINS


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("is_beside_another", [False, True])
async def test_what_is_for_nobody_at_one_endpoint_is_not_received_by_the_other(
    tmp_path: Path, is_beside_another: bool
) -> None:
    place = free_endpoint()
    with any_broker() as broker:
        config = config_of(
            {
                "one": endpoint_of("zenoh", "veh1", listen=[place]),
                "two": endpoint_of("zenoh", "veh2", connect=[place]),
                "cloud": endpoint_of("mqtt5", "*", broker=broker.url, topics="off-vehicle", client_id="gw"),
            },
            [{"from": "cloud", "to": "one"}, {"from": "two", "to": "one"}],
            journal={"path": str(tmp_path / "journal.db")},
        )
        daemon = StreamerProcess(tmp_path, config)
        daemon.start()
        try:
            async with MqttSide(broker.port, "off-vehicle", []) as cloud:
                await until(lambda: daemon.total("ustreamer_endpoint_up", endpoint="cloud") == 1, "the broker", within_s=60)
                await until(lambda: links(place) == 1, "a link between the two endpoints", within_s=60)
                if is_beside_another:
                    with raw_peer(connect=[place]) as bystander:
                        elsewhere = bystander.declare_subscriber("up/*/*/*/*/*/veh1/1/0/1/0", lambda sample: None)
                        await until(lambda: daemon.total("ustreamer_endpoint_up", endpoint="one") == 1, "another node")
                        await waits_and_arrives(daemon, cloud, place)
                        elsewhere.undeclare()
                else:
                    await waits_and_arrives(daemon, cloud, place)
        finally:
            await daemon.__aexit__()


async def waits_and_arrives(daemon: StreamerProcess, cloud: MqttSide, place: str) -> None:
    sent = [Plain(4, ("cloud", 0xC0, 1, 0x8001), ("veh1", 0xA8000, 2, 0), b"%d" % each) for each in range(MESSAGES)]
    await cloud.send(sent)

    def wait() -> bool:
        queued = daemon.total("ustreamer_queue_messages", route="cloud-one")
        return (queued, daemon.total("ustreamer_unconfirmed_messages", route="cloud-one")) == (MESSAGES, 0)

    await until(wait, "messages that wait", within_s=40)
    assert daemon.samples("ustreamer_outcomes_total", route="cloud-one") == {}
    async with ZenohSide(connect=[place], keys=["up/*/*/*/*/*/veh1/8000/A/2/0"]) as vehicle:
        await until(lambda: len(vehicle.arrived) >= MESSAGES, "everything", within_s=60)
        assert [each.id for each in vehicle.arrived] == [each.id for each in sent]
