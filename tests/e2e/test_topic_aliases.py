"""Topic aliases with real brokers, whose subscribers see no difference, and with a played one that refuses them."""

from collections import Counter

import aiomqtt
import mqtt5
import pytest

from streamer.uprotocol.message import UMessage, publish
from tests.brokers import BROKERS, Mosquitto, broker
from tests.e2e.mqtt_messages import NOW_MS, TOPIC, message
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker, meanwhile
from tests.ports import HOST
from tests.waiting import until

TOPICS = 15  # more than mosquitto has aliases for, by default
ROUNDS = 20


def of_round(number: int) -> list[UMessage]:
    return [
        publish(NOW_MS, TOPIC._replace(resource=0x8000 + topic), f"{topic} {number}".encode()) for topic in range(TOPICS)
    ]


@pytest.mark.parametrize("kind", BROKERS)
async def test_every_message_arrives_on_its_topic(kind: str) -> None:
    with broker(kind) as server:
        async with (
            aiomqtt.Client(HOST, server.port, protocol=aiomqtt.ProtocolVersion.V5) as theirs,
            Endpoint(server.url, "veh1").running() as car,
        ):
            await theirs.subscribe("#", qos=1)
            await car.up()
            for number in range(ROUNDS):
                car.submit(of_round(number))
                await until(lambda: len(car.confirmed) == (number + 1) * TOPICS)  # noqa: B023 - awaited in the loop
            heard = [await anext(aiter(theirs.messages)) for _ in range(ROUNDS * TOPICS)]
    for topic in range(TOPICS):
        name = f"veh1/8000/A/2/{0x8000 + topic:X}"
        assert [each.payload for each in heard if str(each.topic) == name] == [
            f"{topic} {number}".encode() for number in range(ROUNDS)
        ]


@pytest.mark.mosquitto
async def test_a_topic_in_use_saves_its_length_in_each_packet() -> None:
    sent: dict[int, int] = {}
    with Mosquitto() as server:
        for aliases in (0, 10):
            async with Endpoint(server.url, "veh1", topic_aliases=aliases, keep_alive_s=60).running() as car:
                await car.up()
                car.submit([message()])
                await until(lambda: len(car.confirmed) == 1)
                before = car.transport.report().wire_bytes
                car.submit([message() for _ in range(100)])
                await until(lambda: len(car.confirmed) == 101)
                after = car.transport.report().wire_bytes
                assert before is not None
                assert after is not None
                sent[aliases] = after.sent - before.sent
    assert sent[0] - sent[10] == 100 * (len("veh1/8000/A/2/8A50") - 3)


async def test_a_broker_that_calls_its_own_aliases_invalid_gets_none_any_more(caplog: pytest.LogCaptureFixture) -> None:
    seen: Counter[bool] = Counter()

    async def refuse_aliases(peer: BrokerConnection) -> None:
        await peer.accept(topic_alias_max=5, session_present=True)
        while True:
            packet = await peer.next(mqtt5.PublishPacket)
            seen[bool(packet.topic)] += 1
            if not packet.topic:
                peer.write(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.TOPIC_ALIAS_INVALID))
                await peer.closed()
                return
            assert len(seen) == 1 or packet.topic_alias is None
            assert packet.packet_id is not None
            peer.write(mqtt5.PubAckPacket(packet.packet_id))

    async with FakeBroker().running() as server, Endpoint(server.url, "veh1").running() as car:

        async def serve() -> None:
            await refuse_aliases(await server.peer())
            await refuse_aliases(await server.peer())

        async with meanwhile(serve()):
            await car.up()
            for number in range(10):
                car.submit([message(str(number))])
                await until(lambda: len(car.confirmed) == number + 1)  # noqa: B023 - awaited in the loop
    assert car.confirmed == [str(number).encode() for number in range(10)]
    assert seen[False] == 1
    assert "topic_aliases_refused" in caplog.text
