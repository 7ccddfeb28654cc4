"""The MQTT 5 transport against a scripted broker: what it acknowledges, skips, and ends the connection for."""

from typing import Any

import mqtt5
import pytest

from streamer.transports.errors import Malformed
from streamer.uprotocol.status import UCode
from tests.e2e.mqtt_connection import connected, incoming, subscribed
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.waiting import until


async def test_acknowledgements_go_out_in_the_order_of_arrival(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener(releases=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(*(incoming(text, 20 + index) for index, text in enumerate("abc")))
        await until(lambda: len(inbox.received) == 3)
        for received in reversed(inbox.received):
            received.release()
        assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in "abc"] == [20, 21, 22]


async def test_a_broker_that_stopped_at_its_bound_before_is_reported_as_soon_as_it_is_near_it(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener(releases=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(*(incoming(text, 20 + index) for index, text in enumerate("abcd")))
        await until(lambda: len(inbox.received) == 4)
        assert not any(endpoint.transport.awaits_acknowledgements(now_s) for now_s in (1.0, 1.005))
        assert endpoint.transport.awaits_acknowledgements(1.05)  # silent for long
        for received in inbox.received:
            received.release()
        for _ in "abcd":
            await peer.next(mqtt5.PubAckPacket)
        peer.write(incoming("e", 24), incoming("f", 25))
        await until(lambda: len(inbox.received) == 6)
        assert (endpoint.awaited, endpoint.transport.awaits_acknowledgements(2.0)) == (0, False)
        peer.write(incoming("g", 26))
        await until(lambda: len(inbox.received) == 7)
        assert (endpoint.awaited, endpoint.transport.awaits_acknowledgements(2.0)) == (1, True)


async def test_receipt_of_a_lost_connection_is_not_acknowledged_on_the_next(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url, keep_alive_s=1), RecordingListener(releases=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(incoming("a", 20))
        await until(lambda: inbox.received)
        peer.drop()
        await until(lambda: not endpoint.is_up)
        peer = await fake.peer()
        await peer.accept(session_present=True)
        await peer.grant()
        inbox.received[0].release()
        await peer.nothing_until_ping()
        again = bytearray(incoming("a", 20))
        again[0] |= 0x08
        peer.write(bytes(again))
        await until(lambda: len(inbox.received) == 2)
        assert inbox.received[1].redelivered
        inbox.received[1].release()
        assert (await peer.next(mqtt5.PubAckPacket)).packet_id == 20


async def test_malformed_packets_are_counted_acknowledged_in_order_and_skipped(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener(releases=False)
    unmarked = mqtt5.PublishPacket("a/b", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=32).write()
    stuck = b"\x32\x0a\x00\x02ab\x00\x21\x7f\x26ab"
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(incoming("a", 30), unmarked, stuck, mqtt5.PublishPacket("a", b""), incoming("b", 34))
        await until(lambda: len(inbox.received) == 2)
        assert inbox.payloads == [b"a", b"b"]
        reasons = [Malformed.MARKER, Malformed.PACKET, Malformed.MARKER]
        assert [error.reason for error in endpoint.malformed] == reasons
        inbox.received[1].release()
        inbox.received[0].release()
        acknowledged = [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(4)]
        assert acknowledged == [30, 32, 33, 34]
        assert endpoint.is_up


async def test_message_with_qos_0_is_delivered_without_acknowledgement(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), RecordingListener()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        with_qos_1: Any = mqtt5.read(memoryview(incoming("a", 1)))[0]
        peer.write(
            mqtt5.PublishPacket(with_qos_1.topic, b"q0", user_properties=with_qos_1.user_properties), incoming("b", 9)
        )
        assert (await peer.next(mqtt5.PubAckPacket)).packet_id == 9
        assert inbox.payloads == [b"q0", b"b"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00", mqtt5.DisconnectReasonCode.MALFORMED_PACKET),
        (b"\x90\x02\x00\x01", mqtt5.DisconnectReasonCode.MALFORMED_PACKET),
        (b"\x32\x04\x00\xffab", mqtt5.DisconnectReasonCode.MALFORMED_PACKET),
        (b"\x40\x01\x00", mqtt5.DisconnectReasonCode.MALFORMED_PACKET),
        (b"\x34\x06\x00\x01a\x00\x01\x00", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
        (incoming("x", 0), mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
        (mqtt5.ConnAckPacket().write(), mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
        (b"\x90\xff\xff\xff\x7f", mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE),
    ],
)
async def test_what_breaks_the_protocol_ends_the_connection_with_its_reason(
    fake: FakeBroker, data: bytes, reason: mqtt5.DisconnectReasonCode
) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        peer.write(data)
        disconnect = await peer.next(mqtt5.DisconnectPacket)
        assert disconnect.reason_code == reason
        await connected(fake, endpoint)


async def test_message_beyond_our_own_maximum_is_acknowledged_in_its_turn_and_skipped(fake: FakeBroker) -> None:
    """A broker that ignores the limit of our CONNECT: if we disconnected, it would send the packet again for ever."""
    endpoint, inbox = Endpoint(fake.url, max_packet_bytes=4096, keep_alive_s=1), RecordingListener(releases=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(incoming("a", 1), incoming("b" * 300_000, 2), incoming("c", 3))
        await until(lambda: len(inbox.received) == 2)
        inbox.received[1].release()
        await peer.nothing_until_ping()
        inbox.received[0].release()
        acknowledged = [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(3)]
        assert acknowledged == [1, 2, 3]
        assert inbox.payloads == [b"a", b"c"]
        (refused,) = endpoint.turned_away
        assert refused.received.message.payload == b"b" * 4096
        assert (refused.code, refused.payload_bytes) == (UCode.RESOURCE_EXHAUSTED, 300_000)
        assert endpoint.malformed == []
        assert endpoint.reconnects == 0
