"""The pages for the configuration: `config` shows what is in use, `reload` reads the file again, `preview` says what that
would change."""

from aiohttp import web

from streamer.config.models import Config
from streamer.config.shown import cohort, fingerprint, shown
from streamer.features.api.access import caller_of, works_on_standby
from streamer.features.api.answers import API, PROLONG, bad, body_of
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.record import RunningStreamer

_RELOAD_S = 3600.0  # a reload waits for deliveries; clients that may request it are trusted
_CAREFULLY = "if_nothing_denied"


class ConfigPages:
    """The configuration of a `RunningStreamer`."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [
            web.get(f"{API}/config", self._show),
            web.post(f"{API}/reload", self._reload),
            web.post(f"{API}/preview", one_at_a_time(self._preview)),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        config = self._running.config
        return web.json_response({"fingerprint": fingerprint(config), "cohort": cohort(config), "config": shown(config)})

    @works_on_standby  # it starts anew with the file
    async def _reload(self, request: web.Request) -> web.Response:
        body = await body_of(request, (_CAREFULLY,))
        is_careful = body.get(_CAREFULLY, False)
        if not isinstance(is_careful, bool):
            raise bad(f"body: {_CAREFULLY}: expected true or false")
        request.app[PROLONG](request, _RELOAD_S)
        denied: list[str] = []

        async def judge(config: Config) -> list[str]:
            from streamer.features.judge.changes import refusals  # noqa: PLC0415  # only who asks for it pays for it

            denied.extend(await refusals(self._running, config))
            return denied

        problems = await self._running.reload(*caller_of(request), judge if is_careful else None)
        if problems:
            answer = {"error": "; ".join(problems), "problems": problems}
            return web.json_response(answer, status=409 if denied else 422)
        return web.json_response({"fingerprint": fingerprint(self._running.config)})

    @works_on_standby  # it changes nothing
    async def _preview(self, request: web.Request) -> web.Response:
        from streamer.features.judge.changes import preview  # noqa: PLC0415  # only who asks for it pays for it

        await body_of(request, ())
        config = await self._running.read_file()
        if isinstance(config, list):
            return web.json_response({"error": "; ".join(config), "problems": config}, status=422)
        return web.json_response(await preview(self._running, config))
