"""Opens the connection to a broker: TCP, perhaps through a proxy, TLS, WebSocket. A name may have several addresses.

Each address has ``connect_timeout_s``, so that a dead one that never answers does not use up the time of the others.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5.brokers import Broker
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.keep_alive import FAREWELL_S
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.tunnel import HttpProxy, ProxyError, open_tunnel
from streamer.transports.sockets import addresses_of

_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


@dataclass(frozen=True)
class Way:
    """How a broker is reached, with what was read from files for that."""

    options: Mqtt5Options
    broker: Broker
    tls: SSLContext | None
    proxy_credentials: bytes | None = field(repr=False)

    @property
    def near(self) -> Broker | HttpProxy:
        """The target of the first connection: the proxy, or the broker itself."""
        return self.options.http_proxy or self.broker


def read_way(options: Mqtt5Options, broker: Broker) -> Way:
    """Read the files that the way to a broker needs. Blocks. Raises `ConfigurationError` with the option."""
    return Way(options, broker, options.tls_context() if broker.uses_tls else None, options.proxy_credentials())


async def dial(
    way: Way, new_connection: Callable[[], Connection], first_address: int = 0, good_address: str | None = None
) -> tuple[Connection, str]:
    """Connect to the first address of a broker, or of its proxy, that accepts. Return the connection, and that address.

    ``good_address`` is tried before the others, if the name still has it. Of that order, the first ``first_address`` (modulo
    their number) come last. If no address accepts, raises the OSError of the last one, which may be a TimeoutError or
    `ProxyError`. Raises UnicodeError for a host that is not a valid name.
    """
    wait_s = way.options.connect_timeout_s
    with _blamed(way):
        async with asyncio.timeout(wait_s):
            found = await addresses_of(way.near.host, way.near.port)
    hosts = list(dict.fromkeys(socket.getnameinfo(address, _NUMERIC)[0] for *_, address in found))
    hosts.sort(key=lambda host: host != good_address)  # sorting keeps the order of the others
    begin = first_address % len(hosts)
    error = OSError("no address")
    for host in hosts[begin:] + hosts[:begin]:
        connection = new_connection()  # one per address, so that a late answer is not taken for the next address's
        try:
            if way.options.http_proxy is None:
                async with asyncio.timeout(wait_s):
                    await attach(way, connection, host=host, port=way.broker.port)
            else:
                await _connect_through_proxy(way, connection, host, wait_s)
            return connection, host
        except OSError as exc:
            error = exc
    raise error


async def attach(way: Way, connection: Connection, **where: Any) -> None:
    """Connect to ``host`` and ``port``, or use the connected socket ``sock``, and begin what is spoken there below MQTT.

    Raises OSError: of TCP and TLS, or a `WebSocketError`.
    """
    tls: dict[str, Any] = {} if way.tls is None else {"ssl": way.tls, "server_hostname": way.broker.host}
    loop = asyncio.get_running_loop()
    if not way.broker.is_websocket:
        await loop.create_connection(lambda: connection.protocol, **tls, **where)
        return
    from streamer.transports.mqtt5.websocket import WebSocketLink  # noqa: PLC0415  # only who needs it loads the library

    link = WebSocketLink(connection, way.broker, way.options.max_packet_bytes)
    await loop.create_connection(lambda: link, **tls, **where)
    try:
        await link.opened
    except BaseException:
        link.abort()
        raise


async def pass_proxy(way: Way, link: socket.socket) -> None:
    """Have the proxy connect to the broker, if there is a proxy. ``link`` is connected to it. Raises `ProxyError`."""
    if way.options.http_proxy is not None:
        await open_tunnel(link, way.options.http_proxy, way.broker.where, way.proxy_credentials)


async def accepts(way: Way, good_address: str | None) -> bool:
    """Return whether a broker accepts a connection, which is closed before MQTT begins."""

    def new_connection() -> Connection:
        return Connection(way.options.max_packet_bytes, lambda *_: False, lambda _: None, lambda _: None)

    try:
        connection, _ = await dial(way, new_connection, 0, good_address)
    except (OSError, UnicodeError):
        return False
    connection.close("tested", LinkFailure.OTHER)
    await connection.wait_lost(FAREWELL_S)
    return True


async def _connect_through_proxy(way: Way, connection: Connection, host: str, wait_s: float) -> None:
    link = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with _blamed(way):
            async with asyncio.timeout(wait_s):
                await asyncio.get_running_loop().sock_connect(link, (host, way.near.port))
                await pass_proxy(way, link)
        async with asyncio.timeout(wait_s):
            await attach(way, connection, sock=link)
    except BaseException:
        link.close()
        raise


@contextmanager
def _blamed(way: Way) -> Iterator[None]:
    """Raise errors as those of the proxy, if there is one."""
    proxy = way.options.http_proxy
    try:
        yield
    except OSError as exc:
        if proxy is None or isinstance(exc, ProxyError):
            raise
        reason = f"does not answer within {way.options.connect_timeout_s:g} s"
        if not isinstance(exc, TimeoutError) or exc.errno is not None:
            reason = f"cannot be reached: {exc.strerror or type(exc).__name__}; see host and port of proxy"
        raise ProxyError(f"the proxy {proxy.where} {reason}") from exc
