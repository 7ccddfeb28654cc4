"""The pages for the configuration: `config` shows what is in use, `reload` reads the file again."""

from aiohttp import web

from streamer.admin.access import caller_of
from streamer.admin.answers import API, PROLONG, body_of
from streamer.admin.running import RunningStreamer
from streamer.config.shown import cohort, fingerprint, shown

_RELOAD_S = 3600.0  # a reload waits for deliveries; clients that may request it are trusted


class ConfigPages:
    """The configuration of a `RunningStreamer`."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/config", self._show), web.post(f"{API}/reload", self._reload)]

    async def _show(self, request: web.Request) -> web.Response:
        config = self._running.config
        return web.json_response({"fingerprint": fingerprint(config), "cohort": cohort(config), "config": shown(config)})

    async def _reload(self, request: web.Request) -> web.Response:
        await body_of(request, ())
        request.app[PROLONG](request, _RELOAD_S)
        problems = await self._running.reload(*caller_of(request))
        if problems:
            return web.json_response({"error": "; ".join(problems), "problems": problems}, status=422)
        return web.json_response({"fingerprint": fingerprint(self._running.config)})
