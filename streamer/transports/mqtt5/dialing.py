"""Opens the TCP or TLS connection to a broker. A name may have several addresses, and some of them may be dead.

Each address has ``connect_timeout_s``, so that one that never answers does not use up the time of the others.
"""

import asyncio
import socket
from collections.abc import Callable
from ssl import SSLContext

from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.options import Mqtt5Options

_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


async def dial(
    options: Mqtt5Options, tls: SSLContext | None, new_connection: Callable[[], Connection], first_address: int = 0
) -> Connection:
    """Connect to the first address of the host that accepts, beginning with number ``first_address`` (modulo their number).

    If no address accepts, raises the OSError of the last one, which may be a TimeoutError. Raises UnicodeError for a host
    that is not a valid name.
    """
    loop, wait_s = asyncio.get_running_loop(), options.connect_timeout_s
    async with asyncio.timeout(wait_s):
        found = await loop.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    hosts = list(dict.fromkeys(socket.getnameinfo(address, _NUMERIC)[0] for *_, address in found))
    begin = first_address % len(hosts)
    error = OSError("no address")
    for host in hosts[begin:] + hosts[:begin]:
        connection = new_connection()  # one per address, so that a late answer is not taken for the next address's
        try:
            async with asyncio.timeout(wait_s):
                await _connect(options, tls, connection, host)
            return connection
        except OSError as exc:
            error = exc
    raise error


async def _connect(options: Mqtt5Options, tls: SSLContext | None, connection: Connection, host: str) -> None:
    await asyncio.get_running_loop().create_connection(
        lambda: connection.protocol,
        host,
        options.port,
        ssl=tls,
        server_hostname=options.host if tls is not None else None,
    )
