"""Tests of one connection to a broker that has much to say, over real sockets of the daemon's event loop."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.frames import PACKETS_PER_ITERATION
from tests.ports import HOST
from tests.waiting import until

PUBLISH = b"\x30\x80\x20" + bytes(4096)
COUNT = 8192
"""PUBLISHes that the peer sends at once, 32 MiB."""


class Reads:
    """What a connection reads, and in how many turns of the loop. ``then`` is called after each read."""

    def __init__(self, then: Callable[[Connection], None] = lambda _: None) -> None:
        self.frames = 0
        self.in_this_turn = 0
        self.most_in_a_turn = 0
        self.expects_more = False
        self._then = then

    def take(self, connection: Connection, read: list[bytes]) -> bool:
        self.frames += len(read)
        self.in_this_turn += 1
        self.most_in_a_turn = max(self.most_in_a_turn, self.in_this_turn)
        asyncio.get_running_loop().call_soon(self._turn)
        self._then(connection)
        return self.expects_more

    def _turn(self) -> None:
        self.in_this_turn = 0

    async def read_everything(self, port: int) -> None:
        """Connect, read all `COUNT`, and disconnect."""
        connection = await self.connect(port)
        await until(lambda: self.frames == COUNT, "everything is read")
        connection.abort("")
        await connection.wait_lost(1)

    async def connect(self, port: int) -> Connection:
        connection = Connection(1024 * 1024, self.take, lambda _: None, lambda _: None)
        await asyncio.get_running_loop().create_connection(lambda: connection.protocol, HOST, port)
        return connection


@pytest.fixture
def source() -> Callable[[], int]:
    """Listens, and sends everything to whoever connects."""

    def send(listener: socket.socket) -> None:
        with listener, listener.accept()[0] as peer, suppress(OSError):  # the other side may close
            peer.sendall(PUBLISH * COUNT)

    def listen() -> int:
        listener = socket.create_server((HOST, 0))
        port: int = listener.getsockname()[1]
        threading.Thread(target=send, args=(listener,), daemon=True).start()
        return port

    return listen


def test_the_loop_has_a_turn_after_each_large_read(source: Callable[[], int]) -> None:
    reads = Reads()
    uvloop.run(reads.read_everything(source()))
    assert reads.most_in_a_turn == 1


@pytest.mark.parametrize(
    "end",
    [lambda connection: connection.set_reading(False), lambda connection: connection.close("", LinkFailure.OTHER)],
    ids=["reading stopped", "closed"],
)
def test_what_its_user_has_stopped_does_not_go_on_after_the_turn(
    source: Callable[[], int], end: Callable[[Connection], None]
) -> None:
    reads = Reads(end)

    async def run() -> None:
        connection = await reads.connect(source())
        await until(lambda: reads.frames, "the first read")
        before = reads.frames
        for _ in range(100):
            await asyncio.sleep(0)
        assert reads.frames == before
        connection.abort("")
        await connection.wait_lost(1)

    uvloop.run(run())


def test_reading_that_was_stopped_and_resumed_goes_on_to_the_end(source: Callable[[], int]) -> None:
    def stop_for_a_turn(connection: Connection) -> None:
        connection.set_reading(False)
        asyncio.get_running_loop().call_soon(connection.set_reading, True)

    uvloop.run(Reads(stop_for_a_turn).read_everything(source()))


SMALL = b"\x30\x02\x00\x00"
"""The smallest PUBLISH."""

MANY = 3 * PACKETS_PER_ITERATION + 500


class Handed:
    """The packets that a connection hands over in each turn of the loop. ``then`` is called after each."""

    def __init__(self, then: Callable[[Connection], None] = lambda _: None) -> None:
        self.numbers: list[int] = []
        self.lost: list[int] = []
        self._then = then

    def take(self, connection: Connection, read: list[bytes]) -> bool:
        self.numbers.append(len(read))
        self._then(connection)
        return False

    @asynccontextmanager
    async def connected(self, data: bytes) -> AsyncIterator[tuple[Connection, socket.socket]]:
        """To a peer that has sent these bytes; also the peer's socket."""
        connection = Connection(1024 * 1024, self.take, lambda _: None, lambda _: self.lost.append(sum(self.numbers)))
        ours, peer = socket.socketpair()
        with peer:
            peer.sendall(data)
            await asyncio.get_running_loop().create_connection(lambda: connection.protocol, sock=ours)
            yield connection, peer
            connection.abort("")
            await connection.wait_lost(1)


def test_of_very_many_packets_some_wait_for_the_next_turns() -> None:
    handed = Handed()

    async def run() -> None:
        async with handed.connected(SMALL * MANY + b"\x30") as (_, peer):
            await until(lambda: sum(handed.numbers) == MANY, "all of them")
            assert max(handed.numbers) == PACKETS_PER_ITERATION
            peer.sendall(SMALL[1:] + SMALL)  # reading goes on
            await until(lambda: sum(handed.numbers) == MANY + 2, "what came later")

    uvloop.run(run())


def test_packets_that_wait_are_not_handed_over_while_reading_is_stopped() -> None:
    handed = Handed(lambda connection: connection.set_reading(False))

    async def run() -> None:
        async with handed.connected(SMALL * MANY) as (connection, _):
            for times in range(1, 5):
                await until(lambda: len(handed.numbers) == times, "some of them")  # noqa: B023
                for _ in range(10):
                    await asyncio.sleep(0)
                assert len(handed.numbers) == times
                connection.set_reading(True)
        assert sum(handed.numbers) == MANY

    uvloop.run(run())


def test_packets_that_wait_are_handed_over_before_the_end_is_told() -> None:
    def lose(connection: Connection) -> None:
        if connection._transport is not None:
            connection._transport.abort()  # as after a write that failed

    handed = Handed(lose)

    async def run() -> None:
        async with handed.connected(SMALL * MANY) as (connection, _):
            await connection.wait_lost(5)

    uvloop.run(run())
    assert (sum(handed.numbers), handed.lost) == (MANY, [MANY])


def test_packets_that_wait_when_we_disconnect_are_not_handed_over() -> None:
    handed = Handed(lambda connection: connection.close("enough", LinkFailure.OTHER))

    async def run() -> None:
        async with handed.connected(SMALL * MANY) as (connection, _):
            await connection.wait_lost(5)

    uvloop.run(run())
    assert handed.numbers == [PACKETS_PER_ITERATION]


class CountingSocket(socket.socket):
    """Counts the options that are set."""

    options = 0

    def setsockopt(self, *_: object) -> None:
        self.options += 1


PUBACK = b"\x40\x02\x00\x01"


@pytest.mark.parametrize(
    ("data", "expects_more", "is_hurried"),
    [
        (PUBACK, False, False),  # it was for the last one that we had sent
        (PUBACK, True, True),
        (PUBACK + PUBLISH, True, True),
        (PUBACK + PUBLISH[:-1], False, True),
        (PUBLISH, False, True),
        (PUBLISH[:100], False, True),
    ],
)
def test_tcp_acknowledges_at_once_if_a_broker_may_wait_for_that(data: bytes, expects_more: bool, is_hurried: bool) -> None:
    async def run() -> None:
        reads = Reads()
        reads.expects_more = expects_more
        connection = Connection(1024 * 1024, reads.take, lambda _: None, lambda _: None)
        connection.is_open = True
        with CountingSocket() as counting:
            connection._socket = counting
            connection.data_received(data)
            assert bool(counting.options) is is_hurried
            connection.connection_lost(None)

    asyncio.run(run())
