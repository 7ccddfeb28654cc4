"""The proxy does to a connection what it says, and the tap sees what passed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mqtt5
import pytest

from tests.fault.mqtt_tap import MqttTap
from tests.fault.proxy import BACK, FORWARD, Direction, Proxy
from tests.ports import HOST
from tests.waiting import until

SHORT_S = 0.15
SOON_S = 5.0


class Recorder:
    def __init__(self) -> None:
        self.bytes = {FORWARD: b"", BACK: b""}

    def opened(self, link: int) -> None:
        pass

    def passed(self, link: int, direction: Direction, data: bytes) -> None:
        self.bytes[direction] += data


class Echo:
    """A server that says everything twice. ``chunks`` is what its reads brought."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.ended: list[Exception | None] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.chunks.append(data)
                writer.write(data * 2)
                await writer.drain()
            self.ended.append(None)
        except OSError as exc:
            self.ended.append(exc)
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Echo"]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Echo, Proxy, Recorder, asyncio.StreamReader, asyncio.StreamWriter]]:
    recorder = Recorder()
    async with Echo().running() as echo, Proxy(echo.port, recorder) as proxy:
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        try:
            yield echo, proxy, recorder, reader, writer
        finally:
            writer.close()


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(SOON_S):
        return await reader.readexactly(count)


async def test_without_a_fault_everything_passes() -> None:
    async with proxied() as (_, proxy, recorder, reader, writer):
        writer.write(b"hello")
        assert await read(reader, 10) == b"hellohello"
        assert recorder.bytes == {FORWARD: b"hello", BACK: b"hellohello"}
        assert proxy.links == 1


@pytest.mark.parametrize("direction", [FORWARD, BACK])
async def test_stall_holds_one_direction_and_heals_without_a_gap(direction: Direction) -> None:
    async with proxied() as (echo, proxy, recorder, reader, writer):
        writer.write(b"a")
        assert await read(reader, 2) == b"aa"
        proxy.stall([direction])
        writer.write(b"b")
        if direction is BACK:
            await until(lambda: recorder.bytes[FORWARD] == b"ab", within_s=SOON_S)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), SHORT_S)
        assert len(echo.chunks) == (1 if direction is FORWARD else 2)
        assert echo.ended == []
        proxy.heal_flow()
        assert await read(reader, 2) == b"bb"


async def test_stalled_proxy_accepts_connections_that_lead_nowhere() -> None:
    async with proxied() as (_, proxy, _recorder, _reader, _writer):
        proxy.stall()
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), SHORT_S)
        proxy.heal_flow()
        assert await read(reader, 2) == b"xx"
        writer.close()


async def test_cut_is_an_end_of_file_on_both_sides() -> None:
    async with proxied() as (echo, proxy, _, reader, writer):
        writer.write(b"a")
        assert await read(reader, 2) == b"aa"
        cutting = asyncio.create_task(proxy.cut())
        assert await asyncio.wait_for(reader.read(1), SOON_S) == b""
        writer.close()
        await cutting
        await until(lambda: echo.ended == [None], within_s=SOON_S)


async def test_reset_is_a_reset_on_both_sides() -> None:
    async with proxied() as (echo, proxy, _, reader, writer):
        writer.write(b"a")
        assert await read(reader, 2) == b"aa"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), SOON_S)
        await until(lambda: len(echo.ended) == 1, within_s=SOON_S)
        assert isinstance(echo.ended[0], ConnectionResetError)


async def test_connections_that_are_opened_later_are_shortened() -> None:
    async with proxied() as (_, proxy, _recorder, reader, writer):
        writer.write(b"a")
        assert await read(reader, 2) == b"aa"
        proxy.shorten(SHORT_S)
        short_reader, short = await asyncio.open_connection(HOST, proxy.port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(short_reader.read(1), SOON_S)
        short.close()
        writer.write(b"b")  # what was open before stays open
        assert await read(reader, 2) == b"bb"


async def test_refuse_and_heal() -> None:
    async with proxied() as (_, proxy, _recorder, reader, writer):
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, proxy.port)
        writer.write(b"a")  # what is open stays open
        assert await read(reader, 2) == b"aa"
        await proxy.heal()
        again_reader, again = await asyncio.open_connection(HOST, proxy.port)
        again.write(b"b")
        assert await read(again_reader, 2) == b"bb"
        again.close()


async def test_nobody_behind_the_proxy_is_a_reset() -> None:
    async with Echo().running() as echo:
        port = echo.port
    async with Proxy(port):
        pass
    async with Proxy(port) as proxy:
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readexactly(1), SOON_S)
        writer.close()


async def test_slow_keeps_to_its_rate() -> None:
    waits_s: list[float] = []

    async def sleep(seconds: float) -> None:
        waits_s.append(seconds)

    async with Echo().running() as echo, Proxy(echo.port, sleep=sleep) as proxy:
        proxy.slow(10_000)
        reader, writer = await asyncio.open_connection(HOST, proxy.port)
        writer.write(bytes(3000))
        writer.write_eof()
        async with asyncio.timeout(SOON_S):
            assert len(await reader.read(-1)) == 6000
        writer.close()
    assert sum(waits_s) == pytest.approx(0.9)  # 3000 bytes there, 6000 back
    assert max(waits_s) <= 0.05


async def test_delay_keeps_the_order_and_what_comes_before_the_end() -> None:
    async with proxied() as (echo, proxy, recorder, reader, writer):
        proxy.delay(SHORT_S)
        for number in range(10):
            writer.write(b"%d" % number)
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), SHORT_S / 3)
        assert recorder.bytes[FORWARD] == b""
        writer.write_eof()
        async with asyncio.timeout(SOON_S):
            answer = await reader.read()
        assert len(answer) == 20
        assert b"".join(echo.chunks) == recorder.bytes[FORWARD] == b"0123456789"


@pytest.mark.parametrize("direction", [FORWARD, BACK])
async def test_injected_bytes_come_from_the_other_side(direction: Direction) -> None:
    async with proxied() as (echo, proxy, _, reader, writer):
        writer.write(b"a")
        assert await read(reader, 2) == b"aa"
        proxy.inject(direction, b"x")
        assert await read(reader, 2 if direction is FORWARD else 1) == (b"xx" if direction is FORWARD else b"x")
        assert b"".join(echo.chunks) == (b"ax" if direction is FORWARD else b"a")


async def test_fragments_are_single_bytes() -> None:
    async with proxied() as (echo, proxy, _, reader, writer):
        proxy.fragment()
        writer.write(b"0123456789" * 50)
        assert len(await read(reader, 1000)) == 1000
        assert b"".join(echo.chunks) == b"0123456789" * 50
        assert len(echo.chunks) > 100


def test_tap_tells_confirmed_from_unconfirmed() -> None:
    tap = MqttTap()
    tap.opened(1)
    ids = [bytes([n]) * 16 for n in range(3)]
    for number, message_id in enumerate(ids, 1):
        packet = mqtt5.PublishPacket(
            topic="t", payload=b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=number, user_properties=[("1", message_id.hex())]
        ).write()
        tap.passed(1, FORWARD, packet[:7])
        tap.passed(1, FORWARD, packet[7:])
    tap.passed(
        1,
        BACK,
        mqtt5.PubAckPacket(2).write() + mqtt5.PubAckPacket(3, reason_code=mqtt5.PubAckReasonCode.QUOTA_EXCEEDED).write(),
    )
    assert tap.sent == ids
    assert tap.most_unconfirmed == 3
    assert tap.confirmed == {ids[1]}
    assert tap.acknowledged == set()
    tap.opened(2)
    tap.passed(1, BACK, mqtt5.PubAckPacket(1).write())  # of the connection before
    assert tap.confirmed == {ids[1]}


def test_tap_knows_what_the_daemon_acknowledges() -> None:
    tap = MqttTap()
    tap.opened(1)
    message_id = bytes(range(16))
    packet = mqtt5.PublishPacket(
        topic="t", payload=b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=9, user_properties=[("1", message_id.hex())]
    )
    tap.passed(1, BACK, packet.write())
    assert tap.acknowledged == set()
    tap.passed(1, FORWARD, mqtt5.PubAckPacket(9).write())
    assert tap.acknowledged == {message_id}
