"""The link among strangers, and with a network between both ends that does what it likes."""

import asyncio
import contextlib
import logging
import random
import select
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from streamer.features.pair import link as module
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.ports import HOST, free_port
from tests.unit.features.pair.conftest import Certificates
from tests.unit.features.pair.ends import OTHER_KEY, End, RawEnd, accepting, dialing, linked, numbered
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_left", "hasty")

TLS_CLIENT_HELLO = bytes.fromhex(
    "16030100a5010000a10303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
    "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000813021303130100ff0100"
)
HTTP = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
MQTT = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc"
ALMOST = b"uS-pair\r" + bytes(40)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is too late in this test, however slow the machine is."""
    monkeypatch.setattr(module, "HANDSHAKE_S", 60)


# Strangers


@pytest.mark.parametrize("said", [TLS_CLIENT_HELLO, HTTP, MQTT, ALMOST, random.Random(1).randbytes(100_000)])
async def test_one_that_speaks_something_else_is_refused_and_disturbs_nobody(port: int, said: bytes) -> None:
    async with linked(port) as (first, second):
        async with dialing(port) as stranger:
            stranger.writer.write(said)
            assert await stranger.reader.read(1) == b""  # it is told nothing
        assert first.link.refused == 1
        first.link.send(numbered(1))
        await second.gets(1)
        assert first.events == second.events == ["up"]
        assert first.frames == []


async def test_one_of_another_pair_that_has_the_same_key_is_refused_and_both_say_so(port: int) -> None:
    """Somebody has dialled a wrong address: it must not get what this pair has, nor take the place of the right one."""
    async with linked(port) as (first, second):
        async with End(connect=port, authority="another").running() as wrong:
            await until(lambda: "another authority" in wrong.link.problem, "it knows why")
            await until(lambda: first.link.refused, "the listening one has refused it")
        first.link.send(numbered(1))
        await second.gets(1)
        assert first.events == second.events == ["up"]
        assert wrong.events == []


async def test_one_that_listens_for_another_pair_is_refused_as_well(port: int) -> None:
    async with End(listen=port, authority="another").running() as listens, End(connect=port).running() as end:
        await until(lambda: "another authority" in end.link.problem, "it knows why")
        await until(lambda: listens.link.refused > 1, "it tries again")
    assert listens.events == end.events == []


@pytest.mark.parametrize("said", [HTTP, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", TLS_CLIENT_HELLO])
async def test_a_server_that_is_not_the_other_one_gets_no_link(port: int, said: bytes, patience: None) -> None:
    async with accepting(port) as accepted, End(connect=port).running() as end:
        server = await accepted.get()
        server.writer.write(said)
        await server.close()
        await until(lambda: end.link.problem)
        await accepted.get()  # it tries again
        assert end.events == []


async def test_one_with_another_key_is_refused_on_both_sides(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with End(listen=port).running() as first, End(connect=port, key=OTHER_KEY).running() as second:
        await until(lambda: first.link.refused >= 2 and "another key" in second.link.problem)
        assert (first.events, second.events) == ([], [])
    assert f"pair_stranger_refused address={HOST} reason=it has another key" in caplog.messages


async def test_a_server_with_another_key_is_refused(port: int, patience: None) -> None:
    """One that does not look at the proof of the one that dials, but proves itself with its own key."""
    async with accepting(port) as accepted, End(connect=port).running() as end:
        server = await accepted.get()
        with pytest.raises(AssertionError):
            await server.prove_half(OTHER_KEY)
        server.writer.write(bytes(16))
        assert await server.is_closed()
        await until(lambda: end.link.refused == 1)
        assert end.link.problem == f"{HOST}:{port}: it has another key"
        assert end.events == []


async def test_what_comes_before_the_proof_is_not_delivered(port: int, patience: None) -> None:
    async with End(listen=port).running() as end:
        await end.listens()
        async with dialing(port) as stranger:
            await stranger.prove_half(OTHER_KEY)
            stranger.writer.write(stranger.frame(1))
            assert await stranger.is_closed()
        assert (end.events, end.frames, end.link.refused, end.link.ignored) == ([], [], 1, 0)


async def test_silent_strangers_are_few_and_keep_nobody_out(port: int, patience: None) -> None:
    async with End(listen=port).running() as first, contextlib.AsyncExitStack() as crowd:
        await first.listens()
        strangers = [await crowd.enter_async_context(dialing(port)) for _ in range(20)]
        await until(lambda: first.link.refused == 16)
        for stranger in strangers[:16]:
            assert await stranger.is_closed()
        async with End(connect=port).running() as second:
            await first.comes_up()
            await second.comes_up()
            assert first.link.refused == 17
            assert await strangers[16].is_closed()
            assert not any(stranger.reader.at_eof() for stranger in strangers[17:])


async def test_a_burst_of_strangers_leaves_room_for_the_other_one(port: int, patience: None) -> None:
    """What does not fit into the queue of those that wait is tried again by the system after a second, and then later."""
    async with End(listen=port).running() as first:
        await first.listens()
        with contextlib.ExitStack() as burst:
            strangers = [burst.enter_context(socket.socket()) for _ in range(300)]
            for stranger in strangers:  # nobody accepts meanwhile
                stranger.setblocking(False)
                stranger.bind(("127.0.0.2", 0))
                with contextlib.suppress(BlockingIOError):
                    stranger.connect((HOST, port))
            _, connected, _ = select.select([], strangers, [], 0)
            assert len(connected) == len(strangers)
            async with End(connect=port).running() as second:
                await second.comes_up()
                await first.comes_up()


async def test_strangers_at_another_address_do_not_disturb_a_handshake(port: int, patience: None) -> None:
    async with End(listen=port).running() as end, contextlib.AsyncExitStack() as crowd:
        await end.listens()
        async with dialing(port) as other:
            other.writer.write(b"uS-pair")  # the rest comes late, from far away
            for _ in range(20):
                await crowd.enter_async_context(dialing(port, local="127.0.0.2"))
            await until(lambda: end.link.refused == 17)
            assert not other.reader.at_eof()
            await other.prove(begun=7)
            await end.comes_up()


@pytest.mark.parametrize("said", [HTTP, TLS_CLIENT_HELLO[:-1], b"uS-pair\n\0\1b" + bytes(32)])
async def test_with_tls_strangers_are_few_and_keep_nobody_out_too(
    port: int, said: bytes, patience: None, certificates: Certificates
) -> None:
    async with End(listen=port, tls=certificates.server).running() as first, contextlib.AsyncExitStack() as crowd:
        await first.listens()
        for number in range(10):
            stranger = await crowd.enter_async_context(dialing(port))
            if number % 2:
                stranger.writer.write(said)
        async with End(connect=port, tls=certificates.client).running() as second:
            await first.comes_up()
            await second.comes_up()
            second.link.send(numbered(1))
            await first.gets(1)
            assert first.link.refused >= 7
        assert first.events[0] == "up"


@pytest.mark.parametrize("said", [b"", b"uS-pair\n", b"uS-pair\n\x00\x01b"])
async def test_a_stranger_that_waits_is_closed(port: int, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.05)
    async with End(listen=port).running() as end:
        await end.listens()
        async with dialing(port) as stranger:
            stranger.writer.write(said)
            assert await stranger.is_closed()
            assert end.link.refused == 1


async def test_a_server_that_says_nothing_is_left(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.05)
    async with accepting(port) as accepted, End(connect=port).running() as end:
        for _ in range(3):
            assert await (await accepted.get()).is_closed()
        assert end.link.problem == f"{HOST}:{port}: no proof in time"


async def test_one_that_only_looks_whether_the_port_is_open_is_not_counted(port: int) -> None:
    async with linked(port) as (first, _):
        async with dialing(port):
            pass
        async with dialing(port) as stranger:  # accepted after the one before
            stranger.writer.write(HTTP)
            assert await stranger.is_closed()
        assert first.link.refused == 1


# Those who cannot be the other one


@pytest.mark.parametrize("version", [0, 2, 65_535])
async def test_another_version_is_said_on_both_sides(
    port: int, version: int, patience: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINGER_S", 60)
    async with End(listen=port).running() as end:
        await end.listens()
        async with dialing(port) as newer:
            newer.writer.write(newer.greeting(version) + b"and what a greeting may have by then")
            told = await newer.reader.readexactly(10)
            assert told == b"uS-pair\n\0\1"
            async with dialing(port) as stranger:
                stranger.writer.write(HTTP)
                assert await stranger.is_closed()
            assert end.link.refused == 1  # the newer one has all the time to read
        await until(lambda: end.link.refused == 2)
    reason = f"it speaks version {version} of the protocol of a pair, this one version 1"
    assert f"pair_stranger_refused address={HOST} reason={reason}" in caplog.messages
    caplog.clear()
    async with accepting(port) as accepted, End(connect=port).running() as end:
        newer = await accepted.get()
        newer.writer.write(newer.greeting(version))
        assert await newer.is_closed()
        await until(lambda: end.link.problem)
    assert caplog.messages == [f"pair_link_down reason={HOST}:{port}: {reason}"]


async def test_two_of_one_name_say_so_on_both_sides(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with End(listen=port, name="a").running() as first, End(connect=port, name="a").running() as second:
        await until(lambda: first.link.refused >= 1 and second.link.refused >= 1)
        assert (first.events, second.events) == ([], [])
    reason = "it has the same place in the pair as this one, or sends back what this one says"
    assert f"pair_stranger_refused address={HOST} reason={reason}" in caplog.messages
    assert f"pair_link_down reason={HOST}:{port}: {reason}" in caplog.messages


async def test_its_own_words_prove_nothing_to_the_one_that_dials(port: int, patience: None) -> None:
    async with accepting(port) as accepted, End(connect=port).running() as end:
        mirror = await accepted.get()
        mirror.writer.write(await mirror.reader.readexactly(43))
        assert await mirror.is_closed()
        await until(lambda: end.link.refused == 1)
        assert end.events == []


async def test_its_own_words_prove_nothing_to_the_one_that_listens(port: int, patience: None) -> None:
    """Its greeting on one connection, sent to it on another; and the proof that it expects is not what it says itself."""
    async with End(listen=port).running() as end:
        await end.listens()
        async with dialing(port) as asking, dialing(port) as mirror:
            asking.writer.write(asking.greeting())
            mirror.writer.write(await asking.reader.readexactly(43))
            assert await mirror.reader.readexactly(43)
        async with dialing(port) as other:
            await other.prove()
            await end.comes_up()
        assert end.events[0] == "up"
        await until(lambda: end.link.refused == 1)


# What a network can do to what is said


Change = Callable[[str, int, bytes], bytes]
"""Of the way, how many bytes have passed on it before, and the next ones."""


class Relay:
    """Stands between both ends: records what they say, and changes it. ``"->"`` is the way from the one that dials."""

    def __init__(self) -> None:
        self.said: dict[str, bytearray] = {"->": bytearray(), "<-": bytearray()}
        self.change: Change = lambda *passed: passed[-1]

    @contextlib.asynccontextmanager
    async def running(self, port: int, to: int) -> AsyncIterator["Relay"]:
        tasks: set[asyncio.Task[None]] = set()

        async def pass_on(way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            passed = 0
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    self.said[way] += data
                    writer.write(self.change(way, passed, data))
                    passed += len(data)
            writer.close()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection(HOST, to)
            ways = (pass_on("->", reader, there[1]), pass_on("<-", there[0], writer))
            here = [asyncio.create_task(way) for way in ways]
            tasks.update(here)
            for each in here:
                await each
            for each_writer in (writer, there[1]):
                with contextlib.suppress(OSError):
                    await each_writer.wait_closed()

        server = await asyncio.start_server(connected, HOST, port)
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()
            await until(lambda: all(task.done() for task in tasks))


async def test_a_recorded_conversation_proves_nothing(port: int, patience: None) -> None:
    relay, between = Relay(), free_port()
    async with End(listen=port).running() as first:
        await first.listens()
        async with relay.running(between, port), End(connect=between).running() as second:
            await first.comes_up()
            await second.comes_up()
            for number in range(5):
                first.link.send(numbered(number))
                second.link.send(numbered(number))
            await first.gets(5)
        await second.gets(5)
        await first.goes_down()
        assert len(relay.said["->"]) > 43 + 16
        async with dialing(port) as replay:
            replay.writer.write(bytes(relay.said["->"]))
            assert await replay.is_closed()
        assert (first.link.refused, len(first.frames), first.events.count("up")) == (1, 5, 1)
    async with accepting(port) as accepted, End(connect=port).running() as again:
        replay = await accepted.get()
        replay.writer.write(bytes(relay.said["<-"]))
        assert await replay.is_closed()
        await until(lambda: again.link.refused)
        assert (again.frames, again.events) == ([], [])


@pytest.mark.parametrize("way", ["->", "<-"])
@pytest.mark.parametrize("position", [*range(0, 43, 7), 8, 9, 10, 43, 58])
async def test_a_changed_handshake_makes_no_link(
    port: int, way: str, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    relay, between = Relay(), free_port()

    def flip(direction: str, start: int, data: bytes) -> bytes:
        changed = bytearray(data)
        if direction == way and start <= position < start + len(data):
            changed[position - start] ^= 1
        return bytes(changed)

    relay.change = flip
    async with End(listen=port).running() as first:
        await first.listens()
        async with relay.running(between, port), End(connect=between).running() as second:
            await until(lambda: first.link.refused + second.link.refused)
            assert (second.frames, second.link.connections) == ([], 0)
            assert first.frames == []
            relay.change = Relay().change  # and then all is well again
            await second.comes_up()
            second.link.send(numbered(1))
            await first.gets(1)


# What the network, or one with the key of a connection that is broken, can do to frames


@contextlib.asynccontextmanager
async def proved(port: int, tls: Certificates | None = None) -> AsyncIterator[tuple[End, RawEnd]]:
    """One that listens, and the other one of the pair, which has connected."""
    async with End(listen=port, tls=None if tls is None else tls.server).running() as end:
        await end.listens()
        async with dialing(port, tls=None if tls is None else tls.client) as other:
            await other.prove()
            await end.comes_up()
            yield end, other


FRAME_BYTES = 4 + 16 + len(numbered(7).SerializeToString()) + 16


async def test_frames_are_read_as_they_are_documented(port: int) -> None:
    """The other end here was written after the documentation: it reads and writes without the code of the link."""
    async with proved(port) as (end, other):
        for number in range(3):
            other.writer.write(other.frame(number))
            end.link.send(numbered(10 + number))
        await end.gets(3)
        assert end.numbers == [0, 1, 2]
        assert [(await other.next_frame()).stored.number for _ in range(3)] == [10, 11, 12]
        for byte in other.frame(3):
            other.writer.write(bytes([byte]))
            await other.writer.drain()
        await end.gets(4)


@pytest.mark.parametrize("position", range(FRAME_BYTES))
async def test_any_flipped_bit_ends_the_connection(port: int, position: int) -> None:
    async with proved(port) as (end, other):
        changed = bytearray(other.frame(7))
        changed[position] ^= 1 << position % 8
        other.writer.write(bytes(changed))
        assert await other.is_closed()
        assert await end.goes_down() == "a frame has come that the other one has not sent, or not now"
        assert (end.frames, end.link.ignored, end.link.is_up) == ([], 1, False)


def twice(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[0], frames[1]]


def without_one(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[2]]


def swapped(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[2], frames[1]]


def with_a_body_of_another(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[1][:20] + frames[2][20:]]


def without_a_byte(frames: list[bytes]) -> list[bytes]:
    return [frames[0], frames[1][1:], frames[2]]


@pytest.mark.parametrize("change", [twice, without_one, swapped, with_a_body_of_another, without_a_byte])
async def test_frames_that_do_not_come_in_their_order_end_the_connection(
    port: int, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    async with proved(port) as (end, other):
        other.writer.writelines(change([other.frame(number) for number in range(1, 4)]))
        assert await other.is_closed()
        await end.goes_down()
        assert (end.numbers, end.link.ignored) == ([1], 1)


async def test_its_own_frames_come_back_to_no_effect(port: int) -> None:
    async with proved(port) as (end, other):
        end.link.send(numbered(1))
        other.writer.write(await other.reader.readexactly(FRAME_BYTES))
        assert await other.is_closed()
        await end.goes_down()
        assert (end.frames, end.link.ignored) == ([], 1)


async def test_a_frame_of_more_than_the_bound_ends_the_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FRAME_BYTES", 1000)
    async with proved(port) as (end, other):
        other.writer.write(other.sealed(b"", length=1001)[:20])
        assert await other.is_closed()
        assert await end.goes_down() == "a frame of 1001 bytes has come, more than 1000"


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
async def test_a_length_that_the_other_one_has_not_said_is_not_waited_for(port: int, length: bytes) -> None:
    async with proved(port) as (end, other):
        other.writer.write(length + bytes(16))
        assert await other.is_closed()
        await end.goes_down()
        assert end.link.ignored == 1


async def test_a_frame_that_cannot_be_read_ends_the_connection(port: int) -> None:
    async with proved(port) as (end, other):
        other.writer.write(other.sealed(b"\xff\xff\xff"))
        assert await other.is_closed()
        assert await end.goes_down() == "a frame has come that cannot be read"
        assert (end.frames, end.link.ignored) == ([], 0)


@pytest.mark.parametrize("part", [1, 4, 20, 21, FRAME_BYTES - 1])
async def test_a_frame_that_was_cut_is_not_delivered(port: int, part: int) -> None:
    async with proved(port) as (end, other):
        other.writer.write(other.frame(1) + other.frame(2)[:part])
        await other.close()
        assert await end.goes_down() == "the other end has closed the connection"
        assert (end.numbers, end.link.ignored) == ([1], 0)


# Ends that are no good ones any more


@pytest.mark.parametrize("is_tls", [False, True])
async def test_one_that_does_not_read_is_disconnected(
    port: int, is_tls: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 8 << 20)
    frame = pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=bytes(1 << 18))]))
    async with proved(port, certificates if is_tls else None) as (end, other):
        sent = 0
        while end.link.send(frame):  # the event loop gets no turn: nothing is written meanwhile
            sent += 1
            assert sent < 200
        assert not end.link.is_up
        assert end.link.waiting_bytes == 0
        assert not end.link.send(frame)
        assert await end.goes_down() == "the other one does not read: 8 MiB wait for it"
        assert sent >= 32
        assert await other.is_closed()
        async with dialing(port, tls=certificates.client if is_tls else None) as again:
            await again.prove()
            await end.comes_up()
            assert end.link.send(numbered(1))
            assert await again.next_frame() == numbered(1)


async def test_one_that_starts_anew_replaces_its_old_connection(port: int) -> None:
    """After a crash, or with a network that was away, the old connection still seems to be there."""
    async with proved(port) as (end, old):
        old.writer.write(old.frame(1))
        await end.gets(1)
        async with dialing(port) as new:
            await new.prove()
            await until(lambda: end.link.connections == 2)
            assert end.events == ["up", "the other one has connected anew", "up"]
            assert await old.is_closed()
            old.writer.write(old.frame(2))
            new.writer.write(new.frame(3))
            await end.gets(2)
            end.link.send(numbered(4))
            assert await new.next_frame() == numbered(4)
        await end.goes_down(2)
        assert end.numbers == [1, 3]


async def test_frames_that_wait_when_the_connection_is_ended_are_not_delivered(port: int) -> None:
    """The first of them ends it: the one behind it was read already."""
    async with proved(port) as (end, old):
        ended = asyncio.Event()

        def end_it(frame: pb.Frame) -> None:
            end.frames.append(frame)
            current = end.link._current
            assert current is not None
            current.abort("it is ended")
            ended.set()

        end.answer = end_it
        old.writer.write(old.frame(1) + old.frame(2))
        await ended.wait()
        assert await end.goes_down() == "it is ended"
        assert end.numbers == [1]


async def test_a_stranger_does_not_replace_the_link(port: int, patience: None) -> None:
    async with proved(port) as (end, other), contextlib.AsyncExitStack() as crowd:
        for _ in range(6):
            stranger = await crowd.enter_async_context(dialing(port))
            await stranger.prove_half(OTHER_KEY)
            assert await stranger.is_closed()
        for _ in range(10):  # these say nothing
            await crowd.enter_async_context(dialing(port))
        await until(lambda: end.link.refused == 12)
        other.writer.write(other.frame(1))
        await end.gets(1)
        assert end.events == ["up"]


async def test_the_key_is_in_no_log_line(port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with End(listen=port).running() as first, End(connect=port, key=OTHER_KEY).running():
        await until(lambda: first.link.refused)
    assert "key that" not in caplog.text
