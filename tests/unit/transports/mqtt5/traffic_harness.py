"""A session whose broker is the test: what it reads is passed in, what is written is kept."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import mqtt5

from streamer.transports.base import ListenerOptions, Parcel, Received, UListener, Unconfirmed
from streamer.transports.errors import SendError
from streamer.transports.listeners import ListenerRegistry
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.frames import FrameReader
from streamer.transports.mqtt5.intake import PacketIntake
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.transports.mqtt5.traffic import Traffic
from streamer.transports.mqtt5.wire import Encoder
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri
from tests.transport_events import EventLog

NOW_MS = 1_790_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)


class FakeSocket(asyncio.Transport):
    """The socket of a connection: keeps what is written, and says whether it is being read."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.writes: list[bytes] = []
        self.is_reading_now = True
        self.has_ended = self.is_closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.is_closed = True


class Listener(UListener):
    """Keeps what it gets in the harness."""

    def __init__(self, harness: "TrafficHarness") -> None:
        self._harness = harness

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        self._harness.received += batch
        self._harness.batches.append(len(batch))


class TrafficHarness:
    """A session that is connected to nobody: `read` is what the broker sends, ``socket`` has what it would get."""

    def __init__(self, end: socket.socket, window: int = 10, **options: Any) -> None:
        self.encoder = Encoder("in-vehicle", "veh1")
        self.session = Session(window, self.encoder.encode, lambda: self.traffic.acknowledge_soon())
        self.session.connected(False, window, None)
        self.events = EventLog()
        settings = Mqtt5Options(broker=("mqtt://localhost",), topics="in-vehicle", **options)
        self.intake = PacketIntake(
            self.session, PublishDecoder("in-vehicle", "gateway", settings.max_header_bytes, Flows()), settings, self.events
        )
        registry = ListenerRegistry(ListenerOptions(), self.events, Flows())
        registry.add(TOPIC, None, Listener(self))
        self.received: list[Received] = []
        self.batches: list[int] = []
        self.control: list[tuple[Connection, bytes]] = []
        self.results: list[SendError | Unconfirmed | None] = []
        self.traffic = Traffic(
            "cloud",
            self.session,
            self.intake,
            registry,
            self.events,
            settings.receive_maximum,
            lambda connection, frame: self.control.append((connection, frame)),
        )
        self.socket = FakeSocket(end)
        self.connection = Connection(
            settings.max_packet_bytes, self.traffic.on_frames, self.traffic.on_writable, lambda _: None
        )
        self.connection.connection_made(self.socket)
        self.traffic.connection = self.connection
        self._last_id = 0

    def publish(self, payload: bytes = b"") -> bytes:
        """A PUBLISH of the broker, with the next packet id."""
        self._last_id += 1
        return self.encoder.encode(self.message(payload), self._last_id, False)

    def read(self, *packets: bytes) -> None:
        self.connection.data_received(b"".join(packets))

    def submit(self, *payloads: bytes) -> None:
        self.traffic.submit([Received(self.message(payload)) for payload in payloads], self._done)

    def _done(self, parcels: Sequence[Parcel], error: SendError | Unconfirmed | None) -> None:
        self.results += [error] * len(parcels)

    def acknowledge(self, number: int) -> None:
        """Acknowledge so many of the oldest messages, and let the loop have its turn's end."""
        for received in self.received[:number]:
            received.acknowledge()
        del self.received[:number]

    @staticmethod
    def message(payload: bytes = b"") -> UMessage:
        return publish(NOW_MS, TOPIC, payload)

    def written(self) -> list[Any]:
        """The packets written since the last call; each as its class in `mqtt5`."""
        data, self.socket.writes = b"".join(self.socket.writes), []
        frames, error = FrameReader(1 << 20).feed(data)
        assert error is None
        return [mqtt5.read(memoryview(frame))[0] for frame in frames]
