"""One TCP or TLS connection to a broker: parses bytes into packets, and says why it ended. It does not know the session.

The class has the methods of an `asyncio.Protocol` but does not derive from it, because this file may be compiled.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Final, cast

import mqtt5

from streamer.transports.link_error import LinkFailure, failure_of
from streamer.transports.mqtt5.frames import KIND, PUBACK, FrameReader
from streamer.transports.tcp_info import ByteCounts, wire_bytes

_UNSENT_BYTES: Final = 64 * 1024
"""The most bytes that this process, and the kernel, hold while TCP cannot send: a message in there is not replaced by a
newer one, is not overtaken, and does not expire."""

# libuv reads 256 000 bytes at a time, and up to 32 times in one iteration of the event loop while each read is full.
_LARGE_READ_BYTES: Final = 128_000
_TCP: Final = socket.IPPROTO_TCP
_QUICKACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)  # 0: only Linux has it
_NOTSENT_LOWAT: Final[int] = getattr(socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else 0)  # named since 3.12


class Connection:
    """The asyncio side of a connection.

    ``on_frames`` gets the packets of one read, and returns whether more is expected from the broker soon; ``on_writable``
    gets the socket's back-pressure; ``on_lost`` is called once, at the end. ``last_read_s`` and ``last_write_s`` are on the
    loop's clock. ``failure`` and ``reason`` say why the connection has ended. ``is_ended_by_broker``: the broker closed or
    reset the connection, or disconnected because of a packet.
    """

    def __init__(
        self,
        max_packet_bytes: int,
        on_frames: Callable[["Connection", list[bytes]], bool],
        on_writable: Callable[[bool], None],
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.failure = LinkFailure.RESET
        self.reason = "closed by the broker"
        self.is_open = False
        self.is_reading = True
        self.is_ended_by_broker = False
        self.last_read_s = self.last_write_s = self.now_s()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._carried: ByteCounts | None = None  # once the connection is lost
        self._reader = FrameReader(max_packet_bytes)
        self._on_frames = on_frames
        self._on_writable = on_writable
        self._on_lost = on_lost

    @property
    def protocol(self) -> asyncio.Protocol:
        """This object as the protocol for `loop.create_connection`."""
        return cast(asyncio.Protocol, self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES)
        if _QUICKACK:
            # A duplicate: uvloop makes a new socket object for each call. The peer sees the end once both are closed.
            self._socket = self._transport.get_extra_info("socket").dup()
            if _NOTSENT_LOWAT:
                with contextlib.suppress(OSError):
                    self._socket.setsockopt(_TCP, _NOTSENT_LOWAT, _UNSENT_BYTES)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Handle the bytes of one read. If they have very many packets, some wait for later iterations of the event loop."""
        if not self.is_open:  # we have disconnected
            return
        self.last_read_s = self.now_s()
        frames, error = self._reader.feed(data)
        is_expecting = not frames or frames[0][0] & KIND != PUBACK or self._reader.has_part
        if is_expecting:
            self._acknowledge_tcp()
        if frames and self._on_frames(self, frames) and not is_expecting:
            self._acknowledge_tcp()
        if error is not None:
            self.disconnect(error.reason, str(error))
        elif self._reader.is_behind or len(data) >= _LARGE_READ_BYTES:
            self._yield_to_loop()

    def _yield_to_loop(self) -> None:
        """Resume reading in the loop's next iteration: meanwhile writes are flushed and timers fire."""
        if self.is_reading and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if self.is_reading and self._reader.is_behind:
            self.data_received(b"")
        if self.is_open and self.is_reading and not self._reader.is_behind and self._transport is not None:
            self._transport.resume_reading()

    @property
    def is_skipping(self) -> bool:
        """Whether a packet that is too large is being skipped, which delays the packets behind it."""
        return self._reader.is_skipping

    @property
    def carried(self) -> ByteCounts | None:
        """The bytes that the connection has carried so far, with TLS; None if that is unknown."""
        return self._carried if self._socket is None else wire_bytes(self._socket)

    def _acknowledge_tcp(self) -> None:
        """Have the kernel send its TCP acknowledgement at once: a broker with Nagle's algorithm waits for it.

        The kernel returns to delayed acknowledgements by itself, so this is done after each read that may have more behind
        it. If no packet is expected, the acknowledgement travels with our next packet.
        """
        if self._socket is not None:
            try:  # noqa: SIM105 - runs for every read, and a context manager costs more than the call
                self._socket.setsockopt(_TCP, _QUICKACK, 1)
            except OSError:
                pass

    def eof_received(self) -> bool:
        """Close the connection, because the broker has ended its stream."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self.is_open and self._reader.is_behind:  # packets from before the end
            self.data_received(b"")
        if self.is_open:
            self.is_ended_by_broker = exc is None or isinstance(exc, (ConnectionResetError, BrokenPipeError))
            if exc is not None:
                self.failure, self.reason = failure_of(exc)
        self.is_open = False
        if self._socket is not None:
            self._carried = wire_bytes(self._socket)
            self._socket.close()
            self._socket = None
        if not self.lost.done():
            self.lost.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._on_writable(False)

    def resume_writing(self) -> None:
        if self.is_open:
            self._on_writable(True)

    def set_reading(self, is_reading: bool) -> None:
        """Stop or resume reading. While reading is stopped, TCP applies back-pressure to the broker."""
        if self.is_open and self._transport is not None and is_reading is not self.is_reading:
            self.is_reading = is_reading
            self.last_read_s = self.now_s()
            if is_reading and self._reader.is_behind:
                self._loop.call_soon(self._resume_reading)
            elif is_reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Write data, unless the connection is closing."""
        if self.is_open and self._transport is not None:
            self.last_write_s = self.now_s()
            self._transport.write(data)

    def disconnect(self, code: mqtt5.DisconnectReasonCode, reason: str, session_expiry_s: int | None = None) -> None:
        """Send DISCONNECT with a reason, and close once it is written. ``session_expiry_s``: None does not change it."""
        self.write(mqtt5.DisconnectPacket(reason_code=code, session_expiry_interval=session_expiry_s).write())
        self.close(reason, LinkFailure.PROTOCOL)

    def disconnect_gently(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        """Send DISCONNECT with a reason, and let the broker close. Further packets of the broker are discarded.

        Closing a TCP connection with unread bytes resets it, and acknowledgements before the DISCONNECT can be lost.
        """
        if self.is_open and self._transport is not None:
            self.write(mqtt5.DisconnectPacket(reason_code=code).write())
            if self._transport.can_write_eof():  # not with TLS; rumqttd closes only after this
                self._transport.write_eof()
            self.is_open = False
            self.failure, self.reason = LinkFailure.PROTOCOL, reason

    def close(self, reason: str, failure: LinkFailure) -> None:
        """Stop reading, and close once everything is written."""
        if self.is_open and self._transport is not None:
            self.is_open = False
            self.failure, self.reason = failure, reason
            self._transport.close()

    def abort(self, reason: str, failure: LinkFailure = LinkFailure.TIMEOUT) -> None:
        """Close at once, because the broker does not answer."""
        if self._transport is not None:
            if self.is_open:
                self.failure, self.reason = failure, reason
            self.is_open = False
            self._transport.abort()

    async def wait_lost(self, wait_s: float) -> None:
        """Wait until the connection is closed; abort it after ``wait_s``."""
        await asyncio.wait((self.lost,), timeout=wait_s)
        if not self.lost.done():
            self.abort(self.reason)
            await asyncio.wait((self.lost,), timeout=wait_s)
