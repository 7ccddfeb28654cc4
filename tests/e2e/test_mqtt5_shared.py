"""The MQTT 5 transport with a share, against a scripted broker: what it subscribes to, and brokers that cannot share."""

import asyncio
import logging
from typing import Any

import mqtt5
import pytest

from streamer.uprotocol.uri import UUri, everything_at
from tests.e2e.mqtt_connection import incoming
from tests.e2e.mqtt_messages import TOPIC, message
from tests.listeners import RecordingListener
from tests.mqtt_peer import BrokerConnection, Endpoint, FakeBroker
from tests.waiting import until

ANYONE = everything_at("*")
SHARED = "$share/fleet/veh1/8000/A/2/8A50"
OWN = "+/+/+/+/+/gateway/+/+/+/+"


async def listening(endpoint: Endpoint) -> RecordingListener:
    """Listen to a topic, which is divided, and to what is meant for the streamer itself, which is not."""
    inbox = RecordingListener()
    await endpoint.transport.register_listener(TOPIC, None, inbox)
    await endpoint.transport.register_listener(ANYONE, everything_at(endpoint.authority), inbox)
    return inbox


async def answered(peer: BrokerConnection, *reasons: mqtt5.SubAckReasonCode) -> list[mqtt5.TopicFilter]:
    subscribe = await peer.next(mqtt5.SubscribePacket)
    peer.write(mqtt5.SubAckPacket(subscribe.packet_id, list(reasons)))
    return subscribe.topic_filters


GRANTED = mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE
UNSUBSCRIBED = mqtt5.UnsubAckReasonCode.SUCCESS
UNSUPPORTED = mqtt5.SubAckReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED


async def test_what_is_shared_has_no_no_local_and_what_is_ours_is_not_shared(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, share="fleet")
    async with endpoint.running():
        inbox = await listening(endpoint)
        peer = await fake.peer()
        await peer.accept()
        filters = await answered(peer, GRANTED, GRANTED)
        assert [(each.pattern, each.no_local) for each in filters] == [(SHARED, False), (OWN, True)]
        await endpoint.up()
        peer.write(incoming("x", 1))
        await until(lambda: inbox.payloads == [b"x"], "the message")
        assert endpoint.transport.report().problems == []
        await endpoint.transport.unregister_listener(TOPIC, None, inbox)
        await peer.next(mqtt5.PubAckPacket)
        assert (await peer.next(mqtt5.UnsubscribePacket)).patterns == [SHARED]


@pytest.mark.parametrize("share", [None, "fleet"])
async def test_a_broker_that_has_no_shared_subscriptions_is_not_asked_for_any_and_that_is_a_problem(
    fake: FakeBroker, share: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url, share=share)
    async with endpoint.running():
        await listening(endpoint)
        peer = await fake.peer()
        await peer.accept(shared_subscription_available=False)
        if share is None:
            assert len(await answered(peer, GRANTED, GRANTED)) == 2
            await endpoint.up()
            assert endpoint.transport.report().problems == []
            return
        (only,) = await answered(peer, GRANTED)
        assert only.pattern == OWN
        await endpoint.up()
        (problem,) = endpoint.transport.report().problems
        assert f"{SHARED!r}: it has no shared subscriptions; remove share from the options" in problem
        assert [record.levelno for record in caplog.records if "subscription_refused" in record.message] == [logging.WARNING]
        # one more while connected
        await endpoint.transport.register_listener(UUri.parse("//veh1/A8000/2/8A51"), None, RecordingListener())
        assert len(endpoint.transport.report().problems) == 2
        # the broker is exchanged for one that can
        peer.drop()
        await until(lambda: not endpoint.is_up, "the lost link")
        peer = await fake.peer()
        await peer.accept()
        assert len(await answered(peer, GRANTED, GRANTED, GRANTED)) == 3
        await endpoint.up()
        assert endpoint.transport.report().problems == []


async def test_a_broker_that_refuses_to_share_is_a_problem_that_says_what_to_do(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, share="fleet")
    async with endpoint.running():
        await listening(endpoint)
        peer = await fake.peer()
        await peer.accept()
        await answered(peer, UNSUPPORTED, GRANTED)
        await endpoint.up()
        (problem,) = endpoint.transport.report().problems
        assert f"{SHARED!r}: SHARED_SUBSCRIPTIONS_NOT_SUPPORTED (0x9E): it has no shared subscriptions; remove" in problem


async def test_a_session_from_before_the_share_loses_the_plain_filter_once(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, share="fleet", keep_alive_s=1)
    async with endpoint.running():
        await listening(endpoint)
        peer = await fake.peer()
        await peer.accept(session_present=True)
        await answered(peer, GRANTED, GRANTED)  # first: nothing is missed in between
        unsubscribe = await peer.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == ["veh1/8000/A/2/8A50"]
        peer.write(mqtt5.UnsubAckPacket(unsubscribe.packet_id, [mqtt5.UnsubAckReasonCode.SUCCESS]))
        await until(lambda: not endpoint.transport._link.session.has_requests, "the broker's answer")
        peer.drop()
        await until(lambda: not endpoint.is_up, "the lost link")
        peer = await fake.peer()
        await peer.accept(session_present=True)
        await answered(peer, GRANTED, GRANTED)
        await peer.nothing_until_ping()


# a session that ends with the connection


@pytest.mark.parametrize(
    ("options", "connack"),
    [
        ({"session_expiry_s": 0}, {}),
        ({"clean_start": True}, {}),
        pytest.param({}, {"session_expiry_interval": 0}, id="the broker keeps none"),
    ],
)
async def test_before_its_session_ends_it_unsubscribes_and_takes_what_comes_until_then(
    fake: FakeBroker, options: dict[str, Any], connack: dict[str, Any]
) -> None:
    endpoint = Endpoint(fake.url, share="fleet", **options)
    async with endpoint.running():
        inbox = await listening(endpoint)
        peer = await fake.peer()
        await peer.accept(**connack)
        await answered(peer, GRANTED, GRANTED)
        await endpoint.up()
        leaving = asyncio.create_task(endpoint.transport.stop_receiving())
        unsubscribe = await peer.next(mqtt5.UnsubscribePacket)
        assert unsubscribe.patterns == [SHARED, OWN]
        peer.write(incoming("sent before", 1))
        await peer.next(mqtt5.PubAckPacket)
        assert not leaving.done()
        peer.write(incoming("sent last", 2), mqtt5.UnsubAckPacket(unsubscribe.packet_id, [UNSUBSCRIBED, UNSUBSCRIBED]))
        await leaving
        assert inbox.payloads == [b"sent before", b"sent last"]
        assert not any(received.source_retransmits for received in inbox.received)
        peer.drop()  # and if it has to connect once more to send the rest, it stays unsubscribed
        await until(lambda: not endpoint.is_up, "the lost link")
        peer = await fake.peer()
        await peer.accept()
        await endpoint.up()
        endpoint.submit([message()])
        await peer.next(mqtt5.PublishPacket)


async def test_with_a_session_that_is_kept_it_stays_subscribed(fake: FakeBroker) -> None:
    endpoint = Endpoint(fake.url, share="fleet", keep_alive_s=1)
    async with endpoint.running():
        inbox = await listening(endpoint)
        peer = await fake.peer()
        await peer.accept()
        await answered(peer, GRANTED, GRANTED)
        await endpoint.up()
        await endpoint.transport.stop_receiving()
        await peer.nothing_until_ping()
        peer.write(incoming("x", 1))
        await until(lambda: inbox.payloads == [b"x"], "the message")
        assert inbox.received[0].source_retransmits


async def test_how_long_the_broker_keeps_the_session_is_heeded_at_each_connection(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url, session_expiry_s=60)
    async with endpoint.running():
        inbox = await listening(endpoint)
        kept = []
        for number, given_s in enumerate((0, 30, 60, None)):
            peer = await fake.peer()
            await peer.accept(session_expiry_interval=given_s)
            await peer.grant()
            await endpoint.up()
            peer.write(incoming("x", 1))
            await until(lambda number=number: len(inbox.received) > number, "the message")  # type: ignore[misc]
            kept.append((endpoint.transport.source_retransmits, inbox.received[-1].source_retransmits))
            peer.drop()
            await until(lambda: not endpoint.is_up, "the lost link")
    assert kept == [(False, False), (True, True), (True, True), (True, True)]
    lowered = [record.message for record in caplog.records if "session_expiry_lowered" in record.message]
    assert lowered == [f"session_expiry_lowered endpoint=gateway asked_s=60 given_s={given_s}" for given_s in (0, 30)]


async def test_what_could_not_be_taken_before_the_session_ends_is_told(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(fake.url, session_expiry_s=0)
    async with endpoint.running():
        inbox = RecordingListener(releases=False)
        await endpoint.transport.register_listener(TOPIC, None, inbox)
        peer = await fake.peer()
        await peer.accept()
        await peer.grant()
        await endpoint.up()
        peer.write(incoming("a", 1), incoming("b", 2))
        await until(lambda: len(inbox.received) == 2, "the messages")
    assert "unacknowledged_given_up endpoint=gateway messages=2" in caplog.text
