"""Peers that put more into a header than anybody needs. It costs them their message, and nobody else anything."""

import mqtt5
import pytest
import zenoh

from streamer.transports.errors import Malformed
from streamer.transports.mqtt5 import frames
from streamer.uprotocol.status import UCode
from tests.e2e.mqtt_connection import incoming, subscribed
from tests.independent.message import Plain
from tests.independent.zenoh import attachment_of, zenoh_key
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import ANYTHING, free_endpoint, raw_peer, running, until_matched

QOS_1 = mqtt5.QoS.AT_LEAST_ONCE
TOPIC = "veh1/8000/A/2/8A50"
MANY = [("a", "b")] * 1_000_000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the packets that were decoded into objects."""
    sizes: list[int] = []
    read = frames.read

    def counted(frame: bytes) -> object:
        sizes.append(len(frame))
        return read(frame)

    monkeypatch.setattr(frames, "read", counted)
    return sizes


def bomb(packet_id: int) -> bytes:
    """Seven million bytes that would become two million objects."""
    return mqtt5.PublishPacket(TOPIC, b"", qos=QOS_1, packet_id=packet_id, user_properties=MANY).write()


def with_token(size: int, packet_id: int) -> bytes:
    plain = mqtt5.read(memoryview(incoming("x", packet_id)))[0]
    assert isinstance(plain, mqtt5.PublishPacket)
    properties = [*plain.user_properties, ("10", "t" * size)]
    return mqtt5.PublishPacket(TOPIC, b"x", qos=QOS_1, packet_id=packet_id, user_properties=properties).write()


async def test_property_bomb_is_acknowledged_and_never_decoded(fake: FakeBroker, decoded: list[int]) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(bomb(1), bomb(2), incoming("good", 3))
        assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(3)] == [1, 2, 3]
        assert inbox.payloads == [b"good"]
        assert [error.reason for error in endpoint.malformed] == [Malformed.HEADER] * 2
        assert max(decoded) < 8192 + 100  # what may be a header, and the rest of a packet


async def test_long_token_costs_its_message_and_the_next_message_arrives(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(with_token(1025, 1), with_token(60_000, 2), with_token(1024, 3))
        assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(3)] == [1, 2, 3]
        assert [message.attributes.token for message in inbox.messages] == ["t" * 1024]
        assert endpoint.malformed == []
        assert [(each.code, each.payload_bytes) for each in endpoint.turned_away] == [(UCode.RESOURCE_EXHAUSTED, 1)] * 2
        assert [each.received.message.attributes for each in endpoint.turned_away] == [
            inbox.messages[0].attributes.shared
        ] * 2
        assert not any("ttt" in each.text for each in endpoint.turned_away)


async def test_broker_that_greets_with_a_property_bomb_is_left(fake: FakeBroker, decoded: list[int]) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        hostile = await fake.peer()
        await hostile.next(mqtt5.ConnectPacket)
        hostile.write(mqtt5.ConnAckPacket(user_properties=MANY))
        await subscribed(fake, endpoint, RecordingListener())  # the next connection
        assert max(decoded) < 8192


async def test_large_attachments_cost_their_message_and_the_next_message_arrives() -> None:
    events, inbox, endpoint = EventLog(), RecordingListener(), free_endpoint()
    message = Plain(1, ("veh1", 0xA, 1, 0x8000), payload=b"x")
    key, attachment = zenoh_key(message), attachment_of(message)
    with_token = Plain(1, message.source, token="t" * 1025)
    long_token = attachment_of(with_token)
    unknown_field = attachment + b"\xfa\x7f\x80\x80\x40" + bytes(1 << 20)  # field 2047, 1 MiB
    async with running(events, listen=[endpoint]) as transport:
        await transport.register_listener(ANYTHING, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key)
            for each in (long_token, unknown_field, attachment):
                peer.put(key, b"x", attachment=each, congestion_control=zenoh.CongestionControl.BLOCK)
            await until(lambda: inbox.messages, "the good message")
    assert [received.id for received in inbox.messages] == [message.id]
    assert events.malformed == []
    assert [(each.received.message.id, each.code) for each in events.turned_away] == [
        (each, UCode.RESOURCE_EXHAUSTED) for each in (with_token.id, message.id)
    ]
