"""Our Zenoh transport under test, and raw sessions that find each other only where a test says so."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import zenoh

from streamer.transports.base import LinkState, MessageParcel, TransportContext, Unconfirmed
from streamer.transports.errors import SendError
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.transport import ZenohTransport
from streamer.transports.zenoh.wire import PRIORITIES, SampleDecoder, encode_attachment, key_for
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import UMessage, notification, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.independent.zenoh import is_matched
from tests.ports import free_port
from tests.transport_events import EventLog
from tests.waiting import until

OWN = "gateway"
FAR = "cloud-gateway"
"""Another streamer's authority."""
TOPIC = UUri.parse("//veh1/A8000/2/8A50")
ENTITY = UUri.parse("//cloud/1/1/0")
METHOD = UUri.parse("//veh1/A8000/2/7")
ANYTHING = everything_at("*")

LATE_S = 60.0
_DECODER = SampleDecoder("", max_header_bytes=1 << 20, max_token_bytes=65_535, flows=Flows())


def free_endpoint() -> str:
    """A Zenoh endpoint on a free port."""
    return f"tcp/127.0.0.1:{free_port()}"


def has_link(endpoint: str) -> bool:
    """Whether somebody is connected to this port, on which a session listens."""
    return links(endpoint) > 0


def links(endpoint: str) -> int:
    """How many connections there are to this port, on which a session listens."""
    port = int(endpoint.rpartition(":")[2])
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in lines)


def open_peer(
    *, connect: Iterable[str] = (), listen: Iterable[str] = (), mode: str = "peer", **settings: Any
) -> zenoh.Session:
    """A session with scouting off. ``settings`` are further Zenoh keys, with ``__`` for the slash."""
    config = zenoh.Config()
    keys = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "scouting/multicast/enabled": False,
        **{name.replace("__", "/"): value for name, value in settings.items()},
    }
    for key, value in keys.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


@contextmanager
def raw_peer(
    *, connect: Iterable[str] = (), listen: Iterable[str] = (), mode: str = "peer", **settings: Any
) -> Iterator[zenoh.Session]:
    """`open_peer`, closed at the end."""
    session = open_peer(connect=connect, listen=listen, mode=mode, **settings)
    try:
        yield session
    finally:
        session.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parcels(count: int, sink: UUri = ENTITY) -> list[MessageParcel]:
    return [MessageParcel(notification(now_ms(), TOPIC, sink, b"%d" % n)) for n in range(count)]


class Outcomes:
    """Counts what becomes of parcels."""

    def __init__(self) -> None:
        self.reported: list[tuple[MessageParcel, SendError | Unconfirmed | None]] = []

    def done(self, parcels: Sequence[MessageParcel], error: SendError | Unconfirmed | None) -> None:
        self.reported += [(parcel, error) for parcel in parcels]


@asynccontextmanager
async def running(
    events: EventLog | None = None, *, authority: str = OWN, serves: tuple[str, ...] = (), **options: Any
) -> AsyncIterator[ZenohTransport]:
    context = TransportContext("vehicle", authority, serves=serves, events=events or EventLog(), now_ms=now_ms)
    transport = ZenohTransport(context, ZenohOptions.model_validate(options))
    await transport.authenticate(UUri(authority, 4, 1, 0))
    await transport.start()
    try:
        yield transport
    finally:
        await transport.stop()


def receipts_of(key_file: Path, *streamers: str) -> dict[str, Any]:
    """The option by which a streamer believes the receipts of others."""
    return {"key_file": str(key_file), "streamers": list(streamers)}


def opened(transport: ZenohTransport) -> Any:
    """Return everything that uses the session, which is open."""
    assert transport._opened is not None
    return transport._opened


def expects_receipts(transport: ZenohTransport) -> bool:
    """Whether messages wait for the receipts of another streamer."""
    return transport._opened is not None and transport._opened.ledger.is_needed


async def until_up(transport: ZenohTransport) -> None:
    await until(lambda: transport.state is LinkState.UP, "state UP")


def put(peer: zenoh.Session, message: UMessage) -> None:
    peer.put(
        key_for(message.attributes, ""),
        message.payload or b"",
        attachment=encode_attachment(message),
        priority=getattr(zenoh.Priority, PRIORITIES[message.attributes.priority_class]),
        congestion_control=zenoh.CongestionControl.BLOCK,
    )


def put_all(peer: zenoh.Session, messages: Iterable[UMessage]) -> None:
    for message in messages:
        put(peer, message)


def flood(peer: zenoh.Session) -> None:
    """Put messages without end, on a thread. Returns when one does not leave any more."""
    began_s = time.monotonic()

    def put_all() -> None:
        nonlocal began_s
        while True:
            began_s = time.monotonic()
            put(peer, publish(now_ms(), TOPIC, bytes(16_384)))

    threading.Thread(target=put_all, daemon=True).start()
    while time.monotonic() - began_s < 0.3:
        time.sleep(0.02)


class RawSubscriber:
    """Hears everything below ``up/`` on a raw session."""

    def __init__(self, peer: zenoh.Session, capacity: int = 50_000, key: str = "up/**") -> None:
        self._subscriber = peer.declare_subscriber(key, zenoh.handlers.FifoChannel(capacity))
        self.samples: list[zenoh.Sample] = []

    def poll(self) -> list[zenoh.Sample]:
        while (sample := self._subscriber.handler.try_recv()) is not None:
            self.samples.append(sample)
        return self.samples

    def end(self) -> None:
        """Hear nothing any more."""
        self._subscriber.undeclare()

    def messages(self) -> list[UMessage]:
        return [_DECODER.message_of(sample) for sample in self.poll()]


async def until_matched(peer: zenoh.Session, key: str) -> None:
    """Wait until ``peer`` knows of a subscriber for ``key``."""
    publisher = peer.declare_publisher(key)
    await until(lambda: is_matched(publisher), f"a subscriber for {key}")
    publisher.undeclare()


async def until_heard(transport: ZenohTransport, subscriber: RawSubscriber) -> None:
    """Send until the first message gets through, then forget what came: the subscription has reached us."""

    async def heard() -> None:
        while not subscriber.poll():
            await transport.send(publish(now_ms(), TOPIC))
            await asyncio.sleep(0.02)

    await asyncio.wait_for(heard(), LATE_S)
    last = publish(now_ms(), TOPIC, b"last")
    await transport.send(last)
    await until(lambda: subscriber.messages()[-1] == last, "the last of the first messages")
    subscriber.samples.clear()


_PROCESS = """
import json, sys
from tests.zenoh_peers import RawSubscriber, flood, open_peer

session = open_peer(**json.loads(sys.argv[1]))
subscribers, tokens = {}, []
print("ready", flush=True)
for line in sys.stdin:
    command, key = line.split()
    if command == "subscribe":
        subscribers[key] = RawSubscriber(session, key=key)
        answer = ""
    elif command == "unsubscribe":
        subscribers.pop(key).end()
        answer = ""
    elif command == "token":
        tokens.append(session.liveliness().declare_token(key))
        answer = ""
    elif command == "flood":
        flood(session)
        answer = ""
    elif command == "heard":
        answer = " ".join(message.id.hex() for message in subscribers[key].messages())
    elif command == "payloads":
        answer = " ".join({sample.payload.to_bytes().hex() for sample in subscribers[key].poll()})
    print(answer, flush=True)
"""


class PeerProcess:
    """A raw session in a process of its own, which can be stopped and killed. Does what it is told, a line each."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator["PeerProcess"]:
        """``settings`` as of `open_peer`."""
        root = Path(__file__).parents[1]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROCESS,
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            limit=1 << 26,
        )
        try:
            peer = cls(process)
            assert await peer._line() == "ready"
            yield peer
        finally:
            await peer.kill()

    async def _line(self) -> str:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), LATE_S)
        assert line, "the process has ended: see its traceback"
        return line.decode().rstrip("\n")

    async def _tell(self, command: str, key: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command} {key}\n".encode())
        return await self._line()

    async def subscribe(self, key: str) -> None:
        await self._tell("subscribe", key)

    async def unsubscribe(self, key: str) -> None:
        await self._tell("unsubscribe", key)

    async def token(self, key: str) -> None:
        """Declare a liveliness token."""
        await self._tell("token", key)

    async def flood(self) -> None:
        """Flood `TOPIC`, until a message does not leave any more."""
        await self._tell("flood", "-")

    async def heard(self, key: str) -> list[bytes]:
        """The ids of all messages that this subscriber got so far."""
        return [bytes.fromhex(id_) for id_ in (await self._tell("heard", key)).split()]

    async def payloads(self, key: str) -> set[bytes]:
        """The different payloads that this subscriber got so far."""
        return {bytes.fromhex(payload) for payload in (await self._tell("payloads", key)).split()}

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
