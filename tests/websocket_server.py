"""A WebSocket listener in front of an MQTT broker, as brokers have it; by aiohttp, which is not what our transport uses."""

import asyncio
import ssl
from contextlib import suppress

import aiohttp
from aiohttp import web

from tests.ports import HOST


class WebSocketServer:
    """An asynchronous context manager. Passes the bytes of ``/mqtt`` to a broker's port, and back.

    ``pieces``: the sizes of the frames that it sends, one after the other and then again; without, one frame per read.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None, pieces: tuple[int, ...] = ()) -> None:
        self.port = 0
        self.opened = 0
        self._scheme = "ws" if tls is None else "wss"
        self._target = target
        self._tls = tls
        self._pieces = pieces

    @property
    def url(self) -> str:
        return f"{self._scheme}://{HOST}:{self.port}/mqtt"

    async def __aenter__(self) -> "WebSocketServer":
        application = web.Application()
        application.router.add_get("/mqtt", self._serve)
        application.router.add_get("/chat", self._chat)
        self._runner = web.AppRunner(application, handle_signals=False, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _chat(self, request: web.Request) -> web.WebSocketResponse:
        """WebSocket, but for something else."""
        there = web.WebSocketResponse()
        await there.prepare(request)
        await there.receive()
        return there

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        there = web.WebSocketResponse(protocols=("mqtt",), max_msg_size=0, heartbeat=5)
        await there.prepare(request)
        self.opened += 1
        try:
            reader, writer = await asyncio.open_connection(HOST, self._target)
        except OSError:
            await there.close(code=aiohttp.WSCloseCode.TRY_AGAIN_LATER)
            return there
        back = asyncio.create_task(self._bring(reader, there))
        with suppress(OSError):
            async for message in there:
                assert message.type is aiohttp.WSMsgType.BINARY, message
                writer.write(message.data)
                await writer.drain()
        writer.close()
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
        return there

    async def _bring(self, reader: asyncio.StreamReader, there: web.WebSocketResponse) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                number = position = 0
                while position < len(data):
                    size = self._pieces[number % len(self._pieces)] if self._pieces else len(data)
                    await there.send_bytes(data[position : position + size])
                    position += size
                    number += 1
        await there.close()
