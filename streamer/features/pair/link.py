"""The link between the two streamers of a pair: one TCP connection, with TLS if wanted, that carries frames.

One of the two listens, the other one dials, for ever. The law of this file:

- Before the other end of a connection has proved that it is the peer (`.sealing`), nothing is delivered from the connection,
  and nothing is sent over it.
- Few connections that are not proved are open at a time, each for a short time. A new one displaces the oldest from its own
  address, so strangers at one address keep nobody else out.
- A proved connection replaces the one before: the peer has started anew, and the old connection has not ended yet.
- A wrong tag ends the connection: no frame is ever left out.
- `on_down` is called once for each `on_up`, before the next `on_up`.
- `Link.send` never waits. A peer that does not read is disconnected.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from streamer.features.pair.sealing import (
    CHANCE_BYTES,
    HEAD_BYTES,
    REST_BYTES,
    SHORTEST_KEY,
    TAG_BYTES,
    ForgedError,
    Greeting,
    MisfitError,
    Seals,
    StrangerError,
    check_head,
    greeting_of,
    read_rest,
    seals_of,
)
from streamer.transports.link_error import failure_of
from streamer.transports.sockets import addresses_of, listening_socket
from streamer.uprotocol.proto import pair_v1_pb2 as pb

HANDSHAKE_S = 2.0
"""How long connecting, TLS and the proofs may take together at first, for the end that dials."""

LONGER: Final = 8
"""The most times `HANDSHAKE_S` that they may take: they are five round trips, and a round trip may take seconds."""

PAUSE_S = 0.2
"""Between the end of a connection, or a failed attempt, and the next attempt."""

MOST_STRANGERS: Final = 4
"""How many connections may be open at a time whose other end has not proved itself."""

MOST_FRAME_BYTES: Final = 512 << 20
"""The largest frame: more than the largest MQTT packet. Only the peer can announce one."""

MOST_WAITING_BYTES: Final = 64 << 20
"""The peer is disconnected once more than this waits for it to read."""

DEAD_AFTER_S: Final = 2
"""How long a host may leave TCP segments unacknowledged, where the system can tell; longer after a slow handshake."""

_FAREWELL_S = 0.5  # for what was sent last
_LINGER_S = 1.0  # for a stranger to read why it is refused
_READ_BYTES = 256 * 1024
_BACKLOG = 1024  # with a shorter one, a flood of short connections has the system drop packets of the peer for seconds
_LENGTH = struct.Struct(">I")
_KEEPALIVE = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 2))
_STATE = "link of the pair"

Address = tuple[str, int]
"""Host and port."""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

logger = logging.getLogger("ustreamer.pair")


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection that is proved. ``end``: why it was ended here; empty while it goes on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seals: Seals
    where: str
    end: str = ""

    @property
    def is_open(self) -> bool:
        return not self.end and not self.writer.transport.is_closing()

    def abort(self, why: str) -> None:
        """Close at once, and drop what was not written."""
        self.end = self.end or why
        _abort(self.writer)


class Link:
    """One end of the link. It does nothing before `run`.

    - ``listen`` or ``connect``: the address to listen on, or that of the peer; exactly one of them. Of a host name that
      has several addresses, the first is listened on.
    - ``key``: what both share, at least `SHORTEST_KEY` bytes.
    - ``name``: one ASCII character, which differs between the two; ``authority``: that of both.
    - ``on_frame``, ``on_up``, ``on_down``: called on the event loop, the last one with the reason. They may call `send`.
      What they raise ends `run`.

    ``connections`` counts those that were proved, ``refused`` those that were closed here because the other end could not
    prove itself, ``ignored`` frames with a wrong tag. ``problem`` says why the link is not up, and is empty while it is.
    """

    def __init__(
        self,
        *,
        listen: Address | None = None,
        connect: Address | None = None,
        key: bytes,
        name: str,
        authority: str,
        tls: ssl.SSLContext | None = None,
        on_frame: Callable[[pb.Frame], None],
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
    ) -> None:
        if (listen is None) is (connect is None):
            raise ValueError("expected an address to listen on or one to connect to")
        if len(key) < SHORTEST_KEY:
            raise ValueError(f"the key is too short: expected at least {SHORTEST_KEY} bytes")
        if len(name) != 1 or not name.isascii():
            raise ValueError("expected a name of one ASCII character")
        self.connections = 0
        self.refused = 0
        self.ignored = 0
        self.problem = ""
        self._listen = listen
        self._connect = connect
        self._key = key
        self._name = name.encode("ascii")
        self._authority = authority
        self._tls = tls
        self._on_frame = on_frame
        self._on_up = on_up
        self._on_down = on_down
        self._current: _Connection | None = None
        self._strangers: dict[asyncio.Task[bool], str] = {}  # each with its host, the oldest first

    @property
    def is_up(self) -> bool:
        """Whether frames can be sent."""
        return self._current is not None and self._current.is_open

    @property
    def waiting_bytes(self) -> int:
        """Return the sent bytes that the system has not taken yet."""
        connection = self._current
        return connection.writer.transport.get_write_buffer_size() if connection is not None and connection.is_open else 0

    def send(self, frame: pb.Frame) -> bool:
        """Send a frame, and return whether there is a link. It arrives in order, or not at all if the link ends before.

        Raises ValueError for one of more than `MOST_FRAME_BYTES`.
        """
        connection = self._current
        if connection is None or not connection.is_open:
            return False
        if self.waiting_bytes > MOST_WAITING_BYTES:
            connection.abort(f"the other one does not read: {MOST_WAITING_BYTES >> 20} MiB wait for it")
            return False
        payload = frame.SerializeToString()
        if len(payload) > MOST_FRAME_BYTES:
            raise ValueError(f"a frame of {len(payload)} bytes, more than {MOST_FRAME_BYTES}")
        seal = connection.seals.outgoing
        length = _LENGTH.pack(len(payload))
        connection.writer.write(b"".join((length, seal.tag(length), payload, seal.tag(payload))))
        return True

    async def run(self) -> None:
        """Keep the link up, until cancelled. Frames sent before are written, unless the peer does not read them."""
        async with asyncio.TaskGroup() as tasks:
            if self._listen is not None:
                await self._accept(*self._listen, tasks)
            elif self._connect is not None:
                await self._dial(*self._connect)

    async def _dial(self, host: str, port: int) -> None:
        where = _shown(host, port)
        connect = partial(_connected, host, port, self._tls)
        times = 1
        while True:
            is_late = await self._meet(connect, where, is_dialing=True, within_s=HANDSHAKE_S * times)
            times = 2 * times if is_late and times < LONGER else 1
            await asyncio.sleep(PAUSE_S)

    async def _accept(self, host: str, port: int, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        with await self._listening(host, port) as listening:
            self._not_up(f"the other one has not connected to {_shown(host, port)} yet; if both listen, it never does")
            while True:
                try:
                    accepted, address = await loop.sock_accept(listening)
                except OSError as exc:  # out of descriptors; or the client has left
                    logger.warning("pair_accept_failed reason=%s", failure_of(exc)[1])
                    await asyncio.sleep(PAUSE_S)
                    continue
                self._admit(accepted, address, tasks)
                for accepted, address in _that_wait(listening):
                    self._admit(accepted, address, tasks)
                await asyncio.sleep(0)  # accepting does not wait while there is somebody

    async def _listening(self, host: str, port: int) -> socket.socket:
        """Return a listening socket; without the address, it waits for that."""
        while True:
            try:
                family, _, _, _, address = (await addresses_of(host, port))[0]
                return listening_socket(family, address, _BACKLOG)
            except (OSError, UnicodeError) as exc:
                self._not_up(f"cannot listen on {_shown(host, port)}: {failure_of(exc)[1]}")
            await asyncio.sleep(PAUSE_S)

    def _admit(self, accepted: socket.socket, address: Address, tasks: asyncio.TaskGroup) -> None:
        host = address[0]
        if len(self._strangers) >= MOST_STRANGERS:
            alike = (task for task, other in self._strangers.items() if other == host)
            displaced = next(alike, next(iter(self._strangers)))
            reason = "it has not proved itself yet, and others want to connect"
            self._fail(self._strangers.pop(displaced), reason, False, is_refused=True)
            displaced.cancel()

        def ended(task: asyncio.Task[bool]) -> None:
            self._strangers.pop(task, None)
            accepted.close()  # if the task was cancelled before it began

        take = partial(_streams_of, accepted, self._tls)
        meeting = self._meet(take, host, is_dialing=False, within_s=HANDSHAKE_S * LONGER)
        task = tasks.create_task(meeting, name="pair-connection")
        self._strangers[task] = host
        task.add_done_callback(ended)

    async def _meet(
        self, open_streams: Callable[[], Awaitable[_Streams]], where: str, is_dialing: bool, within_s: float
    ) -> bool:
        """Open a connection, let both ends prove themselves, and serve the connection to its end.

        Return whether the proofs were not there in time.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        writer, is_late = None, False
        try:
            async with asyncio.timeout(within_s):
                reader, writer = await open_streams()
                _set_options(writer.get_extra_info("socket"), DEAD_AFTER_S)
                seals = await self._prove(reader, writer, is_dialing)
                _set_options(writer.get_extra_info("socket"), max(DEAD_AFTER_S, 2 * (loop.time() - began_s)))
        except StrangerError as exc:
            self._fail(where, str(exc), is_dialing, is_refused=True)
        except (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError):
            reason = "it has closed the connection without a proof, as one does that has another key"
            if writer is not None and writer.get_extra_info("ssl_object") is not None:
                reason += ", or that refuses the certificate of this one"
            self._fail(where, reason, is_dialing, is_refused=False)
        except ssl.SSLError as exc:
            self._fail(where, failure_of(exc)[1], is_dialing, is_refused=not is_dialing)
        except (OSError, UnicodeError) as exc:
            is_late = isinstance(exc, TimeoutError) and exc.errno is None
            reason = "no proof in time" if is_late else failure_of(exc)[1]
            self._fail(where, reason, is_dialing, is_refused=is_late and not is_dialing)
        else:
            await self._serve(_Connection(reader, writer, seals, where))
        finally:
            if writer is not None:
                _abort(writer)
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        return is_late

    async def _prove(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dialing: bool) -> Seals:
        """Exchange greetings and proofs. Raises `StrangerError` if the other end is not the peer."""
        mine = greeting_of(self._name, os.urandom(CHANCE_BYTES), self._key, self._authority)
        if is_dialing:
            writer.write(mine.packed)
        try:
            check_head(await reader.readexactly(HEAD_BYTES))
            theirs = read_rest(await reader.readexactly(REST_BYTES), mine, self._key, self._authority)
        except MisfitError:
            if not is_dialing:
                await _greet_and_linger(reader, writer, mine)
            raise
        seals = seals_of(self._key, mine, theirs, is_dialing)
        proof = seals.outgoing.tag(seals.greetings)
        writer.write(proof if is_dialing else mine.packed)
        try:
            seals.incoming.check(seals.greetings, await reader.readexactly(TAG_BYTES))
        except ForgedError:
            raise StrangerError("it has another key") from None
        if not is_dialing:
            writer.write(proof)
        return seals

    async def _serve(self, connection: _Connection) -> None:
        """Deliver the frames of a proved connection, until it ends."""
        try:
            self._replace_by(connection)
            while (frame := await self._receive(connection)) is not None:
                self._on_frame(frame)
        except asyncio.CancelledError:
            connection.writer.close()  # once what was sent is written
            with contextlib.suppress(OSError):
                async with asyncio.timeout(_FAREWELL_S):
                    await connection.writer.wait_closed()
            raise
        finally:
            self._leave(connection, connection.end or "stopped")

    async def _receive(self, connection: _Connection) -> pb.Frame | None:
        """Return the next frame, or None once the connection has ended."""
        reader, seal = connection.reader, connection.seals.incoming
        try:
            (length,) = _LENGTH.unpack(seal.open(await reader.readexactly(_LENGTH.size + TAG_BYTES)))
            if length > MOST_FRAME_BYTES:
                connection.abort(f"a frame of {length} bytes has come, more than {MOST_FRAME_BYTES}")
                return None
            frame = pb.Frame.FromString(seal.open(await reader.readexactly(length + TAG_BYTES)))
        except asyncio.IncompleteReadError:
            connection.abort("the other end has closed the connection")
        except OSError as exc:
            connection.abort(failure_of(exc)[1])
        except ForgedError:
            self.ignored += 1
            connection.abort("a frame has come that the other one has not sent, or not now")
        except DecodeError:
            connection.abort("a frame has come that cannot be read")
        return None if connection.end else frame

    def _replace_by(self, connection: _Connection) -> None:
        if (task := asyncio.current_task()) is not None:
            self._strangers.pop(task, None)
        if (before := self._current) is not None:
            before.abort("the other one has connected anew")
            self._leave(before, before.end)
        self._current = connection
        self.connections += 1
        self.problem = ""
        logger.info("pair_link_up address=%s", connection.where, extra={"state": (_STATE, "up")})
        self._on_up()

    def _leave(self, connection: _Connection, reason: str) -> None:
        """Report that this connection has ended, unless that is done."""
        if self._current is connection:
            self._current = None
            self._not_up(reason)
            self._on_down(reason)

    def _not_up(self, problem: str) -> None:
        """Log why there is no link, unless it is known."""
        if problem != self.problem:
            self.problem = problem
            logger.warning("pair_link_down reason=%s", problem, extra={"state": (_STATE, problem)})

    def _fail(self, where: str, reason: str, is_dialing: bool, *, is_refused: bool) -> None:
        """Report a connection that was not proved. What strangers do to the one that listens is no state of the link."""
        if is_refused:
            self.refused += 1
        if is_dialing:
            self._not_up(f"{where}: {reason}")
        elif is_refused:
            logger.warning("pair_stranger_refused address=%s reason=%s", where, reason)
        else:
            logger.debug("pair_stranger_left address=%s reason=%s", where, reason)


def _that_wait(listening: socket.socket) -> Iterator[tuple[socket.socket, Address]]:
    """Accept all connections that wait, and at most a queue of them."""
    for _ in range(_BACKLOG):
        try:
            accepted, address = listening.accept()
        except OSError:  # there is none; or it has left, or there are no descriptors: `_accept` finds that out
            return
        accepted.setblocking(False)
        yield accepted, address


async def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> _Streams:
    """Return the streams of a connection to the first address of a host that accepts. Raises OSError, UnicodeError."""
    found = list(dict.fromkeys(address[0] for *_, address in await addresses_of(host, port)))
    connect = partial(
        asyncio.open_connection, port=port, ssl=tls, limit=_READ_BYTES, server_hostname=None if tls is None else host
    )
    for address in found[:-1]:
        with contextlib.suppress(OSError):
            return await connect(address)
    return await connect(found[-1])


async def _streams_of(accepted: socket.socket, tls: ssl.SSLContext | None) -> _Streams:
    """Return the streams of an accepted connection."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _abort(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(AttributeError):  # CPython 3.11.2: of a TLS transport that was closed twice
        writer.transport.abort()


async def _greet_and_linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mine: Greeting) -> None:
    """Greet, and wait until the other end has closed: what it has not read when we close can be lost."""
    writer.write(mine.packed)
    with contextlib.suppress(OSError):
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(_READ_BYTES):
                pass


def _set_options(connection: socket.socket, dead_after_s: float) -> None:
    """Have small frames sent at once, and a dead host noticed, as far as the system can."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", round(1000 * dead_after_s))):
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
