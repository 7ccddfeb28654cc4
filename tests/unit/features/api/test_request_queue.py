"""Pages that take work: one request at a time, a few wait, and nothing is done for clients that are gone."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from streamer.features.api import history, letters, metrics, openapi, status
from streamer.features.api.request_queue import MAX_WAITING
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.waiting import until

PAGES = {
    "/api/v1/dead-letters?source=//*/FFFFFFFF/FF/0&limit=1000": (letters, "open_letters"),
    "/api/v1": (status, "_letters"),
    "/api/v1/history": (history, "_text"),
    "/api/v1/openapi.json": (openapi, "_read"),
}
"""What each page calls on a thread."""


class Held:
    """Holds up the calls of a function until `go_on` is set, and counts them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self.go_on = threading.Event()
        self._function = function

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        self.go_on.wait(30)
        return self._function(*given)


@asynccontextmanager
async def holding(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> AsyncIterator[Held]:
    held = Held(getattr(module, name))
    monkeypatch.setattr(module, name, held)
    try:
        yield held
    finally:
        held.go_on.set()


async def send(served: DaemonHarness, page: str, headers: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET {page} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())
    return reader, writer


async def ask_and_leave(served: DaemonHarness, page: str, number: int, headers: str = "") -> None:
    """Send so many requests, and close their connections once the daemon has read them. It has noticed that afterwards."""
    port = served.daemon._admin._server
    assert port is not None
    assert port._runner is not None
    assert port._runner.server is not None
    assert port._listener is not None
    manager, connections = port._runner.server, port._listener._connections
    before = manager.requests_count
    writers = [(await send(served, page, headers))[1] for _ in range(number)]
    await until(lambda: manager.requests_count == before + number)
    for writer in writers:
        writer.close()
    await until(lambda: all(each.is_closing() for each in connections))


@pytest.mark.parametrize("page", PAGES)
async def test_nothing_is_done_for_clients_that_are_gone(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as served, holding(monkeypatch, *PAGES[page]) as held:
        await ask_and_leave(served, page, MAX_WAITING)
        await until(lambda: held.calls == 1)
        held.go_on.set()
        assert (await served.ask(page)).status == 200
        # The one whose turn it was at once, and the last one; the description is kept once it was read.
        assert held.calls == (1 if page == "/api/v1/openapi.json" else 2)


@pytest.mark.parametrize("page", PAGES)
async def test_a_page_works_for_one_request_and_one_too_many_is_refused(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as served, holding(monkeypatch, *PAGES[page]) as held:
        asking = [asyncio.create_task(served.ask(page)) for _ in range(MAX_WAITING + 2)]
        refused = await next(asyncio.as_completed(asking))
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json["error"] == f"{MAX_WAITING} requests wait for this page already"
        await until(lambda: held.calls == 1)
        held.go_on.set()
        assert sorted(each.status for each in await asyncio.gather(*asking)) == [200] * (MAX_WAITING + 1) + [503]


@pytest.mark.needs("judge")
async def test_metrics_status_and_reload_do_not_wait_for_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as served, holding(monkeypatch, letters, "open_letters") as held:
        await ask_and_leave(served, "/api/v1/dead-letters", MAX_WAITING)
        showing = asyncio.create_task(served.ask("/api/v1/dead-letters/1"))
        purging = [asyncio.create_task(served.ask("/api/v1/dead-letters/purge", {"all": True})) for _ in range(8)]
        await until(lambda: held.calls == 3)
        assert (await served.ask("/metrics")).status == 200
        assert (await served.ask("/api/v1")).json["journal"]["dead_letters"] == 0
        assert (await served.ask("/api/v1/reload", {})).status == 200
        held.go_on.set()
        assert (await showing).status == 404
        assert [each.json for each in await asyncio.gather(*purging)] == [{"purged": 0}] * 8


async def test_metrics_are_not_compressed_for_clients_that_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = 0
    original = web.Response.enable_compression

    def count(self: Any) -> None:
        nonlocal compressed
        compressed += 1
        original(self)

    async with running(tmp_path) as served, holding(monkeypatch, metrics, "generate_latest") as held:
        monkeypatch.setattr(web.Response, "enable_compression", count)
        await ask_and_leave(served, "/metrics", 8, "Accept-Encoding: gzip\r\n")
        held.go_on.set()
        assert (await served.ask("/metrics", headers={"Accept-Encoding": "gzip"})).status == 200
        assert compressed == 1
