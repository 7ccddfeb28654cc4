"""The other side of an MQTT connection under a test's control, and our side with everything it reports written down."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import mqtt5
import pytest

from streamer.transports.base import LinkState, MessageParcel, SendResult, TransportContext, Unconfirmed
from streamer.transports.errors import SendError
from streamer.transports.mqtt5.keep_alive import KeepAlive
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.transport import Mqtt5Transport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import everything_at
from tests.constants import with_constants
from tests.ports import HOST
from tests.transport_events import EventLog
from tests.waiting import until

DEADLINE_S = 15.0
P = TypeVar("P")


@asynccontextmanager
async def meanwhile(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run ``work`` as a task, until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class KeepAliveChecks:
    """Waits until the timers of our connections have looked whether they are stuck: how a test lets their time pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        check = KeepAlive.check

        def counted(keep_alive: KeepAlive, now_s: float) -> None:
            check(keep_alive, now_s)
            self.count += 1

        monkeypatch.setattr(KeepAlive, "check", counted)

    async def next(self) -> None:
        before = self.count
        await until(lambda: self.count > before, "the next check of a connection")


class BrokerConnection:
    """A broker's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    async def next(self, kind: type[P]) -> P:
        """The next packet, which has to be of that kind."""
        packet = await self.next_packet()
        assert isinstance(packet, kind), f"{packet} instead of a {kind.__name__}"
        return packet

    async def next_packet(self) -> object:
        """The next packet, whatever it is."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    packet, size = mqtt5.read(memoryview(self._buffer))
                except IndexError:
                    data = await self._reader.read(65_536)
                    assert data, "the connection was closed instead of another packet"
                    self._buffer += data
                    continue
                self._buffer = self._buffer[size:]
                return packet

    async def nothing_until_ping(self) -> None:
        """Raise AssertionError if anything but a PINGREQ comes next."""
        await self.next(mqtt5.PingReqPacket)
        self.write(mqtt5.PingRespPacket())

    async def closed(self) -> None:
        """Wait until the other side has closed; what it still sent is thrown away."""
        async with asyncio.timeout(DEADLINE_S):
            while await self._reader.read(65_536):
                pass

    def write(self, *packets: Any) -> None:
        """Send packets, or bytes as they are, as one piece."""
        self._writer.write(b"".join(item if isinstance(item, bytes) else item.write() for item in packets))

    async def accept(self, **connack: Any) -> mqtt5.ConnectPacket:
        """Answer the CONNECT."""
        connect = await self.next(mqtt5.ConnectPacket)
        self.write(mqtt5.ConnAckPacket(**connack))
        return connect

    async def grant(self) -> list[str]:
        """Answer a SUBSCRIBE; the filters in it."""
        subscribe = await self.next(mqtt5.SubscribePacket)
        granted = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * len(subscribe.topic_filters)
        self.write(mqtt5.SubAckPacket(subscribe.packet_id, granted))
        return [item.pattern for item in subscribe.topic_filters]

    async def answer_publishes(self, answer: Callable[[mqtt5.PublishPacket], bytes | mqtt5.PubAckPacket]) -> None:
        """Take one connection and one SUBSCRIBE; from then on every PUBLISH is answered, and every ping. Until cancelled."""
        await self.accept(receive_max=1000)
        await self.grant()
        while True:
            packet = await self.next(object)
            if isinstance(packet, mqtt5.PingReqPacket):
                self.write(mqtt5.PingRespPacket())
            elif isinstance(packet, mqtt5.PublishPacket):
                self.write(answer(packet))

    async def written(self) -> None:
        """Wait until most of what was written has been taken by the other side."""
        async with asyncio.timeout(DEADLINE_S):
            await self._writer.drain()

    def drop(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()


class FakeBroker:
    """Listens on a port of its own and hands out what connects."""

    def __init__(self) -> None:
        self._peers: asyncio.Queue[BrokerConnection] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def peer(self) -> BrokerConnection:
        """The next connection."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._peers.get()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._peers.put_nowait(BrokerConnection(reader, writer))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBroker"]:
        server = await asyncio.start_server(self._connected, HOST, 0)
        self.url = f"mqtt://{HOST}:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()


class Endpoint(EventLog):
    """An `Mqtt5Transport` and everything that it told."""

    def __init__(self, url: str | Sequence[str], authority: str = "gateway", **options: Any) -> None:
        super().__init__()
        self.told: list[tuple[list[bytes | None], SendError | None]] = []
        quick = {"reconnect": {"initial_ms": 20, "max_ms": 100}, "topics": "in-vehicle"}
        context = TransportContext(authority, authority, events=self)
        broker = url if isinstance(url, str) else list(url)
        self.transport = Mqtt5Transport(context, with_constants(Mqtt5Options, broker=broker, **quick | options))
        self.authority = authority

    def done(self, parcels: Sequence[MessageParcel], error: SendResult) -> None:
        assert not isinstance(error, Unconfirmed)
        self.told.append(([parcel.message.payload for parcel in parcels], error))

    def submit(self, messages: Sequence[UMessage]) -> None:
        self.transport.submit([MessageParcel(message) for message in messages], self.done)

    @property
    def confirmed(self) -> list[bytes | None]:
        return [payload for payloads, error in self.told if error is None for payload in payloads]

    @property
    def refused(self) -> list[tuple[bytes | None, SendError]]:
        return [(payload, error) for payloads, error in self.told if error is not None for payload in payloads]

    @property
    def is_up(self) -> bool:
        return self.transport.state is LinkState.UP

    async def up(self) -> None:
        await until(lambda: self.is_up, "UP")

    async def heard_out(self) -> None:
        """The broker has answered a ping, which comes after everything that it had to say."""
        connection = self.transport._link.traffic.connection
        assert connection is not None
        answered_s = connection.last_read_s
        await until(lambda: connection.last_read_s > answered_s, "the answer to a ping")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Endpoint"]:
        await self.transport.authenticate(everything_at(self.authority))
        await self.transport.start()
        try:
            yield self
        finally:
            await self.transport.stop()
