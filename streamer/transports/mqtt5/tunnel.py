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
_EXPECTED = "expected http://host:port"


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
            if len(answer) > _MOST_BYTES:
                raise ProxyError(f"the proxy {proxy.where} sent more than {_MOST_BYTES} bytes instead of an answer")
            data = await loop.sock_recv(link, _READ_BYTES)
            if not data:
                raise ProxyError(f"the proxy {proxy.where} closed the connection without an answer")
            answer += data
    except ConnectionError as exc:
        raise ProxyError(f"the proxy {proxy.where} ended the connection: {exc.strerror}") from exc
    head, _, rest = answer.partition(b"\r\n\r\n")
    version, _, status = head.partition(b"\r\n")[0].decode("ascii", "replace").partition(" ")
    if not version.startswith("HTTP/1."):
        raise ProxyError(f"what answers at {proxy.where} is not an HTTP proxy")
    if not status.startswith("2"):
        hint = "; see proxy_credentials_file" if status.startswith("407") else ""
        raise ProxyError(f"the proxy {proxy.where} answered {status[:_REASON]!r} to CONNECT {target}{hint}")
    if rest:
        raise ProxyError(f"the proxy {proxy.where} sent something behind its answer")
