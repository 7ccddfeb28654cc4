"""Who may ask the HTTP port at all: the Host of every request is looked at, and whoever changes something may need a token.

A page in a browser can have its own name point to this machine (DNS rebinding), and read what it likes then, with the rights
of the network that the browser is in. It cannot choose the Host: that is its name. So the Host must be an address, or a name
that the configuration knows.
"""

import hmac
import json
import logging
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streamer.audit import DENIED, audit
from streamer.config.models import MetricsConfig

SHORTEST_TOKEN = 16
_READING = ("GET", "HEAD")

logger = logging.getLogger("ustreamer.admin")


def access(options: MetricsConfig, token_file: Path | None) -> Middleware:
    """A middleware that refuses what does not come to a known Host, and changes without the token in that file."""
    names = {name.lower() for name in ("localhost", options.host, *options.hosts)}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_reading = request.method in _READING
        hosts = request.headers.getall("Host", [])
        if not all(_is_known(host, names) for host in hosts) or not (hosts or is_reading):  # HTTP/1.0 has none
            if not is_reading:
                audit(DENIED, who="http", where=request.remote or "", reason="unknown Host", path=request.path)
            raise _refusal("expected an IP address or localhost as Host, or a name that metrics.hosts lists")
        if token_file is not None and not is_reading and not _has_token(request, token_file):
            audit(DENIED, who="http", where=request.remote or "", reason="no valid token", path=request.path)
            raise web.HTTPUnauthorized(
                text=json.dumps({"error": "expected Authorization: Bearer, with the token of control.http_token_file"}),
                content_type="application/json",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    return check


def read_token(path: Path) -> bytes:
    """The token in a file. Raises OSError, and ValueError if it is too short or no header can hold it."""
    token = path.read_bytes().strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.decode("ascii").isprintable():
        raise ValueError(f"expected at least {SHORTEST_TOKEN} printable ASCII characters")
    return token


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


def _refusal(text: str) -> web.HTTPClientError:
    return web.HTTPForbidden(text=json.dumps({"error": text}), content_type="application/json")
