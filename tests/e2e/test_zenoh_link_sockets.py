"""Whether a put can block, and what has arrived, as the kernel tells it of real links."""

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import zenoh

from streamer.transports.own_nodes import OwnNodes
from streamer.transports.zenoh.control import ControlThread
from streamer.transports.zenoh.link_sockets import LinkSocket, LinkSockets
from tests.ports import free_port
from tests.waiting import until
from tests.zenoh_peers import PeerProcess, free_endpoint, open_peer, until_matched

KEY = "up/test"


@asynccontextmanager
async def _watched(**settings: Any) -> AsyncIterator[tuple[zenoh.Session, LinkSockets]]:
    """A session and its sockets. As in the transport the control thread closes it: it may just be asking for the links."""
    session = open_peer(**settings)
    loop = asyncio.get_running_loop()
    control = ControlThread(loop, "test")
    sockets = LinkSockets(loop, control, session, 15.0, OwnNodes().has)
    try:
        await control.ask(sockets.watch)
        yield session, sockets
    finally:
        sockets.close()
        await control.ask(session.close)
        control.end()


async def test_there_is_no_room_before_a_put_blocks_and_again_when_the_receiver_goes_on() -> None:
    endpoint = free_endpoint()
    patience = {"transport__link__tx__queue__congestion_control__block__wait_before_close": 60_000_000}
    async with (
        _watched(listen=[endpoint], **patience) as (session, sockets),
        PeerProcess.running(connect=[endpoint]) as peer,
    ):
        await peer.subscribe(KEY)
        await until_matched(session, KEY)
        await until(sockets.has_room, "the link is known")
        peer.signal(signal.SIGSTOP)
        put = 0

        def put_while_there_is_room() -> None:
            nonlocal put
            while sockets.has_room() and put < 100_000:
                session.put(KEY, bytes(16_000), congestion_control=zenoh.CongestionControl.BLOCK)
                put += 1

        async with asyncio.timeout(30):
            while not put:  # it is unknown while an event of the link is being handled
                await asyncio.to_thread(put_while_there_is_room)
        assert put < 100_000
        assert not sockets.has_room()
        peer.signal(signal.SIGCONT)
        await until(sockets.has_room, "the receiver has taken everything")


async def test_a_new_link_is_asked_too_and_a_closed_one_no_more() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (_, sockets):
        assert sockets.has_room()  # nobody is there: nothing waits
        for _ in range(2):
            async with PeerProcess.running(connect=[endpoint]):
                await until(lambda: len(sockets._open) == 1 and sockets.has_room(), "the link is known")
                assert sockets.has_room()
            await until(lambda: sockets._open == (), "the link is gone")


async def test_links_over_ipv6_are_found() -> None:
    endpoint = f"tcp/[::1]:{free_port()}"
    async with _watched(listen=[endpoint]) as (_, sockets):
        with open_peer(connect=[endpoint]):
            await until(lambda: len(sockets._open) == 1 and sockets.has_room(), "the link is known")


async def test_of_another_kind_of_link_nothing_is_known() -> None:
    endpoint = f"ws/127.0.0.1:{free_port()}"
    async with _watched(listen=[endpoint]) as (session, sockets):
        with open_peer(connect=[endpoint]):
            await until(lambda: len(session.info.links()) == 1, "the link")
            await until(lambda: not sockets.has_room(), "nothing is known")
        await until(sockets.has_room, "the link is gone")


def _put(session: zenoh.Session) -> float:
    """Put a message; the time when that was done."""
    session.put(KEY, bytes(1000), congestion_control=zenoh.CongestionControl.BLOCK)
    return time.monotonic()


async def _until_arrived(sockets: LinkSockets, put_s: float) -> None:
    await until(lambda: sockets.arrived_until_s(time.monotonic()) > put_s, "the proof")


async def test_what_was_put_has_arrived_once_the_receiver_was_heard_after_it() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets):
        assert sockets.arrived_until_s(time.monotonic()) == -math.inf  # nobody is there
        async with PeerProcess.running(connect=[endpoint]) as peer:
            await peer.subscribe(KEY)
            await until_matched(session, KEY)
            for _ in range(2):
                put_s = _put(session)
                assert sockets.arrived_until_s(time.monotonic()) < put_s
                await _until_arrived(sockets, put_s)


async def test_a_receiver_that_is_stopped_proves_nothing_although_its_host_acknowledges_until_it_goes_on() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets), PeerProcess.running(connect=[endpoint]) as peer:
        await peer.subscribe(KEY)
        await until_matched(session, KEY)
        await _until_arrived(sockets, _put(session))
        peer.signal(signal.SIGSTOP)
        put_s = _put(session)
        (link,) = sockets._open

        def is_acknowledged() -> bool:
            assert sockets.arrived_until_s(time.monotonic()) < put_s
            return link.arrival._acknowledged > put_s

        await until(is_acknowledged, "its host has it")
        peer.signal(signal.SIGCONT)
        await _until_arrived(sockets, put_s)


async def _put_and_acknowledged(session: zenoh.Session, sockets: LinkSockets) -> tuple[LinkSocket, float]:
    """Put a message that the other host acknowledges, and that its process does not answer to; when it was put."""
    await until_matched(session, KEY)
    await until(lambda: len(sockets._open) == 1, "the link is known")
    (link,) = sockets._open

    def is_acknowledged(put_s: float) -> bool:
        return sockets.arrived_until_s(time.monotonic()) > put_s or link.arrival._acknowledged > put_s

    while True:
        put_s = _put(session)
        await until(partial(is_acknowledged, put_s), "the host has it")
        if link.arrival.until_s < put_s:  # else a keep-alive has come in between
            return link, put_s


async def test_who_is_killed_proves_nothing_with_that() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets), PeerProcess.running(connect=[endpoint]) as peer:
        await peer.subscribe(KEY)
        link, put_s = await _put_and_acknowledged(session, sockets)
        peer.signal(signal.SIGKILL)
        await until(lambda: bool(sockets._closed), "the link is gone")
        assert sockets.arrived_until_s(time.monotonic()) < put_s
        assert link.arrival.is_over


async def test_who_closes_its_session_proves_what_it_got_before() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets):
        with open_peer(connect=[endpoint]) as peer:
            subscriber = peer.declare_subscriber(KEY)  # it would end with its last reference
            link, put_s = await _put_and_acknowledged(session, sockets)
        del subscriber
        await until(lambda: bool(sockets._closed), "the link is gone")
        assert sockets.arrived_until_s(time.monotonic()) > put_s
        sockets.forget_lost(link.zid)
        assert sockets.arrived_until_s(time.monotonic() + 60) == -math.inf


async def test_who_unsubscribes_proves_what_it_got_before() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets):
        with open_peer(connect=[endpoint]) as peer:
            subscriber = peer.declare_subscriber(KEY)
            _, put_s = await _put_and_acknowledged(session, sockets)
            subscriber.undeclare()
            await _until_arrived(sockets, put_s)


async def test_a_router_proves_nothing() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets):
        with open_peer(connect=[endpoint], mode="router"):
            await until(lambda: len(sockets._open) == 1, "the link")
            _put(session)
            assert sockets.arrived_until_s(time.monotonic()) == -math.inf


async def test_a_link_that_is_not_known_yet_has_missed_nothing_that_was_put_before_it() -> None:
    endpoint = free_endpoint()
    async with _watched(listen=[endpoint]) as (session, sockets), PeerProcess.running(connect=[endpoint]) as peer:
        await peer.subscribe(KEY)
        await until_matched(session, KEY)
        put_s = _put(session)
        await _until_arrived(sockets, put_s)
        with open_peer(connect=[endpoint]):
            await until(lambda: len(sockets._open) == 2, "the second link")
            assert sockets.arrived_until_s(time.monotonic()) > put_s
