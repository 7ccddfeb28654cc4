"""Senders that one Zenoh endpoint holds back, and everybody else: all endpoints of a process share Zenoh's threads."""

from contextlib import AsyncExitStack

from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import publish
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import TOPIC, PeerProcess, free_endpoint, now_ms, put, raw_peer, running, until_matched

SENDERS = 4
"""Zenoh by itself reads with two threads."""

_PATIENT = {"transport__link__tx__queue__congestion_control__block__wait_before_close": 60_000_000}


async def test_senders_that_one_endpoint_holds_back_do_not_keep_another_one_from_receiving() -> None:
    paused_at, other_at = free_endpoint(), free_endpoint()
    message = publish(now_ms(), TOPIC, b"through")
    async with running(listen=[paused_at], receive_buffer=10) as paused, running(listen=[other_at]) as other:
        inbox = RecordingListener()
        await paused.register_listener(TOPIC, None, RecordingListener())
        await other.register_listener(TOPIC, None, inbox)
        paused.set_receiving(False)
        async with AsyncExitStack() as senders:
            for _ in range(SENDERS):
                sender = await senders.enter_async_context(PeerProcess.running(connect=[paused_at], **_PATIENT))
                await sender.flood()
            with raw_peer(connect=[other_at]) as peer:
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
                await until(lambda: bool(inbox.messages), "the message through the other endpoint")
        assert inbox.messages == [message]
