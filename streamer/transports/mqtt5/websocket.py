"""Carries the bytes of an MQTT connection in WebSocket frames (MQTT 5, 6). The protocol itself is that of the library.

A link stands between the event loop's transport and a `Connection`: to the first it is the protocol, to the second the
transport. Packets and frames need not agree: the connection gets the bytes of all frames of one read at once. What is kept
of a frame that has not arrived completely is bounded by the limit for frames.
"""

import asyncio
import logging
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5.brokers import Broker, WebSocketError
from streamer.transports.mqtt5.connection import Connection

_MQTT = Subprotocol("mqtt")
_FRAME_SLACK_BYTES = 1024 * 1024  # a frame may hold the end of one packet, and others
_UNREAD_BYTES = 8 * 1024 * 1024  # of answers to pings; how many packets wait, the connection decides by itself
_PIECE_BYTES = 4096  # as many as 2048 frames
_FRAMES_PER_TURN = 1000
"""A read can have a hundred times as many, which would block the loop for a second; see `PACKETS_PER_ITERATION`."""

_HEAD_BYTES = 16 * 1024
"""The longest head of an HTTP answer. The body of a refusal is not read."""

_SAID = 80  # characters of the broker's own words in an error

# At level debug the library writes what is in the frames, so also the password of a CONNECT.
_LOGGER = logging.getLogger("websockets.mqtt")
_LOGGER.setLevel(logging.INFO)


class WebSocketLink(asyncio.Protocol):
    """One WebSocket connection. Once it is open, ``connection`` is made, and ``opened`` completes.

    ``opened`` may raise `WebSocketError`.
    """

    def __init__(self, connection: Connection, broker: Broker, max_packet_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())  # also if nobody waits
        self._connection = connection
        most_bytes = max_packet_bytes + _FRAME_SLACK_BYTES
        self._frames = ClientProtocol(
            parse_uri(f"{broker.scheme}://{broker.where}{broker.path}"),
            subprotocols=[_MQTT],
            max_size=(None, most_bytes),  # a message is a stream of frames, and may be endless
            logger=_LOGGER,
        )
        self._link: asyncio.Transport | None = None
        self._unread = b""  # the rest of a read; meanwhile the transport does not read
        self._is_paused = False  # by the connection
        self._is_reading_soon = False
        self._is_full = False  # the transport's buffer: the broker does not read, or slowly
        self._answer_bytes = 0  # written into a full buffer: answers to pings, above all

    # -- to the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link = cast(asyncio.Transport, transport)
        self._frames.send_request(self._frames.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Handle the frames of one read. If they are very many, some wait for later iterations of the event loop."""
        self._unread += data
        self._read()

    def _read(self) -> None:
        if not self.opened.done() and not self._has_head():
            return
        frames = 0
        payloads: list[bytes | bytearray | memoryview] = []
        ending: str | None = None
        data, at = self._unread, 0
        while at < len(data) and frames < _FRAMES_PER_TURN and ending is None:
            self._frames.receive_data(data[at : at + _PIECE_BYTES])
            at += _PIECE_BYTES
            for event in self._frames.events_received():
                frames += 1
                if isinstance(event, Response):
                    self._on_response()
                elif isinstance(event, Frame):
                    if event.opcode in (Opcode.BINARY, Opcode.CONT):
                        payloads.append(event.data)
                    elif event.opcode is Opcode.TEXT:
                        ending = "WebSocket: a frame of text instead of MQTT [MQTT-6.0.0-1]"
                        break
        self._unread = data[at:]
        self._read_rest_soon()
        if not self.opened.done() and (error := self._frames.handshake_exc) is not None:
            self._refuse(f"WebSocket: {_quoted(str(error))}")
        answer_bytes = self._flush()
        self._answer_bytes = self._answer_bytes + answer_bytes if self._is_full else 0
        if payloads:
            self._connection.data_received(b"".join(payloads))
        if (error := self._frames.parser_exc) is not None:
            ending = f"WebSocket: {_quoted(str(error))}"
        elif self._answer_bytes > _UNREAD_BYTES:
            ending = "the broker does not read the answers to its pings"
        if ending is not None:
            self._unread = b""
            self._connection.close(ending, LinkFailure.PROTOCOL)
        elif self._frames.close_expected():  # by the broker: it has sent a Close frame
            if (close := self._frames.close_rcvd) is not None and self._connection.is_open:
                self._connection.failure = LinkFailure.BROKER
                self._connection.reason = f"closed by the broker (WebSocket {_quoted(str(close))})"
            if self._link is not None:
                self._link.close()

    def _has_head(self) -> bool:
        """Return whether the library may read the answer to our request: it is no refusal, whose body would be read."""
        head, end, _ = self._unread.partition(b"\r\n\r\n")
        if not self._unread.startswith(b"HTTP/1."):
            return True  # the library says what is wrong with it
        if end:
            _, _, status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            if status.startswith("101"):
                return True
            self._refuse(f"WebSocket: the answer is {_quoted(status)[:_SAID]!r}; is the path in the URL right?")
        elif len(self._unread) > _HEAD_BYTES:
            self._refuse(f"WebSocket: the answer has a head of more than {_HEAD_BYTES} bytes")
        return False

    def _read_rest_soon(self) -> None:
        """Have the rest of a read handled in the loop's next iteration, unless the connection does not read."""
        if self._link is None or self._is_paused or self._is_reading_soon:
            return
        if self._unread:
            self._link.pause_reading()
            self._is_reading_soon = True
            self._loop.call_soon(self._read_rest)

    def _read_rest(self) -> None:
        self._is_reading_soon = False
        if self._link is None or self._is_paused:
            return
        self._read()
        if not self._unread and self._link is not None and not self._is_paused:
            self._link.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._link = None
        while self._unread and self.opened.done():  # frames from before the end
            self._read()
        if not self.opened.done():
            self._refuse("WebSocket: the connection ended without an answer")
        elif not self.opened.cancelled() and self.opened.exception() is None:
            self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._is_full = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._connection.resume_writing()

    def _on_response(self) -> None:
        error = self._frames.handshake_exc
        if error is None and self._frames.subprotocol != _MQTT:  # MQTT-6.0.0-4
            self._refuse(
                "WebSocket: the answer is not for the subprotocol mqtt [MQTT-6.0.0-4]; is the path in the URL right?"
            )
        elif error is None and not self.opened.done():  # the answer may come when nobody waits any more
            self._connection.connection_made(cast(asyncio.BaseTransport, self))
            self.opened.set_result(None)

    def _refuse(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(WebSocketError(reason))
        self._unread = b""
        self.abort()

    def _flush(self) -> int:
        """Write what the library has to send, and return its bytes."""
        size = 0
        if self._link is not None:
            for data in self._frames.data_to_send():
                if data:  # the empty one stands for the end, which the caller of `close` brings about
                    self._link.write(data)
                    size += len(data)
        return size

    # -- to the connection

    def write(self, data: bytes) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_binary(data)
            self._flush()

    def close(self) -> None:
        if self._link is not None:
            if self._frames.state is State.OPEN:
                self._frames.send_close(1000)
                self._flush()
            self._link.close()

    def abort(self) -> None:
        if self._link is not None:
            self._link.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._link is not None:
            self._link.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._link is None else self._link.get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._link is not None:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._unread:
            self._read_rest_soon()
        elif self._link is not None:
            self._link.resume_reading()


def _quoted(said: str) -> str:
    """Return what the broker said, or an error about it, as short printable ASCII."""
    return ascii(said[:_SAID])[1:-1]
