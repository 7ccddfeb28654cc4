"""The pages for pausing: `GET /paused` lists what is paused, `POST /pause` adds a rule, `POST /resume` removes it.

JSON both ways. A POST is taken from programs on this machine only, unless the configuration says otherwise (`control.http`),
and never from a page in a browser: it has to say that it is JSON, which no page can send elsewhere without being asked for
leave first (CORS), must not name an origin, and has to be sent to an address, not to a name that may be somebody else's (DNS
rebinding).
"""

import json
from ipaddress import ip_address
from typing import Any

from aiohttp import web

from streamer.routing.pause_rules import PauseRule, PauseRuleError
from streamer.services.pause import PausedRule, PauseService
from streamer.uprotocol.status import UCode, UStatusError

BODY_BYTES = 4096

_EXPECTED = 'expected {"topic": "//authority/ue_id/version/resource"}, and "sink" beside it if only some are meant'
_STATUS = {UCode.NOT_FOUND: 404, UCode.RESOURCE_EXHAUSTED: 429, UCode.UNAVAILABLE: 503}


class PausePages:
    """Answers for a `PauseService`."""

    def __init__(self, service: PauseService) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The pages, for an application that bounds bodies by `BODY_BYTES`."""
        return [
            web.get("/paused", self._list),
            web.post("/pause", self._pause),
            web.post("/resume", self._resume),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"paused": [_as_json(each) for each in self._service.rules()]})

    async def _pause(self, request: web.Request) -> web.Response:
        self._check(request)
        try:
            changed = await self._service.pause(await _rule(request))
        except UStatusError as exc:
            return _refused(exc.message, _STATUS[exc.code])
        return web.json_response({"changed": changed})

    async def _resume(self, request: web.Request) -> web.Response:
        self._check(request)
        try:
            await self._service.resume(await _rule(request))
        except UStatusError as exc:
            return _refused(exc.message, _STATUS[exc.code])
        return web.json_response({"changed": True})

    def _check(self, request: web.Request) -> None:
        """Raises the refusal of who may not ask."""
        if "Origin" in request.headers:
            raise _refusal("not from a page in a browser: expected no Origin", web.HTTPForbidden)
        if not is_address(request.headers.get("Host", "")):
            raise _refusal("expected an IP address or localhost as Host, not another name", web.HTTPForbidden)
        transport = request.transport
        if self._service.is_open_to_all or (
            transport is not None and is_near(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
        ):
            return
        raise _refusal("only from this machine itself, unless control.http is any", web.HTTPForbidden)


def is_near(peer: tuple[Any, ...] | None, own: tuple[Any, ...] | None) -> bool:
    """Whether a connection comes from this machine: from a loopback address, or from the address that it was made to."""
    return peer is not None and own is not None and (peer[0] == own[0] or ip_address(peer[0]).is_loopback)


def is_address(host: str) -> bool:
    """Whether a ``Host`` is an IP address or localhost, with or without a port."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        name = host
    if name.lower() == "localhost":
        return True
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


def _as_json(paused: PausedRule) -> dict[str, Any]:
    source, sink = paused.rule
    return {
        "topic": str(source),
        "sink": None if sink is None else str(sink),
        "lanes": paused.lanes,
        "messages": paused.messages,
    }


async def _rule(request: web.Request) -> PauseRule:
    """The rule that a body names. Raises the refusal."""
    if request.content_type != "application/json":
        raise _refusal("expected Content-Type: application/json", web.HTTPUnsupportedMediaType)
    try:
        asked = json.loads(await request.read())
    except (ValueError, RecursionError) as exc:
        raise _refusal(f"no JSON: {_EXPECTED}") from exc
    if not isinstance(asked, dict) or not isinstance(asked.get("topic"), str):
        raise _refusal(_EXPECTED)
    sink = asked.get("sink")
    if sink is not None and not isinstance(sink, str):
        raise _refusal(_EXPECTED)
    if asked.keys() - {"topic", "sink"}:
        raise _refusal(f"unknown keys: {_EXPECTED}")
    try:
        return PauseRule.parse(asked["topic"], sink)
    except PauseRuleError as exc:
        raise _refusal(str(exc)) from exc


def _refusal(text: str, kind: type[web.HTTPClientError] = web.HTTPBadRequest) -> web.HTTPClientError:
    return kind(text=json.dumps({"error": text}), content_type="application/json")


def _refused(text: str, status: int) -> web.Response:
    return web.json_response({"error": text}, status=status)
