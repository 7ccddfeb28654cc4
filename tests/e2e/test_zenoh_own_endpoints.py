"""Two Zenoh endpoints of one streamer that see each other on one network: neither receives for the other."""

from pathlib import Path

import pytest

from tests.brokers import any_broker
from tests.configurations import config_of, endpoint_of
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.process import StreamerProcess
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, links, raw_peer

MESSAGES = 50


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
