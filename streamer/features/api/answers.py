"""Shared by the administration API's pages: the prefix, checks of queries, bodies that are JSON objects, errors in JSON."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from streamer import __version__
from streamer.features.api.access import refused
from streamer.uprotocol.uri import UriError, UUri

API = "/api/v1"
"""The prefix of the API's paths."""

PROLONG: web.AppKey[Callable[[web.Request, float], None]] = web.AppKey("prolong")
"""A page calls this to keep its request's connection open for these seconds more."""

MAX_LIMIT = 1000
"""The most entries in one answer."""

T = TypeVar("T")

logger = logging.getLogger("ustreamer.admin")


def bad(text: str) -> web.HTTPError:
    """Return the error for an invalid request (400)."""
    return refused(text, web.HTTPBadRequest)


class RequestQuery:
    """The parameters in a request's URL, none but ``known``. Methods raise an HTTP error that names what was expected."""

    def __init__(self, request: web.Request, known: Collection[str]) -> None:
        self._given: dict[str, str] = {}
        for name, value in request.query.items():
            if name not in known:
                raise bad(f"query: unknown name {name!r}; expected {_names(known)}")
            if name in self._given:
                raise bad(f"query: {name}: given twice")
            self._given[name] = value

    def read(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return the value as ``read`` converts it; None if it is absent. ``read`` may raise ValueError."""
        if name not in self._given:
            return None
        try:
            return read(self._given[name])
        except ValueError as exc:
            raise bad(f"query: {name}: {exc}") from exc

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def limit(self) -> int:
        """Return the most entries that the answer may have."""
        return self.read("limit", lambda text: whole(text, 1, MAX_LIMIT)) or 100


def whole(text: str, least: int, most: int) -> int:
    """Convert a text to a whole number from ``least`` to ``most``. Raises ValueError."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20 and least <= int(text) <= most):
        raise ValueError(f"{text[:40]!r}: expected a whole number from {least} to {most}")
    return int(text)


async def in_turns(entries: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yield entries, and let the event loop go on after each ``size`` of them."""
    for number, entry in enumerate(entries, 1):
        yield entry
        if not number % size:
            await asyncio.sleep(0)


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return a function that accepts one of these names. It raises ValueError for others."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text[:40]!r}: expected {_names(names)}")
        return text

    return read


def pattern(text: str) -> UUri:
    """Convert a text to a UUri, which may have wildcards. Raises ValueError."""
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise ValueError(str(exc)) from exc


async def body_of(request: web.Request, known: Collection[str]) -> dict[str, Any]:
    """Return the JSON object in a request's body, which has no other keys than these. Raises an HTTP error."""
    try:
        body = json.loads(await request.read(), parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate cannot be stored, or searched for
    except (ValueError, RecursionError, web.RequestPayloadError) as exc:  # the last: not compressed as declared
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
    """A middleware that turns every error into a JSON object with `error`. Our own faults are logged and become a 500."""
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
    except ConnectionError:  # the client closed the connection before the end of its body
        return web.Response()
    except Exception:
        logger.exception("admin_page_failed path=%s", request.path)
        return web.json_response({"error": "the page failed; the log has the reason"}, status=500)
