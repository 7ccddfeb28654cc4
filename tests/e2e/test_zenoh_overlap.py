"""Overlapping subscriptions of one session, with real sessions: one is closed while samples come."""

import asyncio

import pytest

from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import ANY_RESOURCE, UUri, everything_at
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import ANYTHING, free_endpoint, now_ms, put, raw_peer, running, until_matched

FLOWS = 256  # more than are worth declaring
MESSAGES = 20_000
ENTITY = UUri("veh1", 0xA8000, 2, ANY_RESOURCE)


@pytest.mark.parametrize(
    ("kept", "closed"),
    [
        pytest.param(ANYTHING, ENTITY, id="everything and a uEntity"),
        pytest.param(everything_at("veh1"), ENTITY, id="an authority and a uEntity"),
        pytest.param(ENTITY, ENTITY._replace(resource=0x8000), id="a uEntity and a topic"),
    ],
)
async def test_what_a_subscription_brings_comes_once_while_a_younger_one_is_closed(kept: UUri, closed: UUri) -> None:
    endpoint = free_endpoint()
    flows = 1 if closed.resource == 0x8000 else FLOWS
    topics = [ENTITY._replace(resource=0x8000 + number) for number in range(flows)]
    async with running(listen=[endpoint]) as transport:
        inbox, other, control = RecordingListener(), RecordingListener(), transport._control
        assert control is not None
        await transport.register_listener(kept, None, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            await until_matched(peer, key_for(publish(now_ms(), topics[0]).attributes, ""))
            messages = [publish(now_ms(), topics[number % flows], b"%d" % number) for number in range(MESSAGES)]

            def put_all() -> None:
                for message in messages:
                    put(peer, message)

            sending = asyncio.create_task(asyncio.to_thread(put_all))
            while not sending.done():
                await transport.register_listener(closed, None, other)
                await transport.unregister_listener(closed, None, other)
                await control.ask(lambda: None)  # until it is closed
            await sending
            await until(lambda: inbox.messages and inbox.messages[-1] == messages[-1], "the last message", 30)
    assert inbox.messages == messages  # none is lost, and none comes as a copy from the one that closes
