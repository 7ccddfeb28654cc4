"""The pages `probation` and `confirm`."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web

from streamer.config.shown import fingerprint
from streamer.features.api.access import caller_of, works_on_standby
from streamer.features.api.answers import API, PROLONG, bad, body_of
from streamer.features.record import RunningStreamer


def routes(
    running: RunningStreamer,
    state: Callable[[], dict[str, Any]],
    start: Callable[[str, str, float], Awaitable[tuple[list[str], bool]]],
    end: Callable[[str, str], Awaitable[list[str]]],
) -> Iterable[web.RouteDef]:
    """Return the HTTP routes of the pages: one tells the ``state``, the others ``start`` and ``end`` a probation."""

    def answer(problems: list[str], status: int = 409) -> web.Response:
        if problems:
            return web.json_response({"error": "; ".join(problems), "problems": problems}, status=status)
        return web.json_response({"fingerprint": fingerprint(running.config), **state()})

    async def show(request: web.Request) -> web.Response:
        return answer([])

    async def begin(request: web.Request) -> web.Response:
        for_s = (await body_of(request, ("for_s",))).get("for_s")
        if not isinstance(for_s, int | float) or not 1 <= for_s <= 86_400:
            raise bad("body: for_s: expected a number of seconds from 1 to 86400")
        request.app[PROLONG](request, 3600.0)  # a reload waits for deliveries
        problems, is_ours = await start(*caller_of(request), for_s)
        return answer(problems, 409 if is_ours else 422)

    async def confirm(request: web.Request) -> web.Response:
        await body_of(request, ())
        return answer(await end(*caller_of(request)))

    page = f"{API}/probation"
    return (
        web.get(page, show),
        web.post(page, works_on_standby(begin)),
        web.post(f"{API}/confirm", works_on_standby(confirm)),
    )
