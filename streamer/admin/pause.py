"""The pages for pausing: `GET /paused` lists the pause rules, `POST /pause` adds one, `POST /resume` removes one.

Requests and answers are JSON. Who may ask is decided before (`streamer.admin.access`).
"""

import json
from typing import Any

from aiohttp import web

from streamer.admin.access import client_of, refused
from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.services.access import Caller
from streamer.services.pause import PausedRule, PauseService
from streamer.uprotocol.status import UCode, UStatusError

_EXPECTED = 'expected {"topic": "//authority/ue_id/version/resource"}, and optionally "sink"'
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
        """The routes."""
        return [
            web.get("/paused", self._list),
            web.post("/pause", self._pause),
            web.post("/resume", self._resume),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"paused": [_as_json(each) for each in self._service.rules()]})

    async def _pause(self, request: web.Request) -> web.Response:
        try:
            changed = await self._service.pause(await _rule(request), Caller("http", client_of(request)))
        except UStatusError as exc:
            raise refused(exc.message, _KINDS[exc.code]) from exc
        return web.json_response({"changed": changed})

    async def _resume(self, request: web.Request) -> web.Response:
        try:
            await self._service.resume(await _rule(request), Caller("http", client_of(request)))
        except UStatusError as exc:
            raise refused(exc.message, _KINDS[exc.code]) from exc
        return web.json_response({"changed": True})


def _as_json(paused: PausedRule) -> dict[str, Any]:
    source, sink = paused.rule
    return {
        "topic": str(source),
        "sink": None if sink is None else str(sink),
        "lanes": paused.lanes,
        "messages": paused.messages,
    }


async def _rule(request: web.Request) -> PauseRule:
    """The rule in a request's body. Raises an HTTP error if there is none."""
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as exc:
        raise _bad(f"not JSON: {_EXPECTED}") from exc
    if not isinstance(body, dict) or not isinstance(body.get("topic"), str):
        raise _bad(_EXPECTED)
    sink = body.get("sink")
    if sink is not None and not isinstance(sink, str):
        raise _bad(_EXPECTED)
    if body.keys() - {"topic", "sink"}:
        raise _bad(f"unknown keys: {_EXPECTED}")
    try:
        return PauseRule.parse(body["topic"], sink)
    except PauseRuleError as exc:
        raise _bad(str(exc)) from exc


def _bad(text: str) -> web.HTTPError:
    return refused(text, web.HTTPBadRequest)
