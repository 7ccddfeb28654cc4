"""The web console: serves its static files. The page gets its data from the administration API.

No other page may frame the console or inject a script: the content security policy allows its own scripts, styles and
requests only.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from aiohttp import web

from streamer.features.api.access import is_static, refused

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_OFF = "the console is off here: metrics.console turns it on"


class ConsolePages:
    """`/console/` with its files, and `/`, which redirects to it."""

    def __init__(self, is_on: Callable[[], bool]) -> None:
        """``is_on`` is called for every request, because a reload may change its result."""
        self._is_on = is_on
        found = (files("streamer.features.api") / "console").iterdir()
        self._files = {file.name: file.read_bytes() for file in found if Path(file.name).suffix in _TYPES}

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get("/", self._lead), web.get("/console", self._lead), web.get("/console/{name:[a-z.]*}", self._file)]

    async def _lead(self, request: web.Request) -> web.Response:
        self._check()
        raise web.HTTPFound("/console/", headers=_HEADERS)

    @is_static
    async def _file(self, request: web.Request) -> web.Response:
        self._check()
        name = request.match_info["name"] or "index.html"
        if name not in self._files:
            raise refused("there is no such file", web.HTTPNotFound)
        kind = _TYPES[Path(name).suffix]
        return web.Response(body=self._files[name], content_type=kind, charset="utf-8", headers=_HEADERS)

    def _check(self) -> None:
        if not self._is_on():
            raise refused(_OFF, web.HTTPNotFound)
