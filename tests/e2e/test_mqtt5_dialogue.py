"""The MQTT 5 transport against a scripted broker: what it says, and what it makes of what it hears."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import mqtt5
import pytest

from streamer.transports.base import LinkState, Received
from streamer.transports.errors import LinkLostError, Malformed, PermanentError, RefusedError
from streamer.transports.mqtt5 import watch, wire
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.mqtt_peer import Endpoint, FakeBroker, Inbox, Peer, until

TOPIC = UUri.parse("//veh1/A8000/2/8A50")
OTHER = UUri.parse("//veh1/A8000/2/8A51")


def message(text: str = "x") -> UMessage:
    return publish(1_790_000_000_000, TOPIC, text.encode())


def incoming(text: str, packet_id: int) -> bytes:
    return wire.encode(message(text), "veh1/8000/A/2/8A50", packet_id)


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as broker:
        yield broker


async def connected(fake: FakeBroker, endpoint: Endpoint, **connack: object) -> Peer:
    peer = await fake.peer()
    await peer.accept(**connack)
    await endpoint.up()
    return peer


async def subscribed(fake: FakeBroker, endpoint: Endpoint, inbox: Inbox, **connack: object) -> Peer:
    peer = await fake.peer()
    await peer.accept(**connack)
    await endpoint.transport.register_listener(TOPIC, None, inbox)
    await peer.grant()
    await endpoint.up()
    return peer


# -- connecting -------------------------------------------------------------------------------------------------------


async def test_connect_says_what_the_options_say(fake: FakeBroker) -> None:
    options = {"receive_maximum": 7, "session_expiry_s": 60, "keep_alive_s": 9, "max_packet_bytes": 4096}
    async with Endpoint(fake.url, "gateway.veh_1", **options).running():
        connect = await (await fake.peer()).accept()
    assert connect.client_id == "gateway-veh-1"
    assert (connect.receive_max, connect.session_expiry_interval) == (7, 60)
    assert (connect.keep_alive, connect.max_packet_size, connect.clean_start) == (9, 4096, False)


async def test_up_only_after_every_subscription_is_confirmed(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        for number in range(60):
            await endpoint.transport.register_listener(TOPIC._replace(resource=0x8000 + number), None, Inbox())
        peer = await fake.peer()
        await peer.accept()
        assert len(await peer.grant()) == 50
        assert not endpoint.is_up
        assert len(await peer.grant()) == 10
        await endpoint.up()
    assert endpoint.states == [LinkState.UP, LinkState.DOWN]


async def test_refused_subscription_is_counted_and_does_not_keep_the_link_down(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await endpoint.transport.register_listener(TOPIC, None, Inbox())
        peer = await fake.peer()
        await peer.accept()
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))
        await endpoint.up()
        assert endpoint.transport.refused_subscriptions == 1
        (problem,) = endpoint.transport.problems()
        assert "'veh1/8000/A/2/8A50'" in problem
        assert "NOT_AUTHORIZED (0x87)" in problem


async def refused(fake: FakeBroker, endpoint: Endpoint, inbox: Inbox, count: int = 1) -> Peer:
    """A connection on which the broker refused that many filters."""
    for number in range(count):
        await endpoint.transport.register_listener(TOPIC._replace(resource=0x8000 + number), None, inbox)
    peer = await fake.peer()
    await peer.accept()
    subscribe = await peer.next(mqtt5.SubscribePacket)
    peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED] * count))
    await endpoint.up()
    return peer


async def test_refused_filter_is_a_problem_until_it_is_granted(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await refused(fake, endpoint, Inbox())
        assert len(endpoint.transport.problems()) == 1
        peer.drop()
        await until(lambda: not endpoint.is_up)
        peer = await fake.peer()
        await peer.accept()
        await peer.grant()
        await endpoint.up()
        assert endpoint.transport.problems() == []


async def test_refused_filter_is_no_problem_once_nobody_wants_it(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), Inbox()
    async with endpoint.running():
        peer = await refused(fake, endpoint, inbox, count=12)
        assert len(endpoint.transport.problems()) == 10
        for number in range(12):
            await endpoint.transport.unregister_listener(TOPIC._replace(resource=0x8000 + number), None, inbox)
            await peer.next(mqtt5.UnsubscribePacket)
        assert endpoint.transport.problems() == []
        await endpoint.transport.register_listener(TOPIC, None, inbox)
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        subscribe = await peer.next(mqtt5.SubscribePacket)
        peer.write(mqtt5.SubAckPacket(subscribe.packet_id, [mqtt5.SubAckReasonCode.NOT_AUTHORIZED]))
        await until(lambda: endpoint.transport.refused_subscriptions == 13)
        assert endpoint.transport.problems() == []


async def test_error_that_nobody_thought_of_is_logged_and_tried_again(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **named: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(mqtt5, "ConnectPacket", broken)
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await (await fake.peer()).closed()
        await connected(fake, endpoint)
    record = next(record for record in caplog.records if "connect_failed" in record.message)
    assert record.exc_info is not None
    assert "reason=ZeroDivisionError" in record.message


async def test_filters_with_one_topic_are_subscribed_once(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url, topics="off-vehicle"), Inbox()
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        await endpoint.transport.register_listener(TOPIC, None, inbox)
        await endpoint.transport.register_listener(OTHER, None, inbox)
        assert await peer.grant() == ["veh1/gateway"]
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        await endpoint.transport.unregister_listener(OTHER, None, inbox)
        unsubscribe = await peer.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == ["veh1/gateway"]


async def test_after_a_reconnect_filters_are_brought_up_to_date(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), Inbox()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.drop()
        await until(lambda: not endpoint.is_up)
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        await endpoint.transport.register_listener(OTHER, None, inbox)
        again = await fake.peer()
        await again.accept(session_present=True)
        assert await again.grant() == ["veh1/8000/A/2/8A51"]
        unsubscribe = await again.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == ["veh1/8000/A/2/8A50"]
        await endpoint.up()
        assert endpoint.reconnects == 1


@pytest.mark.parametrize("reason", [mqtt5.ConnAckReasonCode.NOT_AUTHORIZED, mqtt5.ConnAckReasonCode.SERVER_BUSY, 0x77])
async def test_refused_connection_is_tried_again(
    fake: FakeBroker, reason: mqtt5.ConnAckReasonCode | int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await fake.peer()
        await peer.next(mqtt5.ConnectPacket)
        peer.write(b"\x20\x03\x00\x77\x00" if isinstance(reason, int) else mqtt5.ConnAckPacket(reason_code=reason))
        await peer.closed()
        await connected(fake, endpoint)
    assert endpoint.states == [LinkState.UP, LinkState.DOWN]
    if reason == mqtt5.ConnAckReasonCode.NOT_AUTHORIZED:
        assert "NOT_AUTHORIZED (0x87), PERMISSION_DENIED" in caplog.text


async def test_broker_that_says_nothing_is_left_and_tried_again(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, connect_timeout_s=0.2)
    async with endpoint.running():
        await (await fake.peer()).next(mqtt5.ConnectPacket)
        await connected(fake, endpoint)


async def test_session_taken_over_is_said_and_the_link_comes_back(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        peer.write(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER))
        await connected(fake, endpoint)
    assert any(record.levelno == logging.ERROR and "same client id" in record.message for record in caplog.records)


async def test_stop_says_goodbye_and_gives_back_what_is_unconfirmed(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message("a"), message("b")])
        await peer.next(mqtt5.PublishPacket)
        await peer.next(mqtt5.PublishPacket)
        await endpoint.transport.stop()
        goodbye = await peer.next(mqtt5.DisconnectPacket)
        assert goodbye.reason_code == mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
        await endpoint.transport.stop()
    ((payloads, error),) = endpoint.told
    assert payloads == [b"a", b"b"]
    assert isinstance(error, LinkLostError)


async def test_stop_without_any_connection_ends_at_once(fake: FakeBroker) -> None:
    endpoint = Endpoint("mqtt://127.0.0.1:9")
    async with asyncio.timeout(5):
        async with endpoint.running():
            pass
    assert endpoint.states == []


# -- sending ----------------------------------------------------------------------------------------------------------


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
        endpoint.submit([message(text) for text in "abcd"])
        ids = [(await peer.next(mqtt5.PublishPacket)).packet_id or 0 for _ in "abcd"]
        peer.write(
            mqtt5.PubAckPacket(ids[0], reason_code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS),
            mqtt5.PubAckPacket(ids[1], reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED, reason_str="no"),
            b"\x40\x03" + ids[2].to_bytes(2, "big") + b"\x96",
            mqtt5.PubAckPacket(ids[3]),
        )
        await until(lambda: len(endpoint.told) == 4)
    assert endpoint.confirmed == [b"a", b"d"]
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
        assert endpoint.transport.wants_sink_authority
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
        ((payloads, error),) = endpoint.told
        assert payloads == [b"a", b"b", b"c"]
        assert isinstance(error, LinkLostError)


async def test_missing_puback_leads_to_a_reconnect(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, ack_timeout_s=0.2)
    async with endpoint.running():
        peer = await connected(fake, endpoint)
        endpoint.submit([message("a")])
        await peer.next(mqtt5.PublishPacket)
        peer = await connected(fake, endpoint, session_present=True)
        assert (await peer.next(mqtt5.PublishPacket)).duplicate


async def test_missing_ping_answer_leads_to_a_reconnect(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MIN_PING_ANSWER_S", 0.1)
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        peer = await connected(fake, endpoint, server_keep_alive=1)
        await peer.nothing_until_ping()  # answered
        await peer.next(mqtt5.PingReqPacket)  # not answered
        await connected(fake, endpoint)


# -- receiving --------------------------------------------------------------------------------------------------------


async def test_acknowledgements_go_out_in_the_order_of_arrival(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), Inbox(release_at_once=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(*(incoming(text, 20 + index) for index, text in enumerate("abc")))
        await until(lambda: len(inbox.received) == 3)
        for received in reversed(inbox.received):
            received.release()
        assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in "abc"] == [20, 21, 22]


async def test_receipt_of_a_lost_connection_is_not_acknowledged_on_the_next(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url, keep_alive_s=1), Inbox(release_at_once=False)
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
    endpoint, inbox = Endpoint(fake.url), Inbox(release_at_once=False)
    panic = b"\x32\x08\x00\x02\xff\xfe\x00\x1f\x00a"
    unmarked = mqtt5.PublishPacket("a/b", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=32).write()
    stuck = b"\x32\x0a\x00\x02ab\x00\x21\x7f\x26ab"
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(incoming("a", 30), panic, unmarked, stuck, mqtt5.PublishPacket("a", b""), incoming("b", 34))
        await until(lambda: len(inbox.received) == 2)
        assert inbox.payloads == [b"a", b"b"]
        reasons = [Malformed.PACKET, Malformed.MARKER, Malformed.PACKET, Malformed.MARKER]
        assert [error.reason for error in endpoint.malformed] == reasons
        inbox.received[1].release()
        inbox.received[0].release()
        acknowledged = [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in range(5)]
        assert acknowledged == [30, 31, 32, 33, 34]
        assert endpoint.is_up


async def test_message_with_qos_0_is_delivered_without_acknowledgement(fake: FakeBroker) -> None:
    endpoint, inbox = Endpoint(fake.url), Inbox()
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        properties = mqtt5.read(memoryview(incoming("a", 1)))[0].user_properties  # type: ignore[union-attr]  # a PUBLISH
        peer.write(mqtt5.PublishPacket("a", b"q0", user_properties=properties), incoming("b", 9))
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


async def test_message_beyond_our_own_maximum_is_acknowledged_in_its_turn_and_left_out(fake: FakeBroker) -> None:
    """A broker that does not heed what we said in the CONNECT: were we to disconnect, it would send it again for ever."""
    endpoint, inbox = Endpoint(fake.url, max_packet_bytes=4096, keep_alive_s=1), Inbox(release_at_once=False)
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
        (error,) = endpoint.malformed
        assert error.reason is Malformed.SIZE
        assert endpoint.reconnects == 0


async def overflowing(fake: FakeBroker, endpoint: Endpoint, inbox: Inbox) -> Peer:
    """A connection on which the broker has sent 1 to 6; our receive maximum is 2."""
    peer = await subscribed(fake, endpoint, inbox)
    peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(1, 7)))
    await until(lambda: len(inbox.received) == 4)
    return peer


async def test_excess_is_not_read_while_we_wait_for_nothing(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    endpoint, inbox = Endpoint(fake.url, receive_maximum=2), Inbox(release_at_once=False)
    async with endpoint.running():
        peer = await subscribed(fake, endpoint, inbox)
        peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(1, 5)))
        await until(lambda: len(inbox.received) == 4)
        peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(5, 8)))
        for number in range(7):
            await until(lambda number=number: len(inbox.received) > number)
            inbox.received[number].release()
            assert (await peer.next(mqtt5.PubAckPacket)).packet_id == number + 1
        assert inbox.payloads == [b"%d" % number for number in range(1, 8)]
        assert endpoint.is_up
    assert "receive_maximum_exceeded" not in caplog.text


async def test_what_exceeds_twice_our_receive_maximum_is_left_out_and_said_once(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url, receive_maximum=2, receive_excess_bytes=0, keep_alive_s=1)
    inbox = Inbox(release_at_once=False)
    broken = b"\x32\x08\x00\x02\xff\xfe\x00\x1f\x00a"
    async with endpoint.running():
        peer = await overflowing(fake, endpoint, inbox)
        endpoint.submit([message("ours")])
        await peer.next(mqtt5.PublishPacket)  # it stays unconfirmed, so reading goes on
        peer.write(incoming("7", 7), broken)
        inbox.received[0].release()
        assert (await peer.next(mqtt5.PubAckPacket)).packet_id == 1
        peer.write(incoming("8", 8))  # there is room, but it would overtake
        await peer.nothing_until_ping()
        await peer.nothing_until_ping()  # the answer to the first one was read
        assert inbox.payloads == [b"1", b"2", b"3", b"4"]
        assert endpoint.malformed == []
        assert endpoint.is_up
    assert caplog.text.count("receive_maximum_exceeded") == 1


async def test_exceeded_receive_maximum_does_not_stop_what_we_send(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, receive_maximum=2, receive_excess_bytes=0, window=2, ack_timeout_s=0.3)
    inbox = Inbox(release_at_once=False)
    async with endpoint.running():
        peer = await overflowing(fake, endpoint, inbox)
        endpoint.submit([message(str(number)) for number in range(20)])
        for _ in range(20):
            peer.write(mqtt5.PubAckPacket((await peer.next(mqtt5.PublishPacket)).packet_id or 0))
            await asyncio.sleep(0.04)  # longer than the watchdog waits, all together
        await until(lambda: len(endpoint.confirmed) == 20)
        assert endpoint.is_up
        assert len(inbox.received) == 4


async def test_what_was_left_out_is_had_again_over_a_new_connection_once_there_is_room(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    ladder = {"initial_ms": 10, "factor": 1000, "max_ms": 10_000}
    endpoint, inbox = Endpoint(fake.url, receive_maximum=2, receive_excess_bytes=0, reconnect=ladder), Remembering()
    async with endpoint.running(), asyncio.timeout(5):  # a second step of the ladder would take longer
        first = 1
        for _ in range(3):
            peer = await overflowing_again(fake, endpoint, inbox, first)
            for received in inbox.held[:2]:
                received.release()
            assert [(await peer.next(mqtt5.PubAckPacket)).packet_id for _ in "ab"] == [first, first + 1]
            await asyncio.sleep(0.02)
            assert endpoint.is_up  # two are left, more than half of our receive maximum
            inbox.held[2].release()
            assert (await peer.next(mqtt5.PubAckPacket)).packet_id == first + 2
            goodbye = await peer.next(mqtt5.DisconnectPacket)
            assert goodbye.reason_code == mqtt5.DisconnectReasonCode.RECEIVE_MAX_EXCEEDED
            peer.write(incoming("late", 99))  # thrown away
            peer.drop()
            await until(lambda: not endpoint.is_up)
            inbox.held[3].release()  # void: it belongs to the old connection
            inbox.held.clear()
            first += 3
    assert [int(payload or b"") for payload in inbox.new] == list(range(1, 11))
    assert "the broker exceeded receive_maximum 2" in caplog.text


class Remembering(Inbox):
    """Holds back what arrives, in ``held``; ``new`` has each payload once, as by a listener that remembers ids."""

    def __init__(self) -> None:
        super().__init__(release_at_once=False)
        self.new: list[bytes | None] = []
        self.held: list[Received] = []

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        for received in batch:
            self.held.append(received)
            if received.message.payload not in self.new:
                self.new.append(received.message.payload)


async def overflowing_again(fake: FakeBroker, endpoint: Endpoint, inbox: Remembering, first: int) -> Peer:
    """The next connection, on which the broker sends six from ``first`` on."""
    peer = await fake.peer()
    await peer.accept(session_present=first > 1)
    if first == 1:
        await endpoint.transport.register_listener(TOPIC, None, inbox)
    await peer.grant()
    await endpoint.up()
    peer.write(*(incoming(str(packet_id), packet_id) for packet_id in range(first, first + 6)))
    await until(lambda: len(inbox.held) == 4)
    return peer
