"""The pages for pausing: `GET /paused` lists the pause rules, `POST /pause` adds one, `POST /resume` removes one.

Requests and answers are JSON. Unless the configuration says otherwise (`control.http`), a POST is accepted only from
programs on this machine. It is never accepted from a page in a browser: its content type must be JSON, which a page cannot
send to another site without asking first (CORS), it must not have an Origin, and its Host must be known (`access`).
"""

import json
from ipaddress import ip_address
from typing import Any

from aiohttp import web

from streamer.audit import DENIED, audit
from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.services.access import Caller
from streamer.services.pause import PausedRule, PauseService
from streamer.uprotocol.status import UCode, UStatusError

BODY_BYTES = 4096

_EXPECTED = 'expected {"topic": "//authority/ue_id/version/resource"}, and optionally "sink"'
_STATUS = {UCode.NOT_FOUND: 404, UCode.RESOURCE_EXHAUSTED: 429, UCode.UNAVAILABLE: 503}


class PausePages:
    """Passes requests on to a `PauseService`."""

    def __init__(self, service: PauseService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The routes, for an application that limits bodies to `BODY_BYTES`."""
        return [
            web.get("/paused", self._list),
            web.post("/pause", self._pause),
            web.post("/resume", self._resume),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"paused": [_as_json(each) for each in self._service.rules()]})

    async def _pause(self, request: web.Request) -> web.Response:
        by = self._check(request)
        try:
            changed = await self._service.pause(await _rule(request), by)
        except UStatusError as exc:
            return _refused(exc.message, _STATUS[exc.code])
        return web.json_response({"changed": changed})

    async def _resume(self, request: web.Request) -> web.Response:
        by = self._check(request)
        try:
            await self._service.resume(await _rule(request), by)
        except UStatusError as exc:
            return _refused(exc.message, _STATUS[exc.code])
        return web.json_response({"changed": True})

    def _check(self, request: web.Request) -> Caller:
        """The client, for the audit log. Raises an HTTP error if it may not do this."""
        transport = request.transport
        peer, own = (None, None) if transport is None else map(transport.get_extra_info, ("peername", "sockname"))
        by = Caller("http", str(peer[0]) if peer else "unknown")
        if "Origin" in request.headers:
            raise self._denied(by, "refused to pages in a browser: expected no Origin")
        if self._service.is_open_to_all or is_near(peer, own):
            return by
        raise self._denied(by, "accepted only from this machine, unless control.http is any")

    def _denied(self, by: Caller, text: str) -> web.HTTPClientError:
        audit(DENIED, **by._asdict(), reason=text)
        return _refusal(text, web.HTTPForbidden)


def is_near(peer: tuple[Any, ...] | None, own: tuple[Any, ...] | None) -> bool:
    """Whether a connection comes from this machine: from a loopback address, or from the address that it was made to."""
    return peer is not None and own is not None and (peer[0] == own[0] or ip_address(peer[0]).is_loopback)


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
    if request.content_type != "application/json":
        raise _refusal("expected Content-Type: application/json", web.HTTPUnsupportedMediaType)
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as exc:
        raise _refusal(f"not JSON: {_EXPECTED}") from exc
    if not isinstance(body, dict) or not isinstance(body.get("topic"), str):
        raise _refusal(_EXPECTED)
    sink = body.get("sink")
    if sink is not None and not isinstance(sink, str):
        raise _refusal(_EXPECTED)
    if body.keys() - {"topic", "sink"}:
        raise _refusal(f"unknown keys: {_EXPECTED}")
    try:
        return PauseRule.parse(body["topic"], sink)
    except PauseRuleError as exc:
        raise _refusal(str(exc)) from exc


def _refusal(text: str, kind: type[web.HTTPClientError] = web.HTTPBadRequest) -> web.HTTPClientError:
    return kind(text=json.dumps({"error": text}), content_type="application/json")


def _refused(text: str, status: int) -> web.Response:
    return web.json_response({"error": text}, status=status)
