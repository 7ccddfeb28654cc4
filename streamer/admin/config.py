"""The pages for the configuration: `GET /config` shows what is in use, `POST /reload` reads the file again.

Answers are JSON. Who may ask is decided before (`streamer.admin.access`).
"""

from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from streamer.admin.access import client_of
from streamer.config.models import Config
from streamer.config.shown import fingerprint, shown

PROLONG: web.AppKey[Callable[[web.Request, float], None]] = web.AppKey("prolong")
"""What a page calls whose answer takes more seconds than a connection lasts."""

_RELOAD_S = 3600.0  # it waits for deliveries; who asks is trusted


class Reloader(Protocol):
    """Who has the configuration."""

    @property
    def config(self) -> Config:
        """What is in use."""

    async def reload(self, who: str, where: str) -> list[str]:
        """Use the file as it is now; what is wrong with it, which means that nothing has changed."""


class ConfigPages:
    """Passes requests on to a `Reloader`."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [web.get("/config", self._show), web.post("/reload", self._reload)]

    async def _show(self, request: web.Request) -> web.Response:
        config = self._reloader.config
        return web.json_response({"fingerprint": fingerprint(config), "config": shown(config)})

    async def _reload(self, request: web.Request) -> web.Response:
        request.app[PROLONG](request, _RELOAD_S)
        problems = await self._reloader.reload("http", client_of(request))
        if problems:
            return web.json_response({"error": "; ".join(problems), "problems": problems}, status=422)
        return web.json_response({"fingerprint": fingerprint(self._reloader.config)})
