"""The pages for pausing: `paused` lists the pause rules, `pause` adds one, `resume` removes one."""

from typing import Any

from aiohttp import web

from streamer.features.api.access import caller_of, refused
from streamer.features.api.answers import API, bad, body_of
from streamer.features.pause.service import MAX_FOR_MS, PausedRule, PauseService
from streamer.journal.moments import as_moment
from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.uprotocol.status import UCode, UStatusError

_KINDS: dict[UCode, type[web.HTTPError]] = {
    UCode.NOT_FOUND: web.HTTPNotFound,
    UCode.RESOURCE_EXHAUSTED: web.HTTPTooManyRequests,
    UCode.UNAVAILABLE: web.HTTPServiceUnavailable,
}


class PausePages:
    """Passes requests on to a `PauseService`."""

    def __init__(self, service: PauseService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [
            web.get(f"{API}/paused", self._list),
            web.post(f"{API}/pause", self._pause),
            web.post(f"{API}/resume", self._resume),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"paused": [_as_json(each) for each in self._service.rules()]})

    async def _pause(self, request: web.Request) -> web.Response:
        try:
            body = await body_of(request, ("topic", "sink", "for_s"))
            changed = await self._service.pause(_rule(body), caller_of(request), for_ms=_for_ms(body.get("for_s")))
        except UStatusError as exc:
            raise refused(exc.message, _KINDS[exc.code]) from exc
        return web.json_response({"changed": changed})

    async def _resume(self, request: web.Request) -> web.Response:
        try:
            await self._service.resume(_rule(await body_of(request, ("topic", "sink"))), caller_of(request))
        except UStatusError as exc:
            raise refused(exc.message, _KINDS[exc.code]) from exc
        return web.json_response({"changed": True})


def _as_json(paused: PausedRule) -> dict[str, Any]:
    source, sink = paused.rule
    return {
        "topic": str(source),
        "sink": None if sink is None else str(sink),
        "flows": paused.lanes,
        "messages": paused.messages,
        "until": None if paused.until_ms is None else as_moment(paused.until_ms),
        "left_s": paused.left_s,
    }


def _for_ms(value: object) -> int | None:
    """Return the time until a rule ends; None: it has no end. Raises an HTTP error if it is not valid."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < float(str(value)) * 1000 <= MAX_FOR_MS:
        raise bad(f"body: for_s: expected a number of seconds above 0, at most {MAX_FOR_MS // 1000}, or null")
    return max(1, round(float(str(value)) * 1000))


def _rule(body: dict[str, Any]) -> PauseRule:
    """Return the rule in a request's body. Raises an HTTP error if there is none."""
    if not isinstance(body.get("topic"), str):
        raise bad("body: topic: expected a text such as //veh1/A8000/2/8A50")
    if not isinstance(body.get("sink"), str | None):
        raise bad("body: sink: expected a text such as //cloud/C0/1/0, or null")
    try:
        return PauseRule.parse(body["topic"], body.get("sink"))
    except PauseRuleError as exc:
        raise bad(f"body: {exc}") from exc
