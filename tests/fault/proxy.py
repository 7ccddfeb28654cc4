"""A TCP proxy that does to a link what networks do: stall, cut, reset, slow down, delay, fragment, refuse.

It runs on the loop that starts it. ``FORWARD`` is the way from who connected to who was connected to, ``BACK`` the other
way. A `Tap` sees every byte that is handed on, at the moment when it is, and nothing that is thrown away.
"""

import asyncio
import contextlib
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from functools import partial
from typing import Protocol

from tests.ports import HOST, free_port

CHUNK_BYTES = 65_536
CUT_WAIT_S = 2.0


class Direction(Enum):
    FORWARD = "forward"
    BACK = "back"


FORWARD, BACK = Direction.FORWARD, Direction.BACK
BOTH = (FORWARD, BACK)


class Tap(Protocol):
    """Listens in."""

    def opened(self, link: int) -> None: ...

    def passed(self, link: int, direction: Direction, data: bytes) -> None: ...


class ByteTap:
    """Counts the bytes that a proxy hands on, by direction."""

    def __init__(self) -> None:
        self.bytes: Counter[Direction] = Counter()

    def opened(self, link: int) -> None:
        """Nothing has passed yet."""

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        self.bytes[direction] += len(data)


class SpeakingTap:
    """Knows the numbers of the connections over which who connected has said anything: others only try whether they can."""

    def __init__(self) -> None:
        self.links: set[int] = set()

    def opened(self, link: int) -> None:
        """Nothing has been said yet."""

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        if direction is FORWARD:
            self.links.add(link)


class _Link:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.writers = (near, far)
        self.throws_away = False

    def reset(self) -> None:
        for writer in self.writers:
            _reset(writer)

    async def flush(self) -> None:
        """Wait until both connections, which are closing, have sent what they hold. If cancelled, reset them."""
        try:
            for writer in self.writers:
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except asyncio.CancelledError:
            self.reset()
            raise


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST to the other side: SO_LINGER 0 makes the kernel forget what it has not sent."""
    if (raw := writer.get_extra_info("socket")) is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Proxy:
    """Listens on ``port``, connects to ``target``, changes nothing until told to. An asynchronous context manager."""

    def __init__(
        self, target: int, tap: Tap | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.port = free_port()
        self.target = target
        self.links = 0
        """Connections so far."""
        self._tap = tap
        self._sleep = sleep
        self._open: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._flowing = {direction: asyncio.Event() for direction in BOTH}
        self._bytes_per_s: float | None = None
        self._delay_s = 0.0
        self._lives_s: float | None = None
        self._fragments = False
        self.heal_flow()

    @property
    def open_links(self) -> int:
        """Connections that are open."""
        return len(self._open)

    async def __aenter__(self) -> "Proxy":
        await self.heal()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.sever()
        await asyncio.sleep(0)  # for a connection that was accepted just before
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- faults -------------------------------------------------------------------------------------------------------

    def stall(self, directions: Iterable[Direction] = BOTH) -> None:
        """Hand nothing on and read nothing any more; nobody is told. Connections are still accepted."""
        for direction in directions:
            self._flowing[direction].clear()

    async def cut(self) -> None:
        """End every connection in an orderly way (FIN); what the sides still send is thrown away."""
        links = list(self._open)
        for link in links:
            link.throws_away = True
            for writer in link.writers:
                with contextlib.suppress(OSError, RuntimeError):
                    writer.write_eof()
        for event in self._flowing.values():  # a stalled pump has to run on to throw away
            event.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_WAIT_S):
                while self._open.intersection(links):
                    await asyncio.sleep(0.01)
        for link in links:
            for writer in link.writers:
                writer.transport.abort()

    def reset(self) -> None:
        """End every connection with RST; what is on its way is lost."""
        for link in list(self._open):
            link.reset()

    def slow(self, bytes_per_s: float) -> None:
        """Hand on no more than so much, in each direction of each connection."""
        self._bytes_per_s = bytes_per_s

    def delay(self, seconds: float) -> None:
        """Hand on everything so much later, in order, and read on meanwhile."""
        self._delay_s = seconds

    def inject(self, direction: Direction, data: bytes) -> None:
        """Write bytes of one's own into every connection that is open. The tap does not see them."""
        for link in self._open:
            link.writers[direction is FORWARD].write(data)

    def fragment(self) -> None:
        """Hand on every byte in a write of its own, and have the kernel send it at once."""
        self._fragments = True

    def shorten(self, seconds: float) -> None:
        """End each new connection with RST so long after it has begun."""
        self._lives_s = seconds

    async def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def sever(self) -> None:
        """No link any more: refuse new connections, and end those that are open with RST."""
        await self.refuse()
        self.reset()

    def heal_flow(self) -> None:
        """Hand on everything again, at full speed; what was held up goes first."""
        self._bytes_per_s = None
        self._delay_s = 0.0
        self._lives_s = None
        self._fragments = False
        for event in self._flowing.values():
            event.set()

    async def heal(self) -> None:
        """End every fault."""
        self.heal_flow()
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, HOST, self.port, reuse_address=True)

    # -- the way of the bytes -----------------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted just before
            _reset(near)
            return
        task = asyncio.create_task(self._connected(reader, near), name="proxy")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, near))

    def _ended(self, near: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not near.is_closing():  # it was cancelled before it began
            _reset(near)

    async def _connected(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        try:
            far_reader, far = await asyncio.open_connection(HOST, self.target)
        except (OSError, asyncio.CancelledError):
            _reset(near)  # the nearest to a refusal that is left
            return
        link = _Link(near, far)
        self._open.add(link)
        self.links += 1
        number = self.links
        if self._lives_s is not None:
            asyncio.get_running_loop().call_later(self._lives_s, link.reset)
        if self._tap is not None:
            self._tap.opened(number)
        try:
            for writer in link.writers:
                writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.gather(
                self._pump(number, link, reader, far, FORWARD), self._pump(number, link, far_reader, near, BACK)
            )
        finally:
            self._open.discard(link)
            for writer in link.writers:
                writer.close()
            await link.flush()

    async def _pump(
        self, number: int, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        flowing = self._flowing[direction]
        late: deque[bytes] = deque()
        loop = asyncio.get_running_loop()

        def hand_on_oldest() -> None:
            data = late.popleft()
            if writer.transport.is_closing():
                return
            self._saw(number, direction, data)
            writer.write(data)

        try:
            while True:
                await flowing.wait()
                rate = self._bytes_per_s
                data = await reader.read(CHUNK_BYTES if rate is None else max(1, int(rate / 20)))
                await flowing.wait()
                if link.throws_away:
                    if not data:
                        return
                    continue
                if not data:
                    while late:
                        await asyncio.sleep(0.01)
                    writer.write_eof()
                    return
                if self._delay_s or late:
                    late.append(data)
                    loop.call_later(self._delay_s, hand_on_oldest)
                    continue
                self._saw(number, direction, data)
                if self._fragments:
                    await self._crumble(writer, data)
                else:
                    writer.write(data)
                    await writer.drain()
                if rate is not None:
                    await self._sleep(len(data) / rate)
        except OSError:
            link.reset()  # one side is gone without a FIN: so is the other

    def _saw(self, link: int, direction: Direction, data: bytes) -> None:
        if self._tap is not None:
            self._tap.passed(link, direction, data)

    @staticmethod
    async def _crumble(writer: asyncio.StreamWriter, data: bytes) -> None:
        for position in range(len(data)):
            writer.write(data[position : position + 1])
            await asyncio.sleep(0)
            await writer.drain()
