"""Tells whether a put can block, by asking the kernel how many bytes each of Zenoh's connections still has to send.

Zenoh puts into a queue of its own for each link (two batches of 64 KiB for a priority), which one of its threads empties
into the link's socket. A put blocks once that queue is full, so only some time after the socket has stopped taking bytes. As
long as the socket holds far less than it may, that thread does not wait, and Zenoh's queue empties.

Only TCP, with or without TLS, on Linux can be asked. With any other link, and with many, there is never room: messages go
through the sender's thread.
"""

import fcntl
import os
import socket
import stat
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass

import zenoh

from streamer.transports.zenoh.control import ControlThread

_MOST_LINKS = 8  # asking costs 1 to 2 µs for each
_PART = 4  # of its buffer a socket may hold
_DESCRIPTORS = "/proc/self/fd"
_STREAMS = ("tcp", "tls")
_ZERO = bytes(4)

Ends = tuple[str, str]
"""Our address and the other's, each as ``host:port``, with brackets around a host that is an IPv6 address."""


@dataclass(frozen=True, slots=True)
class SendQueue:
    """What one connection has not got rid of. Zenoh owns the descriptor, which may be closed and used again at any time."""

    descriptor: int
    inode: int
    limit: int

    def has_room(self) -> bool:
        """Whether the connection is the same, and holds no more than the limit."""
        try:
            if os.fstat(self.descriptor).st_ino != self.inode:
                return False
            held = fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, _ZERO)
        except OSError:
            return False
        return int.from_bytes(held, sys.byteorder) <= self.limit


class SendQueues:
    """The connections of one session. ``has_room`` is for the event loop, `watch` for the control thread."""

    def __init__(self) -> None:
        self._known: tuple[SendQueue, ...] | None = None  # None: not all of them are known
        self._events: zenoh.LinkEventsListener[None] | None = None

    def has_room(self) -> bool:
        """Whether some kilobytes can be put without waiting."""
        if self._known is None:
            return False
        for queue in self._known:  # noqa: SIM110 - for every batch, and a generator costs more
            if not queue.has_room():
                return False
        return True

    def watch(self, session: zenoh.Session, control: ControlThread) -> None:
        """Follow the session's links, beginning with those that are open already."""

        def look() -> None:
            self._known = None if session.is_closed() else _find(session)

        def on_event(_: zenoh.LinkEvent) -> None:  # on a thread of Zenoh
            self._known = None
            control.post(look)

        self._events = session.info.declare_link_events_listener(on_event, history=False)
        look()


def _find(session: zenoh.Session) -> tuple[SendQueue, ...] | None:
    links = session.info.links()
    if len(links) > _MOST_LINKS:
        return None
    wanted: set[Ends] = set()
    for link in links:
        (our_protocol, ours), (protocol, others) = _place(link.src), _place(link.dst)
        if our_protocol not in _STREAMS or protocol not in _STREAMS:
            return None
        wanted.add((ours, others))
    found = {ends: queue for ends, queue in _connections() if ends in wanted}
    return tuple(found.values()) if len(found) == len(wanted) else None


def _place(locator: str) -> tuple[str, str]:
    protocol, _, rest = locator.partition("/")
    return protocol, rest.partition("?")[0].partition("#")[0]


def _connections() -> Iterator[tuple[Ends, SendQueue]]:
    """The TCP connections of this process."""
    try:
        names = os.listdir(_DESCRIPTORS)
    except OSError:  # not Linux
        return
    for name in names:
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                    continue
                ends = (_text(connection.getsockname()), _text(connection.getpeername()))
                limit = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // _PART
                yield ends, SendQueue(descriptor, os.fstat(connection.fileno()).st_ino, limit)
        except OSError:  # closed meanwhile, or not connected
            continue


def _text(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
