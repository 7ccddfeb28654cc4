"""The pages for pausing: `paused` lists the pause rules, `pause` adds one, `resume` removes one."""

from typing import Any

from aiohttp import web

from streamer.admin.access import caller_of, refused
from streamer.admin.answers import API, bad, body_of
from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.services.pause import PausedRule, PauseService
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
            changed = await self._service.pause(await _rule(request), caller_of(request))
        except UStatusError as exc:
            raise refused(exc.message, _KINDS[exc.code]) from exc
        return web.json_response({"changed": changed})

    async def _resume(self, request: web.Request) -> web.Response:
        try:
            await self._service.resume(await _rule(request), caller_of(request))
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
    }


async def _rule(request: web.Request) -> PauseRule:
    """Return the rule in a request's body. Raises an HTTP error if there is none."""
    body = await body_of(request, ("topic", "sink"))
    if not isinstance(body.get("topic"), str):
        raise bad("body: topic: expected a text such as //veh1/A8000/2/8A50")
    if not isinstance(body.get("sink"), str | None):
        raise bad("body: sink: expected a text such as //cloud/C0/1/0, or null")
    try:
        return PauseRule.parse(body["topic"], body.get("sink"))
    except PauseRuleError as exc:
        raise bad(f"body: {exc}") from exc
