"""Subscriptions of sessions: more topics than subscriptions of their own, overlapping ones, and the end of receiving."""

import asyncio

import pytest
import zenoh

from streamer.transports.errors import Unwanted
from streamer.transports.zenoh.nodes import NO_NODES
from streamer.transports.zenoh.topics import MAX_OWN_SUBSCRIPTIONS
from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import notification, publish
from streamer.uprotocol.uri import ANY_RESOURCE, UUri, everything_at
from tests.independent.zenoh import is_matched
from tests.listeners import RecordingListener
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import (
    ANYTHING,
    ENTITY,
    TOPIC,
    RawSubscriber,
    free_endpoint,
    now_ms,
    put_all,
    raw_peer,
    running,
    until_matched,
    until_up,
)

MANY = MAX_OWN_SUBSCRIPTIONS + 50
NOT_ASKED_FOR = 2000
FLOWS = 256  # more than are worth declaring
MESSAGES = 20_000
SENSOR = UUri("veh1", 0xA8000, 2, ANY_RESOURCE)
BEYOND_BUFFERS = 3000


def topics_of(authority: str, number: int) -> list[UUri]:
    return [UUri(authority, 0xA8000, 2, 0x8000 + n) for n in range(number)]


@pytest.mark.parametrize("is_known", [True, False], ids=["known at the start", "one after the other"])
async def test_each_message_of_many_topics_comes_once_and_no_other(is_known: bool) -> None:
    endpoint, events = free_endpoint(), EventLog()
    topics = [*topics_of("veh1", MANY), *topics_of("veh2", 5)]
    messages = [publish(now_ms(), topic, b"%d" % number) for number in range(3) for topic in topics]
    others = [publish(now_ms(), UUri("veh1", 0xB8000, 2, 0x8000 + number % 100)) for number in range(NOT_ASKED_FOR)]
    async with running(events, listen=[endpoint]) as transport:
        inbox = RecordingListener()
        if not is_known:
            await until(lambda: transport._session is not None, "the session")
        for topic in topics:
            await transport.register_listener(topic, None, inbox)
        await until(lambda: transport._opened is not None, "everything open")
        assert transport._control is not None
        await transport._control.ask(lambda: None)
        with raw_peer(connect=[endpoint]) as peer:
            for topic in topics:
                await until_matched(peer, key_for(publish(now_ms(), topic).attributes, ""))
            put_all(peer, [*others, notification(now_ms(), topics[0], ENTITY), *messages])
            await until(lambda: len(inbox.messages) >= len(messages), "every message", 60)
            await until(lambda: events.packets == len(inbox.messages) + events.unwanted.total(), "the account")
    assert sorted(message.id for message in inbox.messages) == sorted(message.id for message in messages)
    assert set(events.unwanted) == {Unwanted.OTHER_TOPIC}
    assert events.unwanted[Unwanted.OTHER_TOPIC] >= NOT_ASKED_FOR
    assert events.malformed == []


async def test_a_topic_comes_once_and_in_order_while_many_others_come_and_go() -> None:
    """From a few topics to so many that a wide subscription is needed, and back, again and again."""
    endpoint = free_endpoint()
    own, *others = topics_of("veh1", MANY)
    shared = others.pop()
    async with running(listen=[endpoint]) as transport:
        inbox, other = RecordingListener(), RecordingListener()
        await transport.register_listener(own, None, inbox)
        for topic in others:
            await transport.register_listener(topic, None, other)
        await transport.register_listener(shared, None, inbox)  # it has none of its own
        assert transport._control is not None
        with raw_peer(connect=[endpoint]) as peer:
            for topic in (own, shared):
                await until_matched(peer, key_for(publish(now_ms(), topic).attributes, ""))
            messages = [publish(now_ms(), (own, shared)[number % 2], b"%d" % number) for number in range(10_000)]
            sending = asyncio.create_task(asyncio.to_thread(put_all, peer, messages))
            while not sending.done():
                for topic in others:
                    await transport.unregister_listener(topic, None, other)
                await transport._control.ask(lambda: None)
                for topic in others:
                    await transport.register_listener(topic, None, other)
                await transport._control.ask(lambda: None)
            await sending
            await until(lambda: len(inbox.messages) >= len(messages), "every message", 60)
    for topic in (own, shared):
        of_topic = [message for message in messages if message.attributes.source == topic]
        assert [message for message in inbox.messages if message.attributes.source == topic] == of_topic
    assert other.messages == []


async def test_figures_count_what_zenoh_has_and_has_had() -> None:
    async with running(listen=[free_endpoint()]) as transport:
        inbox = RecordingListener()
        await until(lambda: transport._opened is not None, "everything open")
        topics = topics_of("veh1", MANY)
        for topic in topics:
            await transport.register_listener(topic, None, inbox)
        there = {"subscriptions": MAX_OWN_SUBSCRIPTIONS + 1, "wide_subscriptions": 1, "keys": MAX_OWN_SUBSCRIPTIONS + 1}
        assert transport.report().figures == there | NO_NODES
        for topic in topics:
            await transport.unregister_listener(topic, None, inbox)
        gone = {"subscriptions": 0, "wide_subscriptions": 0, "keys": MAX_OWN_SUBSCRIPTIONS + 1}
        await until(lambda: transport.report().figures == gone | NO_NODES, "the end of all")
        for number in range(MANY):  # ever new ones
            await transport.register_listener(topics[0]._replace(version=3, resource=0x9000 + number), None, inbox)
        assert transport.report().figures == {
            "subscriptions": 1,
            "wide_subscriptions": 1,
            "keys": MAX_OWN_SUBSCRIPTIONS + 1,
            **NO_NODES,
        }


@pytest.mark.parametrize(
    ("kept", "closed"),
    [
        pytest.param(ANYTHING, SENSOR, id="everything and a uEntity"),
        pytest.param(everything_at("veh1"), SENSOR, id="an authority and a uEntity"),
        pytest.param(SENSOR, SENSOR._replace(resource=0x8000), id="a uEntity and a topic"),
    ],
)
async def test_what_a_subscription_brings_comes_once_while_a_younger_one_is_closed(kept: UUri, closed: UUri) -> None:
    endpoint = free_endpoint()
    flows = 1 if closed.resource == 0x8000 else FLOWS
    topics = [SENSOR._replace(resource=0x8000 + number) for number in range(flows)]
    async with running(listen=[endpoint]) as transport:
        inbox, other, control = RecordingListener(), RecordingListener(), transport._control
        assert control is not None
        await transport.register_listener(kept, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), topics[0]).attributes, ""))
            messages = [publish(now_ms(), topics[number % flows], b"%d" % number) for number in range(MESSAGES)]
            sending = asyncio.create_task(asyncio.to_thread(put_all, peer, messages))
            while not sending.done():
                await transport.register_listener(closed, None, other)
                await transport.unregister_listener(closed, None, other)
                await control.ask(lambda: None)  # until it is closed
            await sending
            await until(lambda: inbox.messages and inbox.messages[-1] == messages[-1], "the last message", 30)
    assert inbox.messages == messages  # none is lost, and none comes as a copy from the one that closes


async def test_what_waits_while_receiving_is_paused_is_delivered_before_the_end() -> None:
    """More than the subscription's buffer holds: the rest is on the link when receiving stops."""
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        async with running(connect=[endpoint], receive_buffer=100) as transport:
            inbox = RecordingListener()
            await transport.register_listener(TOPIC, None, inbox)
            messages = [publish(now_ms(), TOPIC, b"%d" % number) for number in range(BEYOND_BUFFERS)]
            await until_matched(peer, key_for(messages[0].attributes, ""))
            transport.set_receiving(False)
            await asyncio.to_thread(put_all, peer, messages)  # the sockets hold them
            await transport.stop_receiving()
            assert [received.message for received in inbox.received] == messages


async def test_senders_are_told_that_nobody_listens_and_sending_goes_on() -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        heard = RawSubscriber(peer)
        async with running(connect=[endpoint]) as transport:
            await transport.register_listener(TOPIC, None, RecordingListener())
            message = publish(now_ms(), TOPIC)
            publisher = peer.declare_publisher(key_for(message.attributes, ""), allowed_destination=zenoh.Locality.REMOTE)
            await until(lambda: is_matched(publisher), "the subscription")
            await until_up(transport)
            await transport.stop_receiving()
            await until(lambda: not is_matched(publisher), "the end of the subscription")
            await transport.stop_receiving()
            await transport.register_listener(TOPIC, None, RecordingListener())  # a service may ask for it
            await transport.send(message)
            await until(lambda: message in heard.messages(), "the message")
            assert not is_matched(publisher)


async def test_a_session_that_opens_after_the_end_does_not_subscribe() -> None:
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        message = publish(now_ms(), TOPIC)
        publisher = peer.declare_publisher(key_for(message.attributes, ""), allowed_destination=zenoh.Locality.REMOTE)
        heard = RawSubscriber(peer)
        async with running(connect=[endpoint]) as transport:
            await transport.register_listener(TOPIC, None, RecordingListener())
            await transport.stop_receiving()
            await until_up(transport)
            await transport.send(message)
            await until(lambda: message in heard.messages(), "the message")
            assert not is_matched(publisher)
