"""TCP sockets, as everything that listens opens them."""

import socket


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
