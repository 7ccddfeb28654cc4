"""The TCP listener of the admin pages: serves few connections at a time, each for a short time.

A client that holds connections open therefore exhausts neither the port nor the process's file descriptors: the oldest
connection, or TLS handshake, is closed. The event loop's own server is not used, because uvloop closes it for good when it
cannot accept.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

from streamer.features.api.certificate import PortCertificate
from streamer.logs.audit import DENIED, audit
from streamer.transports.sockets import addresses_of, listening_socket

MAX_CONNECTIONS = 32
CONNECTION_TIMEOUT_S = 10.0
"""How long a connection may stay open, unless `AdminListener.prolong` extends that. Most answers take milliseconds."""

MOST_BYTES = 128 * 1024
"""The most bytes that are read from a connection: the longest body of a request, and as much for headers."""

_BACKLOG = 128
_ACCEPTS_PER_ITERATION = 4  # connections accepted per iteration of the event loop
_RETRY_S = 0.5
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Errors of a machine without IPv6 for the second address of ``localhost``."""

logger = logging.getLogger("ustreamer.admin")


class AdminListener:
    """Creates a protocol with ``factory`` for every accepted connection. ``tls`` None: without TLS."""

    def __init__(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: PortCertificate | None = None
    ) -> None:
        self.tls = tls
        self._factory = factory
        self._host = host
        self._port = port
        self._sockets: list[socket.socket] = []
        self._opening: dict[asyncio.Task[None], None] = {}  # TLS handshakes, oldest first
        self._connections: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._prolonged: set[asyncio.Transport] = set()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}

    async def open(self) -> None:
        """Listen on every address of the configured host. Raises OSError with the address in its text."""
        try:
            found = await addresses_of(self._host, self._port, socket.AI_PASSIVE)
        except OSError as exc:
            raise OSError(exc.errno, f"{self._host}:{self._port}: {(exc.strerror or str(exc)).lower()}") from exc
        missing: OSError | None = None
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                self._sockets.append(listening_socket(family, address, _BACKLOG))
            except OSError as exc:
                missing = exc
                if exc.errno not in _NOT_HERE:
                    break
        if missing is not None and (missing.errno not in _NOT_HERE or not self._sockets):
            self.close()
            raise OSError(
                missing.errno, f"{self._host}:{self._port}: {os.strerror(missing.errno or 0).lower()}"
            ) from missing
        for each in self._sockets:
            self._listen(each)

    def close(self) -> None:
        """Stop listening, and abort all connections."""
        loop = asyncio.get_running_loop()
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        for task in self._opening:
            task.cancel()
        for transport in list(self._connections):
            self._abort(transport)

    def prolong(self, transport: asyncio.BaseTransport | None, by_s: float) -> None:
        """Let a connection stay open for ``by_s`` seconds more, because its answer takes longer."""
        for each in self._connections:  # uvloop's transports are no `asyncio.Transport`
            if each is transport:
                self._connections[each].cancel()
                self._connections[each] = asyncio.get_running_loop().call_later(by_s, self._abort, each)
                self._prolonged.add(each)

    def _listen(self, listening: socket.socket) -> None:
        self._retries.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTS_PER_ITERATION):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:  # out of descriptors or memory: new clients wait in the kernel's backlog
                logger.error("admin_accept_failed reason=%s retry_in_s=%.1f", exc.strerror, _RETRY_S)
                loop.remove_reader(listening)
                self._retries[listening] = loop.call_later(_RETRY_S, self._listen, listening)
                return
            accepted.setblocking(False)
            if len(self._opening) >= MAX_CONNECTIONS:
                next(iter(self._opening)).cancel()
            task = loop.create_task(self._take(accepted, str(address[0])), name="admin-accept")
            self._opening[task] = None
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        del self._opening[task]

    async def _take(self, accepted: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        patience_s = None if self.tls is None else CONNECTION_TIMEOUT_S
        try:
            tls = None if self.tls is None else await self.tls.context()
            transport, _ = await loop.connect_accepted_socket(
                lambda: _Bounded(self._factory()), accepted, ssl=tls, ssl_handshake_timeout=patience_s
            )
        except BaseException as exc:
            accepted.close()
            if not isinstance(exc, OSError):
                raise
            if isinstance(exc, ssl.SSLCertVerificationError):
                audit(DENIED, who="http", where=address, reason=f"certificate of a client: {exc.verify_message}")
            logger.debug("admin_connection_failed reason=%s", exc)  # the client has left, or the TLS handshake failed
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            self._abort(self._least())
        self._connections[transport] = loop.call_later(CONNECTION_TIMEOUT_S, self._abort, transport)

    def _least(self) -> asyncio.Transport:
        """Return the connection to close for a new one: one that has its answer, else the oldest that is not prolonged."""
        for each in self._connections:
            if each.is_closing():
                return each
        logger.warning("admin_crowded connections=%d consequence=%s", MAX_CONNECTIONS, "the oldest one is closed")
        brief = (each for each in self._connections if each not in self._prolonged)
        return next(brief, next(iter(self._connections)))

    def _abort(self, transport: asyncio.Transport) -> None:
        self._connections.pop(transport).cancel()
        self._prolonged.discard(transport)
        with contextlib.suppress(AttributeError):  # CPython 3.11.2: of a TLS transport that was closed twice
            transport.abort()


class _Bounded(asyncio.Protocol):
    """Passes the first `MOST_BYTES` of a connection to its protocol, and reads nothing after them.

    Otherwise, a parser would keep all bytes after a syntax error, or parse chunks of single bytes for seconds.
    """

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)
        self._room = MOST_BYTES
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._room > 0:
            part = data[: self._room]
            self._room -= len(part)
            self._protocol.data_received(part)
        # Each time: the protocol may resume reading when it has worked off what it has.
        if self._room == 0 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
