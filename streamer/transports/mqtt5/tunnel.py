"""Opens a tunnel through an HTTP proxy: CONNECT (RFC 9110, 9.3.6). What passes in the tunnel is for others.

The other side of a tunnel does not speak first: MQTT, TLS and WebSocket all begin with the client. So bytes behind the
proxy's answer are a mistake.
"""

import asyncio
import socket
from base64 import b64encode
from typing import NamedTuple

from streamer.transports.addresses import split_url
from streamer.transports.probe import address_of

_MOST_BYTES = 16_384  # of an answer
_READ_BYTES = 4096
_REASON = 80  # characters of the proxy's own words in an error
_TLS_ALERT = b"\x15\x03"
_EXPECTED = "expected http://host:port"
_NO_PROXY = "is it a proxy that opens tunnels (CONNECT), or does it want a login in a browser?"
_UNREACHED = "it does not reach {target}, or does not find its name: see the broker's host and port, and its firewall"
_REASONS = {
    "403": "it does not allow {target}: have it allowed there, or use a broker on port 443",
    "407": "it wants a user and password: see proxy_credentials_file",
} | dict.fromkeys(("404", "502", "503", "504"), _UNREACHED)


class ProxyError(OSError):
    """The proxy is the reason why there is no connection. The text says so, and contains no credentials."""


class HttpProxy(NamedTuple):
    """Where a proxy is."""

    host: str
    port: int

    @property
    def where(self) -> str:
        """Host and port as one text."""
        return address_of(self.host, self.port)


def read_proxy(text: str) -> HttpProxy:
    """Read the URL of a proxy. Raises ValueError, whose text does not contain the URL."""
    url = split_url(text, _EXPECTED, "proxy_credentials_file")
    port, host = url.port, url.hostname
    if url.scheme == "https":
        raise ValueError(f"{_EXPECTED}: no TLS with the proxy itself; TLS with the broker goes through it")
    if url.scheme != "http" or not host or not port or url.path not in ("", "/") or url.query or url.fragment:
        raise ValueError(_EXPECTED)
    return HttpProxy(host, port)


async def open_tunnel(link: socket.socket, proxy: HttpProxy, target: str, credentials: bytes | None) -> None:
    """Have the proxy at the other end of ``link`` connect to ``target``, which is a host and port.

    ``credentials`` are ``user:password``. Raises ProxyError. The caller limits the time, and closes ``link`` after an error.
    """
    loop = asyncio.get_running_loop()
    request = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if credentials is not None:
        request.append(f"Proxy-Authorization: Basic {b64encode(credentials).decode()}")
    answer = b""
    try:
        await loop.sock_sendall(link, "\r\n".join([*request, "", ""]).encode())
        while b"\r\n\r\n" not in answer:
            if answer.startswith(_TLS_ALERT):
                raise ProxyError(f"the proxy {proxy.where} speaks TLS, which the streamer does not: see the port of proxy")
            if len(answer) > _MOST_BYTES:
                raise ProxyError(f"the proxy {proxy.where} sent more than {_MOST_BYTES} bytes instead of an answer")
            data = await loop.sock_recv(link, _READ_BYTES)
            if not data:
                raise ProxyError(f"the proxy {proxy.where} closed the connection without an answer")
            answer += data
    except ConnectionError as exc:
        raise ProxyError(f"the proxy {proxy.where} ended the connection: {exc.strerror}") from exc
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, _, fields = head.decode("ascii", "replace").partition("\r\n")
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ProxyError(f"what answers at {proxy.where} is not an HTTP proxy: see host and port of proxy")
    if not status.startswith("2") or rest:
        wrong = _refusal(status[:3], fields.lower(), credentials is not None).format(target=target)
        raise ProxyError(f"the proxy {proxy.where} answered {status[:_REASON]!r}: {wrong}")


def _refusal(code: str, fields: str, has_credentials: bool) -> str:
    """Return why a proxy opens no tunnel, and how that is mended."""
    if code == "407" and "proxy-authenticate:" in fields and "basic" not in fields:
        return "it takes no password as it is (Basic): run a small proxy, such as cntlm, between the streamer and it"
    if code == "407" and has_credentials:
        return "it does not accept the user or the password in proxy_credentials_file"
    return _REASONS.get(code, _NO_PROXY)
