"""Reads the TCP sockets of a session's links: whether a put can block, what has arrived at the other ends, how many bytes
have passed.

For each link, Zenoh has a queue (two batches of 64 KiB for a priority), which one of its threads empties into the link's
socket. A put blocks once that queue is full, so only some time after the socket has stopped taking bytes. As long as the
socket's buffer is far from full, that thread does not wait, and the queue empties.

`arrival` derives from a socket which messages have arrived. Links to the streamer's own nodes say nothing: no message is for
these. What other links say counts only where the receivers are at their other ends: behind a router, and over links
other than TCP (with or without TLS, on Linux), nothing is known, and `has_room` is always False, so messages go through the
sender's thread.

Zenoh owns its descriptors, and may close and reuse them at any time. So these are duplicates. A duplicate does not keep its
connection open, because Zenoh shuts the connection down before it closes its descriptor, and can still be read after that.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import socket
import stat
import struct
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import zenoh

from streamer.transports.tcp_info import NO_BYTES, ByteCounts, wire_bytes
from streamer.transports.zenoh.arrival import Arrival, Reading
from streamer.transports.zenoh.control import ControlThread, tell_loop

_MAX_CHECKED_LINKS = 8  # links that are checked for room for every batch: 1 to 2 µs each
MAX_ENDS = 16
"""How many other ends of links are shown."""

_MAX_LINKS = 256  # links that are read at every tick: 5 µs each
_BUFFER_DIVISOR = 4  # a socket has room while it holds at most this fraction of its buffer
_EARLIER_S = 0.5  # a link may have been open for this long when its event comes
_DESCRIPTORS = "/proc/self/fd"
_STREAMS = ("tcp", "tls")
_ZERO = bytes(4)
_NO_LINGER = struct.pack("ii", 0, 0)

_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # struct tcp_info of Linux 4.1 or newer
_ESTABLISHED = 1
_ACKNOWLEDGED_AT = 120  # tcpi_bytes_acked and tcpi_bytes_received
_INFO_BYTES = 136

Ends = tuple[str, str]
"""Our address and the other's, each as ``host:port``, with brackets around a host that is an IPv6 address."""


class LinkSocket:
    """A duplicate of one connection's socket, to the node ``zid``. ``inode`` identifies the connection."""

    __slots__ = ("_connection", "_limit", "arrival", "inode", "is_own", "zid")

    def __init__(self, connection: socket.socket, zid: str, inode: int, opened_s: float, is_own: bool = False) -> None:
        self._connection = connection
        self._limit = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // _BUFFER_DIVISOR
        self.zid = zid
        self.is_own = is_own
        self.inode = inode
        self.arrival = Arrival(opened_s)

    def has_room(self) -> bool:
        """Return whether the connection holds no more unacknowledged bytes than the limit."""
        try:
            return self._bytes(termios.TIOCOUTQ) <= self._limit
        except (OSError, ValueError):  # a closed socket has no descriptor
            return False

    def has_unread(self) -> bool:
        """Return whether bytes have come that Zenoh has not read."""
        try:
            return self._bytes(termios.FIONREAD) > 0
        except (OSError, ValueError):
            return False

    def look(self, now_s: float) -> None:
        """Read the socket, and update ``arrival``."""
        if _TCP_INFO is None or self.arrival.is_over:
            return
        try:
            unacknowledged = self._bytes(termios.TIOCOUTQ)
            info = self._connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
        except (OSError, ValueError):
            return
        if len(info) >= _INFO_BYTES:
            acknowledged = int.from_bytes(info[_ACKNOWLEDGED_AT : _ACKNOWLEDGED_AT + 8], sys.byteorder)
            received = int.from_bytes(info[_ACKNOWLEDGED_AT + 8 : _INFO_BYTES], sys.byteorder)
            has_room = unacknowledged <= self._limit
            self.arrival.look(Reading(info[0] == _ESTABLISHED, has_room, unacknowledged, acknowledged, received), now_s)

    def carried(self) -> ByteCounts:
        """Return what the connection has carried so far; nothing if that is unknown."""
        return wire_bytes(self._connection) or NO_BYTES

    def close(self) -> None:
        """Close the duplicate."""
        _close(self._connection)

    def _bytes(self, queue: int) -> int:
        return int.from_bytes(fcntl.ioctl(self._connection, queue, _ZERO), sys.byteorder)


class _Found(NamedTuple):
    """The links over TCP, `_MAX_LINKS` at most, with the ids of their nodes.

    ``are_all``: there are no others, but for own nodes. ``are_direct``: no node is a router, but for own ones.

    ``others``: the other ends of the first `MAX_ENDS` links, whatever their protocol.
    """

    are_all: bool
    are_direct: bool
    by_inode: dict[int, tuple[socket.socket, str]]
    others: tuple[str, ...]

    def close(self) -> None:
        """Close the connections, which no `LinkSockets` takes over."""
        for connection, _ in self.by_inode.values():
            _close(connection)


class LinkSockets:
    """The connections of one session. Call `watch` on the control thread, and everything else on the event loop.

    ``others``: the other ends of its links, as Zenoh names them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        forget_s: float,
        is_own: Callable[[str], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``forget_s``: how long a closed link counts as evidence, if its node stays. ``is_own``: see `OwnNodes`."""
        self._loop = loop
        self._control = control
        self._session = session
        self._forget_s = forget_s
        self._is_own = is_own
        self._now_s = now_s
        self.others: tuple[str, ...] = ()
        self._open: tuple[LinkSocket, ...] = ()
        self._closed: list[tuple[float, LinkSocket]] = []  # with the time at which the closing was noticed
        self._carried = NO_BYTES  # by links that are in `_open` no more
        self._are_all = self._are_direct = self._are_few = False
        self._events = 0  # how many link events have come
        self._events_used = -1
        self._unused: deque[tuple[int, float]] = deque()  # events of opened links that `_use` has not seen: number, time
        self._suspended_until_s = -math.inf
        self._is_over = False
        self._listener: zenoh.LinkEventsListener[None] | None = None

    def has_room(self) -> bool:
        """Return whether some kilobytes can be put without blocking."""
        if not self._are_few or self._events_used != self._events:
            return False
        for each in self._open:  # noqa: SIM110 - runs for every batch, and a generator costs more
            if not each.has_room():
                return False
        return True

    async def until_read(self, within_s: float) -> None:
        """Wait until Zenoh has read what has come, at most ``within_s`` seconds: after a pause of the process it is much."""
        for _ in range(int(within_s / 0.02)):
            if not any(each.has_unread() for each in self._open):
                return
            await asyncio.sleep(0.02)

    def arrived_until_s(self, now_s: float) -> float:
        """Return the time before which everything that was put has arrived at all nodes; minus infinity if unknown."""
        while self._closed and self._closed[0][0] + self._forget_s <= now_s:
            self._closed.pop(0)[1].close()
        links = [each for each in self._all() if not each.is_own]
        if not self._are_all or not self._are_direct or not links or now_s < self._suspended_until_s:
            return -math.inf
        until_s = self._unused[0][1] if self._unused else math.inf
        for each in links:
            each.look(now_s)
            until_s = min(until_s, each.arrival.until_s)
        return until_s

    def wire_bytes(self) -> ByteCounts | None:
        """Return what all TCP links of the session have carried so far; None without any, or where that is unknown."""
        carried = self._carried
        for each in self._open:
            carried = carried.plus(each.carried())
        return carried if any(carried) else None

    def forget_lost(self, zid: str) -> None:
        """Forget the closed links of a node that Zenoh reports as lost: its messages are redelivered anyway."""
        now_s = self._now_s()
        for each in self._open:
            if each.zid == zid:
                each.look(now_s)
        lost = [each for each in self._all() if each.zid == zid and each.arrival.is_over]
        self._count_ended(each for each in self._open if each in lost)
        for each in lost:
            each.close()
        self._open = tuple(each for each in self._open if each not in lost)
        self._closed = [entry for entry in self._closed if entry[1] not in lost]

    def suspend_evidence(self, for_s: float) -> None:
        """Count no message as arrived for ``for_s`` seconds, because the receivers are not known yet."""
        self._suspended_until_s = self._now_s() + for_s

    def close(self) -> None:
        """Close all duplicates, and count no message as arrived any more."""
        self._is_over = True
        self._are_all = self._are_few = False
        self._count_ended(self._open)
        for each in self._all():
            each.close()
        self._open, self._closed, self.others = (), [], ()

    def _count_ended(self, ended: Iterable[LinkSocket]) -> None:
        """Count what these links have carried, before they leave `_open`."""
        for each in ended:
            self._carried = self._carried.plus(each.carried())

    def _all(self) -> list[LinkSocket]:
        return [*self._open, *(closed for _, closed in self._closed)]

    def watch(self) -> None:
        """Watch the session's links, beginning with those that are open already."""
        session = self._session

        def look() -> None:
            events = self._events
            found = None if session.is_closed() else _find(session, self._is_own)
            if not tell_loop(self._loop, self._use, found, events) and found is not None:
                found.close()

        def on_event(event: zenoh.LinkEvent) -> None:  # on a thread of Zenoh, one after the other
            if event.kind == zenoh.SampleKind.PUT:
                self._unused.append((self._events + 1, self._now_s() - _EARLIER_S))
            self._events += 1
            self._control.post(look)

        self._listener = session.info.declare_link_events_listener(on_event, history=False)
        look()

    def _use(self, found: _Found | None, events: int) -> None:
        """Use the links that were found after ``events`` events. On the loop."""
        now_s = self._now_s()
        opened_s = now_s - _EARLIER_S
        while self._unused and self._unused[0][0] <= events:
            opened_s = min(opened_s, self._unused.popleft()[1])
        if found is None or self._is_over:
            if found is not None:
                found.close()
            return
        known = {each.inode: each for each in self._open}
        self._count_ended(each for inode, each in known.items() if inode not in found.by_inode)
        for inode, each in known.items():
            if inode not in found.by_inode:
                each.look(now_s)
                each.arrival.is_over = True
                self._closed.append((now_s, each))
        sockets = []
        for inode, (connection, zid) in found.by_inode.items():
            if inode in known:
                connection.close()
                sockets.append(known[inode])
            else:
                sockets.append(LinkSocket(connection, zid, inode, opened_s, self._is_own(zid)))
        self._open = tuple(sockets)
        self._are_all, self._are_direct, self.others = found.are_all, found.are_direct, found.others
        self._are_few = found.are_all and len(sockets) <= _MAX_CHECKED_LINKS
        self._events_used = events


def _find(session: zenoh.Session, is_own: Callable[[str], bool]) -> _Found:
    links = session.info.links()
    foreign = [transport for transport in session.info.transports() if not is_own(str(transport.zid))]
    are_direct = not any(str(transport.whatami) == "router" for transport in foreign)
    wanted: dict[Ends, str] = {}
    are_all = len(links) <= _MAX_LINKS
    for link in links[:_MAX_LINKS]:
        (our_protocol, ours), (protocol, others) = _place(link.src), _place(link.dst)
        if our_protocol in _STREAMS and protocol in _STREAMS:
            wanted[ours, others] = str(link.zid)
        elif not is_own(str(link.zid)):
            are_all = False
    by_inode = {inode: (connection, wanted[ends]) for ends, inode, connection in _connections(wanted)}
    shown = tuple(sorted({_shown(link.dst) for link in links[:MAX_ENDS]}))
    return _Found(are_all and len(by_inode) == len(wanted), are_direct, by_inode, shown)


def _shown(locator: str) -> str:
    """Return a locator without metadata and settings."""
    return "/".join(_place(locator))


def _place(locator: str) -> tuple[str, str]:
    protocol, _, rest = locator.partition("/")
    return protocol, rest.partition("?")[0].partition("#")[0]


def _connections(wanted: Collection[Ends]) -> Iterator[tuple[Ends, int, socket.socket]]:
    """Yield duplicates of the ``wanted`` TCP connections of this process, each with its ends and its inode."""
    try:
        names = os.listdir(_DESCRIPTORS) if wanted else []
    except OSError:  # not Linux
        return
    found: set[Ends] = set()
    for name in names:
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # closed meanwhile
            continue
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                ends = (_text(connection.getsockname()), _text(connection.getpeername()))
                if ends in wanted and ends not in found:  # not a duplicate of ours
                    found.add(ends)
                    yield ends, os.fstat(connection.fileno()).st_ino, connection
                    continue
        except OSError:  # not connected
            pass
        connection.close()


def _close(connection: socket.socket) -> None:
    """Close what may be the last descriptor of a connection, without waiting for the other end.

    Zenoh sets SO_LINGER: closing the last descriptor blocks for up to 10 s while a suspended receiver does not read.
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()


def _text(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
