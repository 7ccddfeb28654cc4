"""The ends of a link, for tests: real ones that note what happens, and one that speaks the protocol byte by byte.

`RawEnd` shares no code with `streamer.features.pair`: it is written after the head of `streamer/features/pair/sealing.py`.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

from streamer.features.pair.link import Link
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.ports import HOST
from tests.waiting import until

KEY = b"the key that both of them share!"
OTHER_KEY = b"the key that somebody has guessed"


def numbered(number: int) -> pb.Frame:
    """A frame that is known again."""
    return pb.Frame(stored=pb.Stored(number=number))


class End:
    """A `Link` that notes its frames, and ``events``: "up", and the reasons of its ends."""

    def __init__(
        self,
        *,
        listen: int | None = None,
        connect: int | None = None,
        host: str = HOST,
        key: bytes = KEY,
        name: str = "",
        authority: str = "gw",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.frames: list[pb.Frame] = []
        self.events: list[str] = []
        self.answer: Callable[[pb.Frame], None] = self.frames.append
        self.link = Link(
            listen=None if listen is None else (host, listen),
            connect=None if connect is None else (host, connect),
            key=key,
            name=name or ("b" if listen is None else "a"),
            authority=authority,
            tls=tls,
            on_frame=lambda frame: self.answer(frame),
            on_up=lambda: self.events.append("up"),
            on_down=self.events.append,
        )

    @property
    def numbers(self) -> list[int]:
        """The numbers of the frames that have come."""
        return [frame.stored.number for frame in self.frames]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["End"]:
        """Run the link, and stop it at the end."""
        task = asyncio.create_task(self.link.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert not self.link.is_up

    async def listens(self) -> None:
        await until(lambda: "has not connected" in self.link.problem, "somebody listens")

    async def comes_up(self) -> None:
        await until(lambda: self.link.is_up, "the link is up")

    async def gets(self, frames: int) -> None:
        """Wait until so many frames have come in all."""
        await until(lambda: len(self.frames) >= frames, "the frames have come")
        assert len(self.frames) == frames

    async def goes_down(self, times: int = 1) -> str:
        """Wait until the link has gone down so many times, and return the last reason."""

        def reasons() -> list[str]:
            return [event for event in self.events if event != "up"]

        await until(lambda: len(reasons()) >= times, "the link is down")
        assert len(reasons()) == times
        return reasons()[-1]


@contextlib.asynccontextmanager
async def linked(port: int, **options: Any) -> AsyncIterator[tuple[End, End]]:
    """One that listens and one that dials, once both are up."""
    async with End(listen=port, **options).running() as first, End(connect=port, **options).running() as second:
        await first.comes_up()
        await second.comes_up()
        yield first, second


class RawEnd:
    """One end of a connection that says what it is told to."""

    VERSION = 1

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.name = name
        self._out = self._in = b""
        self._sent = self._got = 1  # 0 is the proof

    def greeting(self, version: int = VERSION) -> bytes:
        return b"uS-pair\n" + version.to_bytes(2, "big") + self.name + os.urandom(32)

    async def prove(self, begun: int = 0) -> None:
        """Go through the handshake: "b" has connected. ``begun``: how many bytes of the greeting are said already."""
        await self.prove_half(begun=begun)
        if self.name == b"b":
            assert await self.reader.readexactly(16) == tag(self._in, 0, self._greetings)
        else:
            self.writer.write(tag(self._out, 0, self._greetings))

    async def prove_half(self, key: bytes = KEY, begun: int = 0) -> None:
        """Up to the proof of the one that has connected."""
        mine = self.greeting()
        if self.name == b"b":
            self.writer.write(mine[begun:])
        theirs = await self.reader.readexactly(43)
        self._greetings = mine + theirs if self.name == b"b" else theirs + mine
        self._out = hmac.digest(key, b"uS-pair key " + self.name + self._greetings, hashlib.sha256)
        self._in = hmac.digest(key, b"uS-pair key " + theirs[10:11] + self._greetings, hashlib.sha256)
        if self.name == b"b":
            self.writer.write(tag(self._out, 0, self._greetings))
        else:
            self.writer.write(mine)
            assert await self.reader.readexactly(16) == tag(self._in, 0, self._greetings)

    def sealed(self, payload: bytes, length: int | None = None) -> bytes:
        """The next frame, as it goes over the wire; ``length``: what it says of itself."""
        size = (len(payload) if length is None else length).to_bytes(4, "big")
        self._sent += 2
        return size + tag(self._out, self._sent - 2, size) + payload + tag(self._out, self._sent - 1, payload)

    def frame(self, number: int) -> bytes:
        return self.sealed(numbered(number).SerializeToString())

    async def next_frame(self) -> pb.Frame:
        size = await self.reader.readexactly(4)
        assert await self.reader.readexactly(16) == tag(self._in, self._got, size)
        payload = await self.reader.readexactly(int.from_bytes(size, "big"))
        assert await self.reader.readexactly(16) == tag(self._in, self._got + 1, payload)
        self._got += 2
        return pb.Frame.FromString(payload)

    async def is_closed(self) -> bool:
        """Whether the other end has closed, which this waits for; what came before is dropped."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(30):
                while await self.reader.read(65536):
                    pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def tag(key: bytes, number: int, content: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + content, hashlib.sha256)[:16]


@contextlib.asynccontextmanager
async def dialing(port: int, local: str = HOST, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawEnd]:
    """A connection to the one that listens; ``local``: from which address."""
    end = RawEnd(*await asyncio.open_connection(HOST, port, local_addr=(local, 0), ssl=tls), b"b")
    try:
        yield end
    finally:
        await end.close()


@contextlib.asynccontextmanager
async def accepting(port: int) -> AsyncIterator[asyncio.Queue[RawEnd]]:
    """The connections of the one that dials, as they come."""
    accepted: asyncio.Queue[RawEnd] = asyncio.Queue()
    all_of_them: list[RawEnd] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        all_of_them.append(RawEnd(reader, writer, b"a"))
        accepted.put_nowait(all_of_them[-1])

    server = await asyncio.start_server(accept, HOST, port)
    try:
        yield accepted
    finally:
        server.close()
        for end in all_of_them:
            await end.close()
        await server.wait_closed()
