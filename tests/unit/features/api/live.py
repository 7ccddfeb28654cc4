"""A router and the live pages of the HTTP port, as the daemon has them. No tests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp

from streamer.config.metrics import MetricsConfig
from streamer.config.models import Config
from streamer.delivery.router import Router
from streamer.features.api.live import LivePages
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.features.record import Feature, RunningStreamer
from tests.flow.harness import RouterHarness, configuration
from tests.ports import free_port

TOKEN = "0123456789abcdef0123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class LiveHarness:
    """With the pages of some features. ``tick`` is the daemon's: the time is that of the router's clock."""

    def __init__(self, folder: Path, kinds: Sequence[type[Feature]], changes: Mapping[str, object]) -> None:
        self._token_file = folder / "token"
        self.write_token(TOKEN)
        self.config: Config = configuration(control={"http_token_file": str(self._token_file)}, **changes)
        self.flow = RouterHarness(self.config, witnesses=())
        self.features = [each for each in self.flow.features if isinstance(each, tuple(kinds))]
        self.live = LivePages(self.flow.router, lambda: self.config, self.features)
        self.port = free_port()
        self.metrics = MetricsConfig(listen=f"127.0.0.1:{self.port}")
        self.server = AdminServer(
            self.flow.router,
            Exposition(self.flow.router),
            self.metrics,
            self.config.control,
            [*self.live.routes(), *(page for each in self.features for page in each.pages(cast(RunningStreamer, self)))],
        )

    @property
    def router(self) -> Router:
        return self.flow.router

    @property
    def has_reader(self) -> bool:
        """Whether a reader of a page observes the router."""
        return self.flow.router.observers != [self.flow.ledger]

    def write_token(self, token: str) -> None:
        self._token_file.write_text(token)

    def tick(self, after_ms: int = 0) -> None:
        self.flow.clock.advance(after_ms)
        self.live.tick(self.flow.clock.monotonic_s())


@asynccontextmanager
async def serving(
    folder: Path, *kinds: type[Feature], **changes: object
) -> AsyncIterator[tuple[LiveHarness, aiohttp.ClientSession]]:
    """The pages, and a client of them."""
    live = LiveHarness(folder, kinds, changes)
    await live.server.start()
    try:
        async with live.flow, aiohttp.ClientSession(f"http://127.0.0.1:{live.port}") as session:
            yield live, session
    finally:
        live.live.close()
        for each in live.features:
            await each.stop()
        await live.server.stop()
