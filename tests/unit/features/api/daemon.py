"""A daemon in the test's own process, on memory endpoints, with a journal; and a client of its HTTP port. No tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from streamer.clock import Clock
from streamer.config.load import load
from streamer.daemon import Daemon
from streamer.features.every import FILE
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage
from tests.flow.harness import GATEWAY
from tests.ports import free_port
from tests.waiting import until


class Asked:
    """An answer, with its body read."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class DaemonHarness:
    """``file`` is its configuration, ``token`` what it has made beside the journal, ``task`` its run."""

    task: asyncio.Task[int]

    def __init__(
        self, folder: Path, changes: Mapping[str, object], tls: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        self.port = free_port()
        self.file = folder / "streamer.yaml"
        self.journal = folder / "journal.db"
        self.token_file = folder / "journal-token"
        self.raw: dict[str, Any] = {
            "authority": GATEWAY,
            "endpoints": {
                "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": f"{folder}-v"}},
                "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": f"{folder}-c"}},
            },
            "routes": [
                {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
                {"from": "cloud", "to": "vehicle"},
            ],
            "journal": {"path": str(self.journal)},
            "metrics": {"listen": f"127.0.0.1:{self.port}", "tls": tls},
            "shutdown": {"drain_s": 0},
            **changes,
        }
        self.write()
        self._clock = clock
        self.build()
        self.url = f"http://127.0.0.1:{self.port}"

    def build(self) -> None:
        """Build a daemon that has not started."""
        self.daemon = Daemon(load(self.file, kind=FILE), self.file, self._clock)

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.raw))

    def transport(self, name: str) -> MemoryTransport:
        found = self.daemon.transports[name]
        assert isinstance(found, MemoryTransport)
        return found

    def arrive(self, endpoint: str, *messages: UMessage) -> None:
        self.transport(endpoint).inject(*map(MemoryReceived, messages))

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}

    async def ask(
        self,
        path: str,
        body: object = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        **query: Any,
    ) -> Asked:
        """Ask with the token, unless there are other headers: a GET, or a POST of ``body``."""
        method = method or ("GET" if body is None and raw is None else "POST")
        sent = self.bearer if headers is None else dict(headers)
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.url + path, data=data, headers=sent, params=query) as answer,
        ):
            return Asked(answer.status, answer.headers, await answer.text())


@asynccontextmanager
async def running(
    folder: Path, *, tls: Mapping[str, str] | None = None, clock: Clock | None = None, **changes: object
) -> AsyncIterator[DaemonHarness]:
    """A daemon that has started; it stops at the end."""
    harness = DaemonHarness(folder, changes, tls, clock)
    harness.task = task = asyncio.create_task(harness.daemon.run())
    try:
        await until(lambda: task.done() or harness.daemon.has_started)
        if task.done():
            task.result()
        yield harness
    finally:
        harness.daemon.stop()
        await task
