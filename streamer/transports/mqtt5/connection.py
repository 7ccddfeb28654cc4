"""One TCP or TLS connection to a broker: bytes in, whole packets out, and why it ended. It knows no session."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import mqtt5

from streamer.transports.mqtt5.frames import FrameReader

_HIGH_WATER_BYTES = 1024 * 1024
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it


class Connection(asyncio.Protocol):
    """The asyncio side of a connection.

    ``on_frames`` gets what one read brought, ``on_writable`` hears of the socket's back-pressure, ``on_lost`` of the
    end, once. ``last_read_s`` and ``last_write_s`` are on the loop's clock.
    """

    def __init__(
        self,
        max_packet_bytes: int,
        on_frames: Callable[["Connection", list[memoryview]], None],
        on_writable: Callable[[bool], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time
        self.lost: asyncio.Future[None] = loop.create_future()
        self.reason = "closed by the broker"
        self.is_open = False
        self.is_reading = True
        self.last_read_s = self.last_write_s = self.now_s()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._reader = FrameReader(max_packet_bytes)
        self._on_frames = on_frames
        self._on_writable = on_writable
        self._on_lost = on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of a class of their own
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        if _QUICKACK is not None:
            self._socket = self._transport.get_extra_info("socket")
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if not self.is_open:  # we said goodbye already
            return
        self._acknowledge_tcp()
        self.last_read_s = self.now_s()
        frames, error = self._reader.feed(data)
        if frames:
            self._on_frames(self, frames)
        if error is not None:
            self.disconnect(error.reason, str(error))

    @property
    def is_leaving_out(self) -> bool:
        """Whether a packet passes by that is too large: what is behind it comes late."""
        return self._reader.is_leaving_out

    def _acknowledge_tcp(self) -> None:
        """Have the kernel not delay its TCP acknowledgement: rumqttd, with Nagle, sends the next packet only after it.

        The kernel falls back to delaying by itself, so it has to be told after each read.
        """
        if self._socket is not None and _QUICKACK is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_open and exc is not None:
            self.reason = f"{type(exc).__name__}: {exc}"
        self.is_open = False
        self._transport = self._socket = None
        if not self.lost.done():
            self.lost.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._on_writable(False)

    def resume_writing(self) -> None:
        if self.is_open:
            self._on_writable(True)

    def read_on(self, is_reading: bool) -> None:
        """Stop or go on reading: what the other side sends meanwhile stays with it (TCP)."""
        if self.is_open and self._transport is not None and is_reading is not self.is_reading:
            self.is_reading = is_reading
            self.last_read_s = self.now_s()
            if is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Write, unless the connection is closing."""
        if self.is_open and self._transport is not None:
            self.last_write_s = self.now_s()
            self._transport.write(data)

    def disconnect(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        """Say goodbye with a reason, and close once that is written."""
        self.write(mqtt5.DisconnectPacket(reason_code=code).write())
        self.close(reason)

    def take_leave(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        """Say goodbye with a reason, and let the other side close; what it still sends is thrown away.

        To close with unread bytes resets a TCP connection, and the acknowledgements before the goodbye can be lost.
        """
        if self.is_open and self._transport is not None:
            self.write(mqtt5.DisconnectPacket(reason_code=code).write())
            if self._transport.can_write_eof():  # not with TLS; rumqttd closes after this only
                self._transport.write_eof()
            self.is_open = False
            self.reason = reason

    def close(self, reason: str) -> None:
        """Close once everything is written. Nothing more is read."""
        if self.is_open and self._transport is not None:
            self.is_open = False
            self.reason = reason
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once: the other side does not answer."""
        if self._transport is not None:
            if self.is_open:
                self.reason = reason
            self.is_open = False
            self._transport.abort()

    async def wait_lost(self, wait_s: float) -> None:
        """Wait until the connection is closed, and do not be kept waiting: abort it after ``wait_s``."""
        await asyncio.wait((self.lost,), timeout=wait_s)
        if not self.lost.done():
            self.abort(self.reason)
            await asyncio.wait((self.lost,), timeout=wait_s)
