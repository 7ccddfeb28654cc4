"""Access rules of the HTTP port: who may use it, who may change something, and who may see payloads.

A web page can have its own host name resolve to this machine (DNS rebinding), and then read everything here from inside the
browser's network. But it cannot choose the Host header, which has that name. So the Host must be an address, or a name that
the configuration lists. Requests of pages of other origins are refused, except for following a link to a page of ours.

To change something (every request that is not a GET), or to see payloads (`shows_payloads`), a client needs the token or a
certificate. Both are accepted from programs on this machine only, unless the configuration says otherwise (`control.http`).
The body of a change is JSON, which a page of another origin cannot send without a CORS preflight. The audit log has each
refusal of a change or of payloads.
"""

import hmac
import json
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streamer.config.metrics import ControlConfig, MetricsConfig
from streamer.config.token import read_token
from streamer.features.host.access import Caller
from streamer.files import Files
from streamer.logs.audit import DENIED, audit

USER_HEADER = "Ustreamer-User"
"""The header with the command line's user, unverified: used only for the audit log, and only from this machine."""

AUTHENTICATED: web.AppKey[Callable[[web.Request], Awaitable[bool]]] = web.AppKey("proven")
"""Returns whether a request has the present token, or a client's certificate."""

_READING = ("GET", "HEAD")
_PORTS = {"http": ":80", "https": ":443"}
_USER = re.compile(r"[\w.@+-]{1,64}( for [\w.@+-]{1,64})?", re.ASCII)
_NO_WAY_IN = (
    "there is no token and no CA for clients: expected control.http_token_file, a journal (beside which the streamer makes "
    "a token), or metrics.tls.client_ca_file in the configuration"
)

logger = logging.getLogger("ustreamer.admin")

_Page = TypeVar("_Page", bound=Callable[..., Any])


def shows_payloads(page: _Page) -> _Page:
    """Mark a page that only clients with the token or a certificate may read."""
    page.shows_payloads = True  # type: ignore[attr-defined]  # functions have attributes
    return page


def for_this_machine(page: _Page) -> _Page:
    """Mark a page that only programs on this machine may use, whatever `control.http` says."""
    page.for_this_machine = True  # type: ignore[attr-defined]  # functions have attributes
    return page


def is_static(page: _Page) -> _Page:
    """Mark a page that has nothing of the streamer's state: a page of any origin may ask for it."""
    page.is_static = True  # type: ignore[attr-defined]  # functions have attributes
    return page


def works_on_standby(page: _Page) -> _Page:
    """Mark a page that is no GET and that a streamer on standby answers, too (`active_only`)."""
    page.works_on_standby = True  # type: ignore[attr-defined]  # functions have attributes
    return page


def active_only(is_on_standby: Callable[[], bool]) -> Middleware:
    """Return a middleware that refuses changes while the streamer is on standby: the active one has the state."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_change = request.method not in _READING and request.match_info.http_exception is None
        if is_change and is_on_standby() and not getattr(request.match_info.handler, "works_on_standby", False):
            raise refused("on standby: ask the active one", web.HTTPConflict)
        return await handler(request)

    return check


def access(options: Callable[[], tuple[MetricsConfig, ControlConfig]], files: Files) -> Middleware:
    """Return a middleware that refuses requests to an unknown Host, and changes without permission.

    ``options`` returns the present configuration. ``files`` reads the token from ``control.http_token_file``, which the
    streamer may have made.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        metrics, control = options()
        page = request.match_info.handler
        is_page = request.match_info.http_exception is None
        is_secret = getattr(page, "shows_payloads", None) is True
        is_open = request.method in _READING and not is_secret
        # Browsers send an Origin with the console's scripts, which behind a proxy that ends TLS is none that we know.
        is_free = is_open and getattr(page, "is_static", None) is True
        if not is_free and (refusal := _of_stranger(request, metrics, is_open)):
            raise refused(refusal, web.HTTPForbidden) if is_open else denied(request, refusal)
        if is_page and not is_open:
            is_for_here = getattr(page, "for_this_machine", None) is True
            await _check_permission(request, metrics, control, files, is_for_here)
            if request.method not in _READING and request.content_type != "application/json":
                raise refused("expected Content-Type: application/json", web.HTTPUnsupportedMediaType)
            if request.headers.get("Content-Encoding", "identity") != "identity":
                raise refused("expected a body without Content-Encoding", web.HTTPUnsupportedMediaType)
        return await handler(request)

    return check


def _of_stranger(request: web.Request, metrics: MetricsConfig, is_open: bool) -> str:
    """Return why a request may come from a page that is not ours; empty if it does not."""
    called = (urlsplit(origin).hostname or "" for origin in metrics.origins)
    names = {name.lower() for name in ("localhost", metrics.host, *metrics.hosts, *called)}
    origins = set(map(_origin, metrics.origins))
    hosts = request.headers.getall("Host", [])
    if not all(_is_known(host, names) for host in hosts) or not (hosts or is_open):  # HTTP/1.0 has none
        return "expected an IP address or localhost as Host, or a name that metrics.hosts or metrics.origins lists"
    for origin in request.headers.getall("Origin", []):
        if not hosts or _origin(origin) not in origins | {_origin(f"{request.scheme}://{hosts[0]}")}:
            return "refused to pages of other origins: expected no Origin, this one, or one of metrics.origins"
    site = request.headers.get("Sec-Fetch-Site", "none")
    is_followed = (request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
    if site not in ("none", "same-origin") and not (is_open and is_followed):
        return "refused to pages of other origins: expected Sec-Fetch-Site: same-origin"
    return ""


async def _check_permission(
    request: web.Request, metrics: MetricsConfig, control: ControlConfig, files: Files, is_for_here: bool
) -> None:
    if is_for_here and not is_near(*_ends(request)):
        raise denied(request, "accepted only from this machine")
    if control.http != "any" and not is_near(*_ends(request)):
        raise denied(request, "accepted only from this machine, unless control.http is any")
    if await is_authenticated(request, metrics, control, files):
        return
    if control.http_token_file is None and not _trusts_clients(metrics):
        raise denied(request, _NO_WAY_IN)
    text = "expected Authorization: Bearer, with the streamer's token"
    if _trusts_clients(metrics):
        text += ", or a certificate of a client"
    raise denied(request, text, web.HTTPUnauthorized, {"WWW-Authenticate": "Bearer"})


async def is_authenticated(request: web.Request, metrics: MetricsConfig, control: ControlConfig, files: Files) -> bool:
    """Return whether a request has the present token, or a client's certificate."""
    has_certificate = _trusts_clients(metrics) and certificate_of(request) != ""
    return has_certificate or await _has_token(request, control.http_token_file, files)


def _trusts_clients(metrics: MetricsConfig) -> bool:
    return metrics.tls is not None and metrics.tls.client_ca_file is not None


def caller_of(request: web.Request) -> Caller:
    """Return who sent a permitted request, and from where, for the audit log."""
    if certificate := certificate_of(request):
        return Caller(f"certificate {certificate}", client_of(request))
    user = request.headers.get(USER_HEADER, "")
    if _USER.fullmatch(user) and is_near(*_ends(request)):
        return Caller(user, "command line")
    return Caller("http", client_of(request))


def certificate_of(request: web.Request) -> str:
    """Return the name in a client's verified certificate; empty if there is none."""
    found = None if request.transport is None else request.transport.get_extra_info("peercert")
    if not found:
        return ""
    names = {key: value for part in found.get("subject", ()) for key, value in part}
    return str(names.get("commonName") or f"number {found.get('serialNumber', 'unknown')}")


def client_of(request: web.Request) -> str:
    """Return the address from which a request came."""
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


def _origin(text: str) -> str:
    """Return an origin as browsers write it: in lower case, without the default port of its scheme."""
    text = text.lower()
    return text.removesuffix(_PORTS.get(text.partition("://")[0], "\0"))


async def _has_token(request: web.Request, file: Path | None, files: Files) -> bool:
    """Return whether a request has the token in ``file``, which is read each time so that the token can be changed."""
    if file is None:
        return False
    try:
        token = await files.run(partial(read_token, file, may_wait=False))
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        logger.error("http_token_unusable file=%s reason=%s", file, reason)
        return False
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token) and scheme.lower() == "bearer"


def denied(
    request: web.Request, text: str, kind: type[web.HTTPError] = web.HTTPForbidden, headers: dict[str, str] | None = None
) -> web.HTTPError:
    """Write a refusal to the audit log, and return the HTTP error for it."""
    audit(DENIED, who="http", where=client_of(request), reason=text, path=request.path)
    return refused(text, kind, headers)


def refused(text: str, kind: type[web.HTTPError], headers: dict[str, str] | None = None) -> web.HTTPError:
    """Return an HTTP error with the reason as JSON."""
    return kind(text=json.dumps({"error": text}), content_type="application/json", headers=headers)
