"""Whether a put can block, as the kernel tells it of real links."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zenoh

from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.send_queues import SendQueues
from tests.ports import free_port
from tests.waiting import until
from tests.zenoh_peers import PeerProcess, free_endpoint, open_peer, until_matched

KEY = "up/test"


@asynccontextmanager
async def _watched(**settings: Any) -> AsyncIterator[tuple[zenoh.Session, SendQueues]]:
    """A session and its queues. As in the transport the control thread closes it: it may just be asking for the links."""
    session = open_peer(**settings)
    queues, control = SendQueues(), ControlThread(asyncio.get_running_loop(), "test")
    try:
        await control.ask(lambda: queues.watch(session, control))
        yield session, queues
    finally:
        await control.ask(session.close)
        control.end()


async def test_there_is_no_room_before_a_put_blocks_and_again_when_the_receiver_goes_on() -> None:
    endpoint = free_endpoint()
    patience = {"transport__link__tx__queue__congestion_control__block__wait_before_close": 60_000_000}
    async with (
        _watched(listen=[endpoint], **patience) as (session, queues),
        PeerProcess.running(connect=[endpoint]) as peer,
    ):
        await peer.subscribe(KEY)
        await until_matched(session, KEY)
        await until(queues.has_room, "the link is known")
        peer.signal(signal.SIGSTOP)
        put = 0

        def put_while_there_is_room() -> None:
            nonlocal put
            while queues.has_room() and put < 100_000:
                session.put(KEY, bytes(16_000), congestion_control=zenoh.CongestionControl.BLOCK)
                put += 1

        await asyncio.wait_for(asyncio.to_thread(put_while_there_is_room), 30)
        assert 0 < put < 100_000
        assert not queues.has_room()
        peer.signal(signal.SIGCONT)
        await until(queues.has_room, "the receiver has taken everything")


async def test_a_new_link_is_asked_too_and_a_closed_one_no_more() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (_, queues):
        assert queues.has_room()  # nobody is there: nothing waits
        for _ in range(2):
            async with PeerProcess.running(connect=[endpoint]):
                await until(lambda: queues._known is not None and len(queues._known) == 1, "the link is known")
                assert queues.has_room()
            await until(lambda: queues._known == (), "the link is gone")


async def test_links_over_ipv6_are_found() -> None:
    endpoint = f"tcp/[::1]:{free_port()}"
    async with _watched(listen=[endpoint]) as (_, queues):
        with open_peer(connect=[endpoint]):
            await until(lambda: queues._known is not None and len(queues._known) == 1, "the link is known")


async def test_of_another_kind_of_link_nothing_is_known() -> None:
    endpoint = f"ws/127.0.0.1:{free_port()}"
    async with _watched(listen=[endpoint]) as (session, queues):
        with open_peer(connect=[endpoint]):
            await until(lambda: len(session.info.links()) == 1, "the link")
            await until(lambda: not queues.has_room(), "nothing is known")
        await until(queues.has_room, "the link is gone")
