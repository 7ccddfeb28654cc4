"""The Zenoh transport stops to receive, and goes on sending."""

import asyncio

import zenoh

from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import UMessage, publish
from tests.independent.zenoh import is_matched
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import TOPIC, RawSubscriber, free_endpoint, now_ms, put, raw_peer, running, until_matched, until_up

MANY = 3000


def put_all(peer: zenoh.Session, messages: list[UMessage]) -> None:
    for message in messages:
        put(peer, message)


async def test_what_waits_while_receiving_is_paused_is_delivered_before_the_end() -> None:
    """More than the subscription's buffer holds: the rest is on the link when receiving stops."""
    endpoint = free_endpoint()
    with raw_peer(listen=[endpoint]) as peer:
        async with running(connect=[endpoint], receive_buffer=100) as transport:
            inbox = RecordingListener()
            await transport.register_listener(TOPIC, None, inbox)
            messages = [publish(now_ms(), TOPIC, b"%d" % number) for number in range(MANY)]
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
