"""Tells how many connections wait to be accepted where a session listens, by asking the kernel.

Zenoh accepts one after the other, and after each that fails in the TLS handshake it waits for 0.1 s. So whoever opens many
connections keeps honest nodes out, and Zenoh says nothing about it. But they all wait here. (Without TLS it accepts and
closes what is too much, and nothing shows it.)

Only TCP, with or without TLS, on Linux can be asked, and only ports that are named.
"""

import os
import socket
import stat
import sys
from collections.abc import Collection, Iterator
from typing import Final

_DESCRIPTORS: Final = "/proc/self/fd"
_INFO_BYTES: Final = 32
_WAITING: Final = slice(24, 28)
"""Where Linux's TCP_INFO has `tcpi_unacked`, which is the length of the queue of a socket that listens."""

_Listener = tuple[int, int]
"""A descriptor of Zenoh's, and the inode that tells whether it is still the same."""


class ListenQueues:
    """The queues of one session that listens on these ``ports``."""

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = frozenset(ports)
        self._found: list[_Listener] = []

    def find(self) -> None:
        """The session is open: find its sockets. For the control thread."""
        self._found = list(_listeners(self._ports)) if self._ports else []

    def waiting(self) -> int:
        """How many connections wait. Takes some microseconds."""
        return sum(map(_length, self._found))


def _length(listener: _Listener) -> int:
    descriptor, inode = listener
    try:
        with socket.socket(fileno=os.dup(descriptor)) as link:
            if os.fstat(link.fileno()).st_ino != inode:
                return 0
            info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:  # closed meanwhile
        return 0
    return int.from_bytes(info[_WAITING], sys.byteorder)


def _listeners(ports: Collection[int]) -> Iterator[_Listener]:
    """The TCP sockets of this process that listen on these ports."""
    try:
        names = os.listdir(_DESCRIPTORS)
    except OSError:  # not Linux
        return
    for name in names:
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as link:
                if link.family not in (socket.AF_INET, socket.AF_INET6) or link.type != socket.SOCK_STREAM:
                    continue
                is_listening = link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and link.getsockname()[1] in ports:
                    yield descriptor, os.fstat(link.fileno()).st_ino
        except OSError:  # closed meanwhile
            continue
