"""What a hostile broker, or a stranger with the same client id, does to the sessions of a pair."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import mqtt5

from tests.fault.proxy import BACK, Proxy
from tests.ports import HOST

BRIEF_S = 0.3
THEFTS_S = 1.2
TAKEN_OVER_S = 4.0
_SESSION_TAKEN_OVER = b"\xe0\x02\x8e\x00"
_NOT_AUTHORIZED, _SERVER_UNAVAILABLE = 0x87, 0x88
REFUSALS = (_NOT_AUTHORIZED, _SERVER_UNAVAILABLE)


@asynccontextmanager
async def brief_sessions(proxies: Sequence[Proxy]) -> AsyncIterator[None]:
    """Every connection ends `BRIEF_S` after it has begun, without a word."""
    for proxy in proxies:
        proxy.shorten(BRIEF_S)
        proxy.reset()
    yield
    for proxy in proxies:
        await proxy.heal()


@asynccontextmanager
async def thief(port: int, client_id: str) -> AsyncIterator[None]:
    """Somebody connects with a client id every `THEFTS_S`."""

    async def steal() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(mqtt5.ConnectPacket(client_id, session_expiry_interval=3600).write())
        await reader.read(64)
        writer.transport.abort()

    async with _every(THEFTS_S, steal):
        yield


@asynccontextmanager
async def taken_over(proxies: Sequence[Proxy]) -> AsyncIterator[None]:
    """Every `TAKEN_OVER_S`, the broker ends all sessions and says that another client has taken them (0x8E)."""

    async def end() -> None:
        for proxy in proxies:
            proxy.inject(BACK, _SESSION_TAKEN_OVER)
            await proxy.cut()

    async with _every(TAKEN_OVER_S, end):
        yield


@asynccontextmanager
async def refusing(proxies: Sequence[Proxy], reason: int) -> AsyncIterator[None]:
    """The broker takes every connection and refuses each CONNECT, with a reason code of MQTT 5."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(b"\x20\x03\x00" + bytes([reason]) + b"\x00")
        writer.close()

    server = await asyncio.start_server(refuse, HOST, 0)
    targets = [proxy.target for proxy in proxies]
    for proxy in proxies:
        proxy.target = server.sockets[0].getsockname()[1]
        proxy.reset()
    yield
    for proxy, target in zip(proxies, targets, strict=True):
        proxy.target = target
    server.close()


@asynccontextmanager
async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            await act()
            await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work(), name="hostile broker")
        yield
        task.cancel()
