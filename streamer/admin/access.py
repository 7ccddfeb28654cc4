"""Who may ask the HTTP port, and who may change something over it.

A page in a browser can have its own name point to this machine (DNS rebinding), and read what it likes then, with the rights
of the network that the browser is in. It cannot choose the Host: that is its name. So the Host must be an address, or a name
that the configuration knows.

A change is a POST. It is accepted from programs on this machine only, unless the configuration says otherwise
(`control.http`), may need a token, and never comes from a page in a browser: its content type must be JSON, which a page
cannot send to another site without asking first (CORS), and it must not have an Origin.
"""

import hmac
import json
import logging
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streamer.config.models import MetricsConfig
from streamer.config.services import ControlConfig
from streamer.config.token import read_token
from streamer.logs.audit import DENIED, audit

_READING = ("GET", "HEAD")

logger = logging.getLogger("ustreamer.admin")


def access(options: Callable[[], tuple[MetricsConfig, ControlConfig]]) -> Middleware:
    """A middleware that refuses what does not come to a known Host, and changes by those who may not make them.

    ``options`` returns what holds now.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        metrics, control = options()
        names = {name.lower() for name in ("localhost", metrics.host, *metrics.hosts)}
        is_reading = request.method in _READING
        hosts = request.headers.getall("Host", [])
        if not all(_is_known(host, names) for host in hosts) or not (hosts or is_reading):  # HTTP/1.0 has none
            refusal = refused(
                "expected an IP address or localhost as Host, or a name that metrics.hosts lists", web.HTTPForbidden
            )
            raise refusal if is_reading else _audited(request, refusal, "unknown Host")
        if not is_reading and request.match_info.http_exception is None:  # there is such a page
            _check_change(request, control)
        return await handler(request)

    return check


def _check_change(request: web.Request, control: ControlConfig) -> None:
    if control.http_token_file is not None and not _has_token(request, control.http_token_file):
        text = "expected Authorization: Bearer, with the token of control.http_token_file"
        raise _audited(request, refused(text, web.HTTPUnauthorized, {"WWW-Authenticate": "Bearer"}), "no valid token")
    if "Origin" in request.headers:
        text = "refused to pages in a browser: expected no Origin"
        raise _audited(request, refused(text, web.HTTPForbidden), "a page in a browser")
    if control.http != "any" and not is_near(*_ends(request)):
        text = "accepted only from this machine, unless control.http is any"
        raise _audited(request, refused(text, web.HTTPForbidden), "not from this machine")
    if request.content_type != "application/json":
        raise refused("expected Content-Type: application/json", web.HTTPUnsupportedMediaType)


def client_of(request: web.Request) -> str:
    """The address that a request came from."""
    peer, _ = _ends(request)
    return str(peer[0]) if peer else "unknown"


def is_near(peer: tuple[Any, ...] | None, own: tuple[Any, ...] | None) -> bool:
    """Whether a connection comes from this machine: from a loopback address, or from the address that it was made to."""
    return peer is not None and own is not None and (peer[0] == own[0] or ip_address(peer[0]).is_loopback)


def _ends(request: web.Request) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    transport = request.transport
    return (
        (None, None) if transport is None else (transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    )


def _is_known(host: str, names: set[str]) -> bool:
    """Whether a ``Host``, with a port or without, is an address or one of ``names``."""
    name, colon, port = host.rpartition(":")
    name = (name if colon and port.isascii() and port.isdecimal() else host).lower().removesuffix(".")
    return name in names or _is_ip_address(name)


def _is_ip_address(name: str) -> bool:
    """Whether a name is an address, in brackets or not."""
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


def _has_token(request: web.Request, file: Path) -> bool:
    """The file is read each time, so that the token can be changed. Without a usable one nobody has it."""
    try:
        token = read_token(file)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        logger.error("http_token_unusable file=%s reason=%s", file, reason)
        return False
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token) and scheme.lower() == "bearer"


def _audited(request: web.Request, refusal: web.HTTPError, reason: str) -> web.HTTPError:
    audit(DENIED, who="http", where=client_of(request), reason=reason, path=request.path)
    return refusal


def refused(text: str, kind: type[web.HTTPError], headers: dict[str, str] | None = None) -> web.HTTPError:
    """A refusal that says why, in JSON."""
    return kind(text=json.dumps({"error": text}), content_type="application/json", headers=headers)
