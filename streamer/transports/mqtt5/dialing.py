"""Opens the TCP or TLS connection to a broker. A name may have several addresses, and some of them may be dead.

Each address has ``connect_timeout_s``, so that one that never answers does not use up the time of the others.
"""

import asyncio
import socket
from collections.abc import Callable
from ssl import SSLContext

from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5.brokers import Broker
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.keep_alive import FAREWELL_S
from streamer.transports.mqtt5.options import Mqtt5Options

_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


async def dial(
    options: Mqtt5Options,
    broker: Broker,
    tls: SSLContext | None,
    new_connection: Callable[[], Connection],
    first_address: int = 0,
    good_address: str | None = None,
) -> tuple[Connection, str]:
    """Connect to the first address of a broker that accepts. Return the connection, and that address.

    ``good_address`` is tried before the others, if the broker's name still has it. Of that order, the first
    ``first_address`` (modulo their number) come last. If no address accepts, raises the OSError of the last one, which may
    be a TimeoutError. Raises UnicodeError for a host that is not a valid name.
    """
    loop, wait_s = asyncio.get_running_loop(), options.connect_timeout_s
    async with asyncio.timeout(wait_s):
        found = await loop.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
    hosts = list(dict.fromkeys(socket.getnameinfo(address, _NUMERIC)[0] for *_, address in found))
    hosts.sort(key=lambda host: host != good_address)  # sorting keeps the order of the others
    begin = first_address % len(hosts)
    error = OSError("no address")
    for host in hosts[begin:] + hosts[:begin]:
        connection = new_connection()  # one per address, so that a late answer is not taken for the next address's
        try:
            async with asyncio.timeout(wait_s):
                await _connect(broker, tls, connection, host)
            return connection, host
        except OSError as exc:
            error = exc
    raise error


async def accepts(options: Mqtt5Options, broker: Broker, tls: SSLContext | None, good_address: str | None) -> bool:
    """Return whether a broker accepts a connection, which is closed before MQTT begins."""

    def new_connection() -> Connection:
        return Connection(options.max_packet_bytes, lambda *_: False, lambda _: None, lambda _: None)

    try:
        connection, _ = await dial(options, broker, tls, new_connection, 0, good_address)
    except (OSError, UnicodeError):
        return False
    connection.close("tested", LinkFailure.OTHER)
    await connection.wait_lost(FAREWELL_S)
    return True


async def _connect(broker: Broker, tls: SSLContext | None, connection: Connection, host: str) -> None:
    tls = tls if broker.uses_tls else None
    await asyncio.get_running_loop().create_connection(
        lambda: connection.protocol,
        host,
        broker.port,
        ssl=tls,
        server_hostname=broker.host if tls is not None else None,
    )
