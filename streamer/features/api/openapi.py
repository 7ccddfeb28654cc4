"""The page with the description of the administration API (`openapi.yaml`)."""

import asyncio
import json
from importlib.resources import files

import yaml
from aiohttp import web

from streamer.features.api.answers import API
from streamer.features.api.request_queue import one_at_a_time


class OpenApiPages:
    """The description, which is read from its file at the first request."""

    def __init__(self) -> None:
        self._text = ""

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/openapi.json", one_at_a_time(self._show))]

    async def _show(self, request: web.Request) -> web.Response:
        self._text = self._text or await asyncio.to_thread(_read)
        return web.json_response(text=self._text)


def _read() -> str:
    return json.dumps(yaml.safe_load((files("streamer.features.api") / "openapi.yaml").read_text()))
