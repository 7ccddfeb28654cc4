"""The link between two that trust each other: frames, ends and new beginnings, on real sockets."""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from typing import Any

import pytest

from streamer.features.pair import link as module
from streamer.features.pair.link import Link
from streamer.uprotocol.proto import pair_v1_pb2 as pb
from tests.fault.proxy import Proxy
from tests.ports import HOST
from tests.unit.features.pair.conftest import Certificates
from tests.unit.features.pair.ends import KEY, End, accepting, linked, numbered
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_left", "hasty")


async def test_frames_go_both_ways(port: int) -> None:
    async with linked(port) as (first, second):
        assert first.link.send(numbered(1))
        assert second.link.send(numbered(2))
        await first.gets(1)
        await second.gets(1)
        assert (first.numbers, second.numbers) == ([2], [1])
        assert first.events == second.events == ["up"]
        assert (first.link.connections, second.link.connections) == (1, 1)
        assert (first.link.problem, second.link.problem) == ("", "")


async def test_of_several_addresses_of_a_name_one_that_refuses_is_passed_over(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def found(host: str, port: int, flags: int = 0, **keywords: Any) -> Any:
        if host != "peer.example" or flags & socket.AI_NUMERICHOST:
            return real(host, port, flags=flags, **keywords)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", HOST)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    async with End(listen=port).running() as first, End(connect=port, host="peer.example").running() as second:
        await first.comes_up()
        await second.comes_up()


async def test_ten_thousand_frames_arrive_in_order(port: int) -> None:
    async with linked(port) as (first, second):
        for number in range(10_000):
            assert second.link.send(numbered(number))
            if number % 10 == 0:
                assert first.link.send(numbered(number))
        await first.gets(10_000)
        await second.gets(1000)
        assert first.numbers == list(range(10_000))
        assert second.numbers == list(range(0, 10_000, 10))
        assert (first.link.ignored, second.link.ignored) == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 65_536, 20 << 20])
async def test_a_frame_may_be_empty_or_larger_than_any_buffer(port: int, size: int) -> None:
    frame = pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=bytes(size))])) if size else pb.Frame()
    async with linked(port) as (first, second):
        assert first.link.send(frame)
        assert first.link.send(numbered(1))
        await second.gets(2)
        assert second.frames == [frame, numbered(1)]


async def test_a_frame_of_more_than_the_bound_is_the_callers_mistake(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FRAME_BYTES", 100)
    async with linked(port) as (first, second):
        with pytest.raises(ValueError, match="more than 100"):
            first.link.send(pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=bytes(100))])))
        assert first.link.send(numbered(1))
        await second.gets(1)
        assert second.numbers == [1]


async def test_a_callback_may_send(port: int) -> None:
    async with linked(port) as (first, second):

        def answer(frame: pb.Frame) -> None:
            second.link.send(numbered(frame.stored.number + 1))

        second.answer = answer
        first.link.send(numbered(1))
        await first.gets(1)
        assert first.numbers == [2]


async def test_without_a_link_nothing_is_sent(port: int) -> None:
    end = End(connect=port)
    assert not end.link.send(numbered(1))
    async with end.running():
        await until(lambda: end.link.problem)
        assert not end.link.is_up
        assert not end.link.send(numbered(2))
    assert not end.link.send(numbered(3))
    assert end.events == []


async def test_the_one_that_dials_may_come_first(port: int) -> None:
    async with End(connect=port).running() as second:
        await until(lambda: "connection refused" in second.link.problem)
        async with End(listen=port).running() as first:
            await first.comes_up()
            await second.comes_up()


@pytest.mark.parametrize("is_listener", [True, False])
async def test_one_that_starts_anew_is_linked_again(port: int, is_listener: bool) -> None:
    stays = End(connect=port) if is_listener else End(listen=port)
    async with stays.running():
        for times in range(1, 4):
            other = End(listen=port) if is_listener else End(connect=port)
            async with other.running():
                await stays.comes_up()
                await other.comes_up()
                assert other.link.send(numbered(times))
                await stays.gets(times)
            assert await stays.goes_down(times) == "the other end has closed the connection"
    assert stays.numbers == [1, 2, 3]
    assert stays.events[::2] == ["up"] * 3
    assert stays.link.connections == 3


@pytest.mark.parametrize("is_tls", [False, True])
async def test_what_was_sent_before_the_stop_arrives(
    port: int, is_tls: bool, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the system takes at once."""
    monkeypatch.setattr(module, "_FAREWELL_S", 30)
    frame = pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=bytes(1 << 20))]))
    server, client = (certificates.server, certificates.client) if is_tls else (None, None)
    async with End(listen=port, tls=server).running() as first:
        async with End(connect=port, tls=client).running() as second:
            await second.comes_up()
            for _ in range(12):
                second.link.send(frame)
        assert second.events == ["up", "stopped"]
        await first.goes_down()
        assert first.frames == [frame] * 12


async def test_a_stop_closes_everything(port: int) -> None:
    """Also what has not proved itself, and the port."""
    async with End(listen=port).running() as end:
        await end.listens()
        strangers = [await asyncio.open_connection(HOST, port) for _ in range(2)]
    for reader, writer in strangers:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    async with End(listen=port).running() as again, End(connect=port).running():
        await again.comes_up()


async def test_a_stop_in_the_middle_of_dialing_leaves_nothing(port: int) -> None:
    async with accepting(port) as accepted:
        async with End(connect=port).running():
            silent = await accepted.get()
        assert await silent.is_closed()


@pytest.mark.parametrize("is_listener", [True, False])
async def test_what_a_callback_raises_ends_the_run(port: int, is_listener: bool) -> None:
    listener, dialer = End(listen=port), End(connect=port)
    end, other = (listener, dialer) if is_listener else (dialer, listener)

    def fail(_: pb.Frame) -> None:
        raise OSError("the disk is full")  # not to be taken for an error of the connection

    end.answer = fail
    async with other.running():
        run = asyncio.create_task(end.link.run())
        await other.comes_up()
        other.link.send(numbered(1))
        with pytest.raises(ExceptionGroup) as raised:
            await run
    assert [str(each) for each in raised.value.exceptions] == ["the disk is full"]
    assert end.events == ["up", "stopped"]


async def test_an_address_that_is_in_use_is_waited_for(port: int) -> None:
    with socket.socket() as other:
        other.bind((HOST, port))
        other.listen()
        end = End(listen=port)
        running = end.running()
        await running.__aenter__()
        await until(lambda: "address already in use" in end.link.problem)
    async with End(connect=port).running():
        await end.comes_up()
    await running.__aexit__(None, None, None)


async def test_without_descriptors_it_accepts_later(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with End(listen=port).running() as end:
        await end.listens()
        with socket.socket() as waiting:
            waiting.setblocking(False)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                with pytest.raises(BlockingIOError):
                    waiting.connect((HOST, port))
                await until(lambda: "pair_accept_failed reason=too many open files" in caplog.messages)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with End(connect=port).running():
            await end.comes_up()


async def test_only_the_configured_address_is_listened_on(port: int) -> None:
    async with End(listen=port).running() as end:
        await end.listens()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)


async def test_an_ipv6_address(port: int) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    async with End(connect=port, host="::1").running() as second:
        await until(lambda: second.link.problem == f"[::1]:{port}: connection refused")
        async with End(listen=port, host="::1").running() as first:
            await second.comes_up()
            second.link.send(numbered(1))
            await first.gets(1)


async def test_a_host_name_that_nobody_knows_is_said(port: int) -> None:
    async with End(connect=port, host="nobody.invalid").running() as end:
        await until(lambda: end.link.problem)
        assert end.link.problem.startswith(f"nobody.invalid:{port}: ")


async def test_small_frames_go_at_once_and_a_dead_host_is_noticed(port: int) -> None:
    async with linked(port) as ends:
        for end in ends:
            current = end.link._current
            assert current is not None
            found = current.writer.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2000


async def test_there_is_one_log_line_for_each_change(port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ustreamer.pair")
    async with accepting(port) as accepted, End(connect=port).running() as end:
        for _ in range(5):
            await (await accepted.get()).close()
        await (await accepted.get()).prove()
        await end.comes_up()
    lines = [record.getMessage() for record in caplog.records]
    refused = f"{HOST}:{port}: it has closed the connection without a proof, as one does that has another key"
    assert lines == [
        f"pair_link_down reason={refused}",
        f"pair_link_up address={HOST}:{port}",
        "pair_link_down reason=stopped",
    ]
    assert KEY.decode() not in caplog.text


async def test_with_certificates_of_both(port: int, certificates: Certificates) -> None:
    async with (
        End(listen=port, tls=certificates.server).running() as first,
        End(connect=port, tls=certificates.client).running() as second,
    ):
        await first.comes_up()
        await second.comes_up()
        for number in range(1000):
            first.link.send(numbered(number))
            second.link.send(numbered(number))
        first.link.send(pb.Frame(settled=pb.Settled(flows=[pb.Settled.Flow(ids=bytes(5 << 20))])))
        await first.gets(1000)
        await second.gets(1001)
        assert second.numbers[:1000] == first.numbers == list(range(1000))


async def test_a_certificate_that_is_not_trusted_is_said(port: int, certificates: Certificates) -> None:
    strange = ssl.create_default_context()
    async with (
        End(listen=port, tls=certificates.server).running() as first,
        End(connect=port, tls=strange).running() as second,
    ):
        await until(lambda: "certificate" in second.link.problem)
        assert (first.events, second.events) == ([], [])


async def test_a_client_without_a_certificate_has_no_link(port: int, certificates: Certificates) -> None:
    plain = ssl.create_default_context(cafile=certificates.authorities)
    async with (
        End(listen=port, tls=certificates.server).running() as first,
        End(connect=port, tls=plain).running() as second,
    ):
        await until(lambda: "certificate" in second.link.problem)  # its own one is meant, not the key
        await until(lambda: first.link.refused)
        await until(lambda: second.link.problem)
        assert (first.events, second.events) == ([], [])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "an address"),
        ({"listen": (HOST, 1), "connect": (HOST, 1)}, "an address"),
        ({"listen": (HOST, 1), "key": b"x" * 15}, "at least 16 bytes"),
        ({"listen": (HOST, 1), "name": ""}, "one ASCII character"),
        ({"listen": (HOST, 1), "name": "ab"}, "one ASCII character"),
        ({"listen": (HOST, 1), "name": "ä"}, "one ASCII character"),
    ],
)
def test_options_that_make_no_link_are_refused(options: dict[str, object], reason: str) -> None:
    given: dict[str, object] = {"key": KEY, "name": "a", "authority": "gw"}
    given |= dict.fromkeys(("on_frame", "on_up", "on_down"), print) | options
    with pytest.raises(ValueError, match=reason):
        Link(**given)  # type: ignore[arg-type]  # what the parameters say


async def test_with_a_round_trip_longer_than_the_first_attempt_there_is_a_link_in_the_end(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proofs take two round trips of 0.2 s here, the first attempt 0.1 s at most, and the last one 0.8 s."""
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.1)
    async with Proxy(port) as proxy, End(listen=port).running() as first:
        proxy.delay(0.1)
        await first.listens()
        async with End(connect=proxy.port).running() as second:
            await second.comes_up()
            assert second.link.send(numbered(1))
            await first.gets(1)
