"""Shared by the administration API's pages: the prefix, checks of queries, bodies that are JSON objects, errors in JSON."""

import json
import logging
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from streamer import __version__
from streamer.admin.access import refused
from streamer.uprotocol.uri import UriError, UUri

API = "/api/v1"
"""Where its pages are."""

PROLONG: web.AppKey[Callable[[web.Request, float], None]] = web.AppKey("prolong")
"""What a page calls whose answer takes more seconds than a connection lasts."""

MAX_LIMIT = 1000
"""The most entries of one answer."""

T = TypeVar("T")

logger = logging.getLogger("ustreamer.admin")


def bad(text: str) -> web.HTTPError:
    """The answer to a request that cannot be meant."""
    return refused(text, web.HTTPBadRequest)


class RequestQuery:
    """The query of a request, with no names but ``known``. Methods raise an HTTP error that says what was expected."""

    def __init__(self, request: web.Request, known: Collection[str]) -> None:
        self._given: dict[str, str] = {}
        for name, value in request.query.items():
            if name not in known:
                raise bad(f"query: unknown name {name!r}; expected {_names(known)}")
            if name in self._given:
                raise bad(f"query: {name}: given twice")
            self._given[name] = value

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """What ``read`` makes of the value; None if it is not given. It may raise ValueError with what it expected."""
        if name not in self._given:
            return None
        try:
            return read(self._given[name])
        except ValueError as exc:
            raise bad(f"query: {name}: {exc}") from exc

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def limit(self) -> int:
        """How many entries the answer may have."""
        return self.read("limit", lambda text: whole(text, 1, MAX_LIMIT)) or 100


def whole(text: str, least: int, most: int) -> int:
    """A number. Raises ValueError."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20 and least <= int(text) <= most):
        raise ValueError(f"{text[:40]!r}: expected a whole number from {least} to {most}")
    return int(text)


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Reads one of these. Raises ValueError."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text[:40]!r}: expected {_names(names)}")
        return text

    return read


def pattern(text: str) -> UUri:
    """A UUri, maybe with wildcards. Raises ValueError."""
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise ValueError(str(exc)) from exc


async def body_of(request: web.Request, known: Collection[str]) -> dict[str, Any]:
    """The JSON object that is a request's body, with no other keys than these. Raises an HTTP error if there is none."""
    try:
        body = json.loads(await request.read(), parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # a half of a character cannot be stored, or looked for
    except (ValueError, RecursionError, web.RequestPayloadError) as exc:  # the last: it is not compressed as it says
        raise bad("body: not JSON; expected an object") from exc
    if not isinstance(body, dict):
        raise bad("body: expected a JSON object")
    if unknown := body.keys() - set(known):
        raise bad(f"body: unknown key {min(unknown)[:40]!r}; expected {_names(known) or 'none'}")
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _names(names: Collection[str]) -> str:
    return ", ".join(names)


@web.middleware
async def errors_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error of the API is an object with `error`. A fault of ours is logged and is a 500."""
    if not request.path.startswith("/api/"):
        return await handler(request)
    try:
        return await handler(request)
    except web.HTTPError as exc:
        if exc.content_type == "application/json":
            raise
        kept = {name: value for name, value in exc.headers.items() if name in ("Allow", "Retry-After")}
        text = f"no such page in version {__version__}" if exc.status == 404 else f"{exc.status}: {exc.reason}"
        return web.json_response({"error": text}, status=exc.status, headers=kept)
    except ConnectionError:  # the client is gone, in the middle of its body: nobody gets the answer
        return web.Response()
    except Exception:
        logger.exception("admin_page_failed path=%s", request.path)
        return web.json_response({"error": "the page failed; the log has the reason"}, status=500)
