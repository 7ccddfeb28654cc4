"""TCP sockets, as everything that listens opens them, and the addresses of names."""

import asyncio
import socket
from functools import partial
from typing import Any

from streamer.files import in_thread

_looking: dict[tuple[object, ...], asyncio.Future[Any]] = {}
"""The look-ups that are at work, by event loop, name, port and flags."""


async def addresses_of(host: str, port: int, flags: int = 0) -> list[tuple[Any, ...]]:
    """Return the addresses of a name for TCP, as `socket.getaddrinfo`; a numeric address needs no look-up.

    Each name has a thread of its own, and one at a time: a name server that does not answer holds up no other name, and not
    the end of the process. Whoever waits sets the time limit. Raises OSError, and UnicodeError for what is not a name.
    """
    look = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return look(flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        key = asyncio.get_running_loop(), host, port, flags
    looking = _looking.get(key)
    if looking is None:
        looking = _looking[key] = asyncio.ensure_future(in_thread(partial(look, flags=flags)))
        looking.add_done_callback(lambda done: _looking.pop(key).cancelled() or done.exception())
    found: list[tuple[Any, ...]] = await asyncio.shield(looking)
    return found


def listening_socket(family: int, address: tuple[object, ...], backlog: int) -> socket.socket:
    """Return a socket that listens on an address of `getaddrinfo`, for a server that accepts by itself. Raises OSError.

    It does not block. On an IPv6 address it takes no IPv4; ``backlog`` connections may wait to be accepted.
    """
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening
