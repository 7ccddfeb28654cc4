"""The admin port and clients that want to keep it to themselves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

import aiohttp
import pytest
import uvloop
from aiohttp import web

from streamer.config.metrics import MetricsConfig
from streamer.features.api import listener
from streamer.features.api.answers import PROLONG
from streamer.features.api.listener import AdminListener
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from tests.flow.harness import RouterHarness
from tests.ports import free_port


@pytest.fixture
async def number() -> AsyncIterator[int]:
    """The port of a running server."""
    harness, number = RouterHarness(), free_port()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{number}"))
    await server.start()
    yield number
    await server.stop()
    for transport in harness.transports.values():
        await transport.stop()


async def health(number: int) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{number}/healthz") as answer:
        return answer.status


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What still came before the other side closed or cut the connection."""
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


async def test_connection_ends_with_its_answer(number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
    assert (await ended(reader)).count(b"HTTP/1.1 200 OK") == 1
    writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9\r\n\r\n"])
async def test_a_slow_client_is_cut_off(number: int, begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTION_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(begun)
    await ended(reader)
    writer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_page_may_take_longer_if_it_says_so(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each loop that the daemon may have: their transports have nothing in common."""
    monkeypatch.setattr(listener, "CONNECTION_TIMEOUT_S", 0.5)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(answers_of_slow_pages()) == [b"HTTP/1.1 200 OK", b""]


async def answers_of_slow_pages() -> list[bytes]:
    """How the answers begin of one that says so, and of one that does not."""
    harness, other = RouterHarness(), free_port()
    is_prolonged, is_cut_off = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        if request.method == "GET":
            request.app[PROLONG](request, 60)
            is_prolonged.set()
        await is_cut_off.wait()
        return web.Response()

    async def ask(method: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", other)
        writer.write(method + b" /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await ended(reader)
        writer.close()
        return answer[:15]

    pages = [web.get("/slow", slow, allow_head=False), web.head("/slow", slow)]
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{other}"), None, pages)
    await server.start()
    prolonged = asyncio.create_task(ask(b"GET"))
    await is_prolonged.wait()
    other_answer = await ask(b"HEAD")  # it came later, and is cut off first
    is_cut_off.set()
    answers = [await prolonged, other_answer]
    await server.stop()
    return answers


async def test_silent_clients_keep_nobody_out_and_take_a_bounded_number_of_connections(number: int) -> None:
    crowd = [await asyncio.open_connection("127.0.0.1", number) for _ in range(3 * listener.MAX_CONNECTIONS)]
    assert await health(number) == 200
    cut = crowd[: 1 + len(crowd) - listener.MAX_CONNECTIONS]
    for reader, _ in cut:
        assert await ended(reader) == b""
    assert not any(reader.at_eof() for reader, _ in crowd[len(cut) :])
    for _, writer in crowd:
        writer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_client_that_sends_without_end_is_read_up_to_a_bound(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "CONNECTION_TIMEOUT_S", 0.2)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(bytes_read_of(8 * listener.MOST_BYTES)) == listener.MOST_BYTES


async def bytes_read_of(size: int) -> int:
    """How much of what a client sends is passed on until it is cut off; the reader resumes whenever it can."""

    class Eager(asyncio.Protocol):
        read = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)

        def data_received(self, data: bytes) -> None:
            self.read += len(data)
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    eager, port = Eager(), free_port()
    opened = AdminListener(lambda: eager, "127.0.0.1", port)
    await opened.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(size))
    await ended(reader)
    writer.close()
    opened.close()
    return eager.read


@pytest.mark.parametrize(
    ("begun", "endless", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"a", b"400"),
        (b"POST /nix HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", b"404"),
    ],
    ids=["header", "chunks of single bytes"],
)
async def test_a_request_that_does_not_end_has_its_answer(number: int, begun: bytes, endless: bytes, status: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    writer.write(begun + endless * (8 * listener.MOST_BYTES))
    async with asyncio.timeout(60):
        assert (await reader.readline()).split()[1] == status
    writer.transport.abort()


async def test_stopping_cuts_what_is_open() -> None:
    harness, other = RouterHarness(), free_port()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{other}"))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", other)
    assert await health(other) == 200  # so the one before it was accepted
    await server.stop()
    assert await ended(reader) == b""
    writer.close()


async def test_host_may_be_a_name() -> None:
    harness, number = RouterHarness(), free_port()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"localhost:{number}"))
    await server.start()
    assert await health(number) == 200
    await server.stop()
