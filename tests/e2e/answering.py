"""A port where somebody answers who is no broker, or no good one. No tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ports import HOST


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A port where somebody answers the first bytes like this, and then closes; None: it never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        if answer is None:
            await over.wait()
        writer.write(answer or b"")
        writer.close()

    over = asyncio.Event()
    async with await asyncio.start_server(serve, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]
        over.set()
