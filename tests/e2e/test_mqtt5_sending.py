"""The MQTT 5 transport against a scripted broker: what it sends, and what it does with answers and without them."""

import mqtt5
import pytest

from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, RefusedError
from streamer.transports.mqtt5 import keep_alive
from streamer.uprotocol.status import UCode, UStatusError
from tests.e2e.mqtt_connection import connected
from tests.e2e.mqtt_messages import message
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.waiting import until


async def test_without_a_connection_everything_comes_back_at_once(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    endpoint.submit([message("a"), message("b")])
    ((payloads, error),) = endpoint.told
    assert payloads == [b"a", b"b"]
    assert isinstance(error, LinkLostError)


async def test_puback_reasons_reach_the_sender(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message(text) for text in "abcde"])
        ids = [(await peer.next(mqtt5.PublishPacket)).packet_id or 0 for _ in "abcde"]
        peer.write(
            mqtt5.PubAckPacket(ids[0], reason_code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS),
            mqtt5.PubAckPacket(ids[1], reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED, reason_str="no"),
            b"\x40\x03" + ids[2].to_bytes(2, "big") + b"\x96",
            mqtt5.PubAckPacket(ids[3]),
            # not in PUBACK's table, but below 0x80: mochi answers so, with a property, to a message with user properties
            b"\x40\x0b" + ids[4].to_bytes(2, "big") + b"\x01\x07\x26\x00\x01k\x00\x01v",
        )
        await until(lambda: sum(len(payloads) for payloads, _ in endpoint.told) == 5)
    assert endpoint.confirmed == [b"a", b"d", b"e"]
    (_, forbidden), (_, later) = endpoint.refused
    assert isinstance(forbidden, PermanentError)
    assert forbidden.code is UCode.PERMISSION_DENIED
    assert isinstance(later, RefusedError)
    assert later.code is UCode.RESOURCE_EXHAUSTED


async def test_send_completes_with_the_puback(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        first, second = endpoint.transport.send(message("a")), endpoint.transport.send(message("b"))
        packets = [await peer.next(mqtt5.PublishPacket) for _ in "ab"]
        peer.write(
            mqtt5.PubAckPacket(packets[0].packet_id or 0),
            mqtt5.PubAckPacket(packets[1].packet_id or 0, reason_code=mqtt5.PubAckReasonCode.QUOTA_EXCEEDED),
        )
        await first
        with pytest.raises(UStatusError, match="RESOURCE_EXHAUSTED"):
            await second


async def test_brokers_receive_maximum_is_never_exceeded(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, keep_alive_s=1)
    async with endpoint.running():
        peer = await connected(fake, endpoint, receive_max=2)
        assert endpoint.transport.capacity == 2
        endpoint.submit([message(text) for text in "abc"])
        first = await peer.next(mqtt5.PublishPacket)
        await peer.next(mqtt5.PublishPacket)
        await peer.nothing_until_ping()
        peer.write(mqtt5.PubAckPacket(first.packet_id or 0))
        assert (await peer.next(mqtt5.PublishPacket)).payload == b"c"


async def test_message_beyond_the_brokers_maximum_is_refused_for_good(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await connected(fake, endpoint, max_packet_size=500)
        endpoint.submit([message("x" * 500)])
    ((_, error),) = endpoint.refused
    assert isinstance(error, PermanentError)
    assert error.code is UCode.RESOURCE_EXHAUSTED


async def test_off_vehicle_publish_without_sink_is_refused_for_good(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, topics="off-vehicle")
    async with endpoint.running():
        assert endpoint.transport.options.addresses_publishes
        await connected(fake, endpoint)
        endpoint.submit([message()])
    ((_, error),) = endpoint.refused
    assert isinstance(error, PermanentError)
    assert error.code is UCode.INVALID_ARGUMENT
    assert "sink" in error.message


async def test_session_present_resends_with_dup_and_the_same_id(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message(text) for text in "abc"])
        sent = [await peer.next(mqtt5.PublishPacket) for _ in "abc"]
        peer.write(mqtt5.PubAckPacket(sent[0].packet_id or 0))
        await until(lambda: endpoint.told)
        peer.drop()
        peer = await connected(fake, endpoint, session_present=True)
        resent = [await peer.next(mqtt5.PublishPacket) for _ in "bc"]
        assert [(item.payload, item.packet_id, item.duplicate) for item in resent] == [
            (item.payload, item.packet_id, True) for item in sent[1:]
        ]
        peer.write(*(mqtt5.PubAckPacket(item.packet_id or 0) for item in resent))
        await until(lambda: len(endpoint.confirmed) == 3)
    assert endpoint.confirmed == [b"a", b"b", b"c"]
    assert endpoint.refused == []


async def test_no_session_gives_everything_back_before_the_link_is_up(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, window=2)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message(text) for text in "abc"])
        await peer.next(mqtt5.PublishPacket)
        peer.drop()
        await until(lambda: not endpoint.is_up)
        assert endpoint.told == []
        await connected(fake, endpoint)
        told = [(payloads, type(error)) for payloads, error in endpoint.told]
        assert told == [([b"a", b"b"], MayHaveArrivedError), ([b"c"], LinkLostError)]


async def test_missing_puback_leads_to_a_reconnect(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, ack_timeout_s=0.2)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message("a")])
        await peer.next(mqtt5.PublishPacket)
        peer = await connected(fake, endpoint, session_present=True)
        assert (await peer.next(mqtt5.PublishPacket)).duplicate


async def test_missing_ping_answer_leads_to_a_reconnect(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_alive, "MIN_PING_ANSWER_S", 0.1)
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint, server_keep_alive=1)
        await peer.nothing_until_ping()  # answered
        await peer.next(mqtt5.PingReqPacket)  # not answered
        await connected(fake, endpoint)
