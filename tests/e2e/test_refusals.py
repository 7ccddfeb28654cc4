"""A broker that refuses one flow delays no other flow, and the refused one keeps its order; what is too large fails."""

import asyncio
from pathlib import Path

import mqtt5
import pytest

from tests.brokers import Rumqttd
from tests.configurations import config_of, endpoint_of
from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.independent.mqtt import MqttSide
from tests.mqtt_peer import FakeBroker
from tests.process import StreamerProcess
from tests.waiting import until

OTHERS = 3000  # more than the receive maximum: what is refused must not use it up
REFUSED = ("alpha", 0xBAD, 1, 0x8001)
QUOTA_EXCEEDED = mqtt5.PubAckReasonCode.QUOTA_EXCEEDED


class RefusingBroker:
    """Answers everything, and refuses PUBLISHes of one source until told otherwise. ``taken`` are the others, in order."""

    def __init__(self) -> None:
        self.refusing = True
        self.refusals = 0
        self.taken: list[bytes] = []

    def answer(self, packet: mqtt5.PublishPacket) -> mqtt5.PubAckPacket:
        assert packet.packet_id is not None
        if self.refusing and ("3", "//alpha/BAD/1/8001") in packet.user_properties:
            self.refusals += 1
            return mqtt5.PubAckPacket(packet.packet_id, reason_code=QUOTA_EXCEEDED)
        self.taken.append(packet.payload)
        return mqtt5.PubAckPacket(packet.packet_id)


@pytest.fixture
def messages() -> tuple[list[Plain], list[Plain]]:
    refused = [Plain(4, REFUSED, ("beta", 1, 1, 0), payload=b"refused %d" % n) for n in range(20)]
    others = [Plain(4, ("alpha", n % 5, 1, 0x8001), ("beta", 1, 1, 0), payload=b"other %d" % n) for n in range(OTHERS)]
    return refused, others


async def test_refused_flow_delays_nobody_and_arrives_in_order(
    tmp_path: Path, messages: tuple[list[Plain], list[Plain]]
) -> None:
    refused, others = messages
    far = RefusingBroker()
    fake = FakeBroker()
    with Rumqttd() as near:
        async with fake.running():
            config = config_of(
                {
                    name: endpoint_of("mqtt5", authority, broker=url, topics="off-vehicle")
                    for name, authority, url in (("near", "alpha", near.url), ("far", "beta", fake.url))
                },
                [{"from": "near", "to": "far"}],
                queue_policy={"retry": {"initial_ms": 200, "max_ms": 400, "attempts": 1000}},
            )
            daemon = StreamerProcess(tmp_path, config)
            daemon.start()
            serving = asyncio.create_task((await fake.peer()).answer_publishes(far.answer))
            try:
                await daemon.until_up()
                async with MqttSide(near.port, "off-vehicle", []) as sender:
                    await sender.send([*refused, *others])
                await until(lambda: len(far.taken) == OTHERS, what="arrival of every message that is not refused")
                assert sorted(far.taken) == sorted(m.payload for m in others)
                await until(lambda: far.refusals > 1, what="a second attempt")
                far.refusing = False
                await until(lambda: len(far.taken) == OTHERS + len(refused), what="arrival of the refused flow")
                assert far.taken[OTHERS:] == [m.payload for m in refused]
                daemon.check_books()
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
                await daemon.__aexit__()


@pytest.mark.mosquitto
async def test_puback_of_a_message_that_is_too_large_is_the_end_of_it() -> None:
    """mosquitto says so, and ends the connection all the same."""
    async with Topology("mosquitto/off-vehicle", "zenoh", broker={"extra": ("message_size_limit 1000",)}) as topology:
        far, near = topology.networks
        large, small = (Plain(4, ("beta", 1, 1, 0x8001), ("alpha", 2, 1, 0), payload) for payload in (b"x" * 2000, b"small"))
        await near.side.send([large])
        await topology.daemon.until_total(1, "ustreamer_outcomes_total", outcome="dead_lettered", code="RESOURCE_EXHAUSTED")
        await near.side.send([small])
        await until(lambda: far.side.arrived, what="the small one")
        assert [each.payload for each in far.side.arrived] == [b"small"]
        topology.daemon.check_books()
