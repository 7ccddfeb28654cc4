"""The WebSocket of a connection towards a broker that is slow, silent, or says odd things. No network."""

import asyncio
import socket
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import pytest

from streamer.transports.mqtt5 import websocket
from streamer.transports.mqtt5.brokers import WebSocketError, read_broker
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.websocket import WebSocketLink

PUBACK = b"\x40\x02\x00\x01"
PINGS = (b"\x89\x7d" + bytes(125)) * 100
MIB = 1024 * 1024


class Transport(asyncio.Transport):
    """What is written stays in the buffer, as if the broker did not read."""

    def __init__(self, there: asyncio.Protocol) -> None:
        super().__init__()
        self.request = b""
        self.buffered = 0
        self.is_closed = False
        self.has_room = True
        self._there = there
        self._socket = socket.socket()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.request = self.request or bytes(data)
        was_full = self.buffered > MIB
        self.buffered += len(data)
        if self.buffered > MIB and not was_full:
            self._there.pause_writing()

    def read_by_the_broker(self) -> None:
        self.buffered = 0
        self._there.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.has_room = False

    def resume_reading(self) -> None:
        self.has_room = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def close(self) -> None:
        self._socket.close()
        self.is_closed = True

    abort = close


class Peer:
    """A broker on the other side of a link."""

    loop: asyncio.AbstractEventLoop

    def turn(self) -> None:
        """Run one iteration of the event loop."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.connection = Connection(MIB, self._take, lambda _: None, lambda _: None)
        self.link = WebSocketLink(self.connection, read_broker("ws://broker.example/mqtt"), MIB)
        self.transport = Transport(self.link)
        self.link.connection_made(self.transport)

    def _take(self, _: Connection, read: list[bytes]) -> bool:
        self.frames += read
        return False

    def answer(self, upgrade: str = "websocket") -> None:
        key = self.transport.request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        accept = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        head = f"HTTP/1.1 101 X\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mqtt\r\n"
        self.link.data_received(f"{head}Sec-WebSocket-Accept: {accept}\r\n\r\n".encode("latin-1"))

    def send(self, opcode: int, data: bytes) -> None:
        self.link.data_received(bytes((0x80 | opcode, len(data))) + data)


@pytest.fixture
def peer() -> Iterator[Peer]:
    loop = asyncio.new_event_loop()

    async def make() -> Peer:
        return Peer()

    peer = loop.run_until_complete(make())
    peer.loop = loop
    yield peer
    peer.transport.close()
    peer.link.connection_lost(None)
    loop.close()


def test_a_broker_that_reads_large_messages_slowly_is_not_taken_for_one_that_floods_us_with_pings(peer: Peer) -> None:
    peer.answer()
    peer.connection.write(bytes(16 * MIB))
    peer.send(2, PUBACK)
    assert (peer.frames, peer.connection.is_open) == ([PUBACK], True)
    peer.link.data_received(PINGS)
    assert peer.connection.is_open


def test_a_broker_that_does_not_read_the_answers_to_its_pings_is_left(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_UNREAD_BYTES", 3 * len(PINGS))
    peer.answer()
    peer.connection.write(bytes(2 * MIB))
    peer.link.data_received(PINGS)
    peer.link.data_received(PINGS)
    peer.transport.read_by_the_broker()
    peer.link.data_received(PINGS)
    assert peer.connection.is_open
    peer.connection.write(bytes(2 * MIB))
    for _ in range(3):
        peer.link.data_received(PINGS)
    assert peer.connection.reason == "the broker does not read the answers to its pings"


def test_the_end_of_a_link_whose_answer_nobody_waits_for_any_more_is_no_error(peer: Peer) -> None:
    peer.link.opened.cancel()
    peer.link.abort()
    peer.link.connection_lost(None)  # raises nothing
    assert not peer.connection.is_open


def test_an_answer_that_comes_when_nobody_waits_any_more_opens_no_connection(peer: Peer) -> None:
    peer.link.opened.cancel()
    peer.answer()
    assert not peer.connection.is_open


def test_what_a_broker_says_at_the_end_cannot_forge_lines_of_the_log(peer: Peer) -> None:
    peer.answer()
    peer.send(8, b"\x03\xe8a\n2026 ERROR \x1b[2J")
    assert peer.connection.reason == r"closed by the broker (WebSocket 1000 (OK) a\n2026 ERROR \x1b[2J)"


def test_what_a_broker_says_instead_of_an_answer_is_quoted(peer: Peer) -> None:
    peer.answer(upgrade="\xff" * 4000)
    error = peer.link.opened.exception()
    assert isinstance(error, WebSocketError)
    assert str(error).isascii()
    assert len(str(error)) < 500


FRAME = bytes((0x82, len(PUBACK))) + PUBACK


def test_of_very_many_frames_some_wait_for_later_iterations_of_the_loop(peer: Peer) -> None:
    peer.answer()
    peer.link.data_received(FRAME * 5000)
    turns = [len(peer.frames)]
    while not peer.transport.has_room:
        peer.turn()
        turns.append(len(peer.frames))
    steps = [after - before for before, after in zip([0, *turns], turns, strict=False)]
    assert turns[-1] == 5000
    assert max(steps) <= websocket._FRAMES_PER_TURN + websocket._PIECE_BYTES // len(FRAME) + 1


def test_frames_that_wait_are_handled_before_the_end_of_the_connection(peer: Peer) -> None:
    peer.answer()
    peer.link.data_received(FRAME * 5000)
    assert len(peer.frames) < 5000
    peer.link.connection_lost(None)
    assert len(peer.frames) == 5000


@pytest.mark.parametrize("pieces", [1, 7])
def test_the_body_of_a_refusal_is_not_waited_for(peer: Peer, pieces: int) -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000)
    for at in range(0, len(answer), len(answer) // pieces + 1):
        peer.link.data_received(answer[at : at + len(answer) // pieces + 1])
    error = peer.link.opened.exception()
    assert str(error) == "WebSocket: the answer is '404 Not Found'; is the path in the URL right?"
    assert peer.transport.is_closed


def test_the_head_of_an_answer_is_bounded(peer: Peer) -> None:
    peer.link.data_received(b"HTTP/1.1 101 X\r\nA: " + bytes(20 * 1024))
    assert "a head of more than 16384 bytes" in str(peer.link.opened.exception())
