"""An HTTP proxy for tests: answers CONNECT and passes bytes on, or answers what a test wants it to."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress

from tests.ports import HOST

_OK = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n"


class HttpProxyServer:
    """An asynchronous context manager. ``heads`` are the requests that came.

    It lets in whoever has ``credentials``, if there are some. ``answer``: what it says to everybody instead, before it
    closes; empty: nothing, and it does not close. ``names``: where it finds hosts, instead of asking a resolver.
    """

    def __init__(
        self, credentials: str | None = None, answer: bytes | None = None, names: Mapping[str, tuple[str, int]] | None = None
    ) -> None:
        self.heads: list[bytes] = []
        self.answer = answer
        self.port = 0
        self.writes_single_bytes = False
        self._names = names or {}
        self._wanted = None if credentials is None else b"Basic " + b64encode(credentials.encode())
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def __aenter__(self) -> "HttpProxyServer":
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, asyncio.sleep(0.01), return_exceptions=True)  # what is aborted needs a turn

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._server.is_serving():  # it was on its way
            writer.transport.abort()
            return
        self._writers.append(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        self.heads.append(head)
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if self.answer is not None:
            writer.write(self.answer)
            return writer.close() if self.answer else None
        if self._wanted is not None and fields.get(b"Proxy-Authorization") != self._wanted:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
            return writer.close()
        host, _, port = head.split()[1].decode().rpartition(":")
        try:
            there, out = await asyncio.open_connection(*self._names.get(host, (host.strip("[]"), int(port))))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return writer.close()
        self._writers.append(out)
        for piece in [bytes([byte]) for byte in _OK] if self.writes_single_bytes else [_OK]:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await asyncio.gather(self._pass(reader, out), self._pass(there, writer))
        return None

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()
