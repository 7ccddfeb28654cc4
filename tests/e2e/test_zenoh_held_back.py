"""Senders that one Zenoh endpoint holds back, and everybody else: all endpoints of a process share Zenoh's threads."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from streamer.transports.zenoh.wire import key_for
from streamer.uprotocol.message import publish
from tests.listeners import RecordingListener
from tests.waiting import until
from tests.zenoh_peers import TOPIC, free_endpoint, now_ms, put, raw_peer, running, until_matched

HELD_S = 30.0
SENDERS = 4
"""Zenoh by itself reads with two threads."""

_FLOOD = """
import json, sys, threading, time
from tests.zenoh_peers import TOPIC, now_ms, open_peer, publish, put

began_s = None

def watch():
    while began_s is None or time.monotonic() - began_s < 0.3:
        time.sleep(0.02)
    print("held", flush=True)

session = open_peer(**json.loads(sys.argv[1]))
threading.Thread(target=watch, daemon=True).start()
while True:
    message = publish(now_ms(), TOPIC, bytes(16_384))
    began_s = time.monotonic()
    put(session, message)
    began_s = None
"""


@asynccontextmanager
async def held_back(endpoint: str) -> AsyncIterator[None]:
    """A sender that floods an endpoint, from the moment when a message of its does not leave any more."""
    root = Path(__file__).parents[2]
    settings = {
        "connect": [endpoint],
        "transport__link__tx__queue__congestion_control__block__wait_before_close": int(HELD_S * 2e6),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _FLOOD,
        json.dumps(settings),
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), HELD_S) == b"held\n"
        yield
    finally:
        process.kill()
        await process.wait()


async def test_senders_that_one_endpoint_holds_back_do_not_keep_another_one_from_receiving() -> None:
    paused_at, other_at = free_endpoint(), free_endpoint()
    message = publish(now_ms(), TOPIC, b"through")
    async with running(listen=[paused_at], receive_buffer=10) as paused, running(listen=[other_at]) as other:
        inbox = RecordingListener()
        await paused.register_listener(TOPIC, None, RecordingListener())
        await other.register_listener(TOPIC, None, inbox)
        paused.pause_receiving()
        async with AsyncExitStack() as senders:
            for _ in range(SENDERS):
                await senders.enter_async_context(held_back(paused_at))
            with raw_peer(connect=[other_at]) as peer:
                await until_matched(peer, key_for(message.attributes, ""))
                put(peer, message)
                await until(lambda: bool(inbox.messages), "the message through the other endpoint")
        assert inbox.messages == [message]
