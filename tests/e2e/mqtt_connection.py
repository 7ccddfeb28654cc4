"""Our transport connected to a `FakeBroker`, and subscribed: where most tests of the MQTT 5 transport begin."""

from typing import Any

from streamer.transports.mqtt5 import wire
from streamer.uprotocol.uri import UUri
from tests.e2e.mqtt_messages import TOPIC, message, numbered, texts
from tests.listeners import RecordingListener
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker
from tests.waiting import until

OTHER = UUri.parse("//veh1/A8000/2/8A51")


def incoming(text: str, packet_id: int) -> bytes:
    return wire.encode(message(text), "veh1/8000/A/2/8A50", packet_id)


async def connected(fake: FakeBroker, endpoint: Endpoint, **connack: Any) -> BrokerConnection:
    peer = await fake.peer()
    await peer.accept(**connack)
    await endpoint.up()
    return peer


async def subscribed(fake: FakeBroker, endpoint: Endpoint, inbox: RecordingListener, **connack: Any) -> BrokerConnection:
    peer = await fake.peer()
    await peer.accept(**connack)
    await endpoint.transport.register_listener(TOPIC, None, inbox)
    await peer.grant()
    await endpoint.up()
    return peer


async def exchanged(endpoint: Endpoint, car: Endpoint, count: int = 2000) -> None:
    """Messages cross in both directions."""
    inbox = RecordingListener()
    async with endpoint.running(), car.running():
        await endpoint.transport.register_listener(TOPIC, None, inbox)
        await endpoint.up()
        await car.up()
        car.submit(numbered(count))
        endpoint.submit(numbered(count))
        await until(lambda: len(inbox.received) == len(endpoint.confirmed) == count, "all messages")
    assert inbox.payloads == endpoint.confirmed == texts(count)
