"""The MQTT 5 transport over WebSocket: before a real broker, and before servers that do not do what they should."""

import asyncio
import base64
import hashlib
import logging
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.mqtt5.probe import try_broker
from streamer.transports.probe import Answer, Verdict
from tests.brokers import Mosquitto, any_broker
from tests.certificates import write_certificates
from tests.e2e.mqtt_connection import exchanged
from tests.http_proxy import HttpProxyServer
from tests.mqtt_peer import Endpoint
from tests.ports import HOST, free_port
from tests.waiting import until
from tests.websocket_server import WebSocketServer

SECRET = "s3cret"


def server_tls(folder: Path) -> ssl.SSLContext:
    write_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


@pytest.mark.parametrize("pieces", [(), (1, 2, 3, 5, 100_000), (7,)], ids=["by read", "mixed", "small"])
async def test_messages_cross_whatever_the_frames_are(pieces: tuple[int, ...]) -> None:
    with any_broker() as broker:
        async with WebSocketServer(broker.port, pieces=pieces) as server:
            await exchanged(Endpoint(server.url), Endpoint(broker.url, "veh1"))


async def test_messages_cross_tls_and_a_proxy(tmp_path: Path) -> None:
    tls = server_tls(tmp_path)
    with any_broker() as broker:
        async with WebSocketServer(broker.port, tls) as server, HttpProxyServer() as proxy:
            endpoint = Endpoint(server.url, proxy=proxy.url, tls={"ca_file": tmp_path / "ca.pem"})
            await exchanged(endpoint, Endpoint(broker.url, "veh1"))
    assert proxy.heads[0].startswith(f"CONNECT {HOST}:{server.port} ".encode())


@pytest.mark.mosquitto
async def test_messages_cross_the_listener_of_mosquitto() -> None:
    port = free_port()
    broker = Mosquitto(extra=(f"listener {port} {HOST}", "protocol websockets"))
    try:
        broker.start()  # it needs a listener without WebSocket, too
    except RuntimeError as exc:
        broker.close()
        if "Websockets support not available" not in str(exc):
            raise
        pytest.skip("this mosquitto was built without WebSocket")
    with broker:
        await exchanged(Endpoint(f"ws://{HOST}:{port}"), Endpoint(broker.url, "veh1"))


async def test_an_orderly_end_of_the_broker_is_told_from_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with any_broker() as broker:
        async with WebSocketServer(broker.port) as server, Endpoint(server.url).running() as endpoint:
            await endpoint.up()
            broker.stop()
            await until(lambda: "text=closed by the broker (WebSocket 1000 (OK))" in caplog.text, "the reason")


async def tried(endpoint: Endpoint) -> Answer:
    return await try_broker(endpoint.transport.options, endpoint.transport.options.brokers[0])


async def test_the_probe_and_the_paths_of_a_server(caplog: pytest.LogCaptureFixture) -> None:
    with any_broker() as broker:
        async with WebSocketServer(broker.port) as server:
            where = f"{HOST}:{server.port}"
            found = await tried(Endpoint(server.url))
            assert found == Answer(Verdict.OK, f"{where}: the broker accepts a client without credentials")
            default = await tried(Endpoint(f"ws://{where}"))
            assert default.verdict is Verdict.OK
            missing = await tried(Endpoint(f"ws://{where}/nothing"))
            text = f"{where}: WebSocket: the answer is '404 Not Found'; is the path in the URL right?"
            assert missing == Answer(Verdict.PROBLEM, text)
            other = await tried(Endpoint(f"ws://{where}/chat"))
            assert other.verdict is Verdict.PROBLEM
            assert "not for the subprotocol mqtt" in other.text
            async with Endpoint(f"ws://{where}/nothing").running():
                await until(lambda: "link_down" in caplog.text, "the end of the attempt")
            assert "text=WebSocket: the answer is '404 Not Found'" in caplog.text


async def test_a_password_is_not_in_the_log_at_level_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "password").write_text(SECRET)
    with any_broker() as broker:
        async with WebSocketServer(broker.port) as server:
            who: dict[str, Any] = {"username": "gateway", "password_file": tmp_path / "password"}
            async with Endpoint(server.url, **who).running() as endpoint:
                await endpoint.up()
    assert SECRET not in caplog.text
    assert "7333637265" not in caplog.text.replace(" ", "")


# scripted servers

CONNACK = mqtt5.ConnAckPacket().write()


class Peer:
    """The server's side of a connection whose handshake is done. The client's CONNECT is still to come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def frame(self, opcode: int, data: bytes, fin: bool = True) -> None:
        self.writer.write(bytes([opcode | (0x80 if fin else 0), len(data)]) + data)

    async def closed(self) -> bytes:
        """What the client still sends, up to the end."""
        async with asyncio.timeout(15):
            data = b""
            while more := await self.reader.read(65_536):
                data += more
            return data


@asynccontextmanager
async def scripted(answer: bytes | None = None) -> AsyncIterator[tuple[str, "asyncio.Queue[Peer]"]]:
    """A server: its URL, and what connects. ``answer``: instead of accepting the handshake."""
    peers: asyncio.Queue[Peer] = asyncio.Queue()
    writers = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        assert fields[b"Sec-WebSocket-Protocol"] == b"mqtt"
        digest = hashlib.sha1(fields[b"Sec-WebSocket-Key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        granted = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        granted += b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        writer.write(granted if answer is None else answer)
        if answer is None:
            peers.put_nowait(Peer(reader, writer))
        elif answer:
            writer.close()

    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        yield f"ws://{HOST}:{server.sockets[0].getsockname()[1]}", peers
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


NO_WEBSOCKET = [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "the answer is '200 OK'", id="a page"),
    pytest.param(
        b"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "the answer is '301 Moved'", id="elsewhere"
    ),
    pytest.param(b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n", "WebSocket: ", id="half a handshake"),
    pytest.param(b"HTTP/1.1 101 Yes\r\n" + b"X: y\r\n" * 1000, "WebSocket: ", id="endless headers"),
    pytest.param(b"HTTP/1.1 101 " + b"y" * 100_000, "WebSocket: ", id="an endless line"),
    pytest.param(CONNACK, "WebSocket: ", id="MQTT"),
    pytest.param(b"", "no connection within 0.5 s", id="silence"),
]


@pytest.mark.parametrize(("answer", "expected"), NO_WEBSOCKET)
async def test_what_is_no_websocket_is_told(answer: bytes, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(answer) as (url, _), Endpoint(url, connect_timeout_s=0.5).running() as endpoint:
        await until(lambda: "link_down" in caplog.text, "the end of the attempt")
        assert endpoint.states == []
    line = next(record.message for record in caplog.records if "link_down" in record.message)
    assert expected in line
    assert len(line) < 400


TOO_MUCH = bytes([0x82, 127]) + struct.pack(">Q", 2**62)
BAD_FRAMES = [
    pytest.param(TOO_MUCH + 1000 * b"x", "exceeds limit", id="a frame of 2^62 bytes"),
    pytest.param(b"\x81\x02hi", "a frame of text", id="text"),
    pytest.param(b"\x82\x82abcdhi", "incorrect masking", id="masked"),
    pytest.param(b"\x83\x00", "invalid opcode", id="an unknown kind"),
    pytest.param(b"\x80\x00", "unexpected continuation", id="a continuation of nothing"),
    pytest.param(b"\x88\x02\x03\xf3", "closed by the broker (WebSocket 1011 (internal error))", id="a close"),
    pytest.param(b"\x88\x00", "closed by the broker (WebSocket 1005", id="a close without a reason"),
]


@pytest.mark.parametrize(("frame", "expected"), BAD_FRAMES)
async def test_a_frame_that_must_not_come_ends_the_connection(
    frame: bytes, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted() as (url, peers), Endpoint(url).running() as endpoint:
        peer = await peers.get()
        peer.frame(0x2, CONNACK)
        await endpoint.up()
        peer.writer.write(frame)
        await peer.closed()
        await until(lambda: "link_down" in caplog.text, "DOWN")
    line = next(record.message for record in caplog.records if "link_down" in record.message)
    assert expected in line


async def test_what_comes_before_a_bad_frame_is_used_and_a_ping_is_answered() -> None:
    async with scripted() as (url, peers), Endpoint(url).running() as endpoint:
        peer = await peers.get()
        peer.frame(0x2, CONNACK[:1], fin=False)  # a message in pieces, with a ping in between
        peer.frame(0x9, b"are you there")
        peer.frame(0x0, CONNACK[1:])
        await endpoint.up()
        peer.writer.write(b"\x81\x00")
        said = await peer.closed()
    assert said.count(b"\x8a\x8d") == 1  # a masked pong with 13 bytes


async def test_a_message_of_endless_pieces_is_a_stream() -> None:
    """The limit is for a frame: the pieces are given on as they come."""
    async with scripted() as (url, peers), Endpoint(url, max_packet_bytes=1024).running() as endpoint:
        peer = await peers.get()
        peer.frame(0x2, CONNACK, fin=False)
        pong = mqtt5.PingRespPacket().write()
        for _ in range(300):
            peer.writer.write(b"\x00\x7e" + struct.pack(">H", 10_000) + 5000 * pong)
        await peer.writer.drain()
        await until(lambda: endpoint.transport._link.traffic.ping_answers == 300 * 5000, "the pieces")
        assert endpoint.is_up


async def test_a_server_that_sends_pings_and_reads_nothing_is_left(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted() as (url, peers), Endpoint(url, keep_alive_s=60).running() as endpoint:
        peer = await peers.get()
        peer.frame(0x2, CONNACK)
        await endpoint.up()
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        ping = b"\x89\x7d" + 125 * b"x"
        while endpoint.is_up:
            peer.writer.write(1000 * ping)
            await asyncio.sleep(0)
            if peer.writer.transport.is_closing():
                break
        await until(lambda: "does not read the answers to its pings" in caplog.text, "the end")
