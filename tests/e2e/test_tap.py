"""``streamer tap`` beside a real daemon under load: what it shows, and what it never holds up."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.topology import Topology
from tests.independent.message import Plain
from tests.preloaded import ForkedStreamer
from tests.process import ROOT
from tests.waiting import until

TOKEN = "0123456789abcdef0123"
SPEED = ("alpha", 0x10, 1, 0x8001)
ORDERS = ("beta", 0x20, 1, 0x9000)
HOSTILE = b"\x1b]0;pwned\x07\nevent: message\ndata: {}\n\n"


class TapCommand:
    """``streamer tap …`` as a process, with what it has printed."""

    def __init__(self, topology: Topology, log: Path, *words: str) -> None:
        self._log = log
        argv = ("tap", "--config", str(topology.daemon.path), *words)
        self.process = ForkedStreamer(argv, ROOT, log, os.environ)

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    async def until(self, number: int, having: str) -> None:
        await until(
            lambda: self.process.poll() is not None or sum(having in line for line in self.lines) >= number,
            what=f"{number} lines with {having}",
        )
        assert sum(having in line for line in self.lines) == number, self.lines

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, 30)


@pytest.fixture
async def topology(tmp_path: Path) -> AsyncIterator[Topology]:
    (tmp_path / "token").write_text(TOKEN)
    control = {"http_token_file": str(tmp_path / "token")}
    async with Topology("zenoh", "mqtt/off-vehicle", control=control) as topology:
        yield topology


def publishes(source: tuple[str, int, int, int], *payloads: bytes) -> list[Plain]:
    return [Plain(1, source, payload=payload, payload_format=6, priority=2) for payload in payloads]


async def begun(topology: Topology, number: int) -> None:
    await until(lambda: topology.daemon.log.count("tap_began") == number, what="a tap")


async def test_it_shows_what_ends_goes_on_after_reload_and_restart_and_ends_at_ctrl_c(
    topology: Topology, tmp_path: Path
) -> None:
    daemon = topology.daemon
    wrong = TapCommand(topology, tmp_path / "wrong", "--type", "publishes")
    assert await wrong.ended() == 2
    assert wrong.lines == ["type: 'publishes': expected publish, request, response, notification"]
    tap = TapCommand(topology, tmp_path / "tap", "--payload", "text", "--route", "first-second")
    ups = TapCommand(topology, tmp_path / "json", "--json", "--count", "2", "--outcome", "sent", "--payload", "json")
    await begun(topology, 2)

    await topology.exchange(0, publishes(SPEED, b"one", HOSTILE))
    await topology.exchange(1, publishes(ORDERS, b'{"go": 1}', b"two"))
    await tap.until(2, "delivered      first-second (first → second)  publish  //alpha/10/1/8001")
    assert "\x1b" not in "".join(tap.lines)
    assert sum("event: message" in line for line in tap.lines) == 1
    assert await ups.ended() == 0  # Zenoh confirms nothing: sent is all that is known
    assert ups.lines[0].startswith("watching messages of outcome sent at 127.0.0.1:")
    assert ups.lines[0].endswith("; ends after --count 2, or at Ctrl-C")
    shown = [json.loads(line) for line in ups.lines[1:]]
    assert [each["payload"] for each in shown] == [{"json": {"go": 1}}, {"text": "two"}]
    assert {each["source"] for each in shown} == {"//beta/20/1/9000"}

    daemon.signal(signal.SIGHUP)
    await until(lambda: "reloaded" in daemon.log, what="the reload")
    await topology.exchange(0, publishes(SPEED, b"three"))
    await tap.until(3, "delivered ")
    assert not any("the streamer" in line for line in tap.lines)

    daemon.signal(signal.SIGTERM)
    assert await daemon.ended() == 0
    await tap.until(1, "waiting until it answers again")
    daemon.start()
    await daemon.until_up()
    await tap.until(1, "the streamer answers again")
    await topology.exchange(0, publishes(SPEED, b"four"))
    await tap.until(4, "delivered ")

    tap.process.send_signal(signal.SIGINT)
    assert await tap.ended() == 0
    await until(lambda: daemon.log.count("tap_ended") == 3, what="the end of the last tap")
    daemon.check_books()


async def test_a_reader_that_stalls_holds_nothing_up(topology: Topology) -> None:
    daemon = topology.daemon
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        stalled.connect(("127.0.0.1", daemon.admin))
        asked = f"GET /api/v1/tap?payload=hex&rate=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        stalled.sendall(asked.encode())
        await begun(topology, 1)
        # Twice what the tap, the connection and the sockets together hold.
        for _ in range(10):
            await topology.exchange(0, publishes(SPEED, *[b"x" * 4000] * 1000), within_s=60)
        assert daemon.total("ustreamer_outcomes_total", route="first-second", outcome="delivered") == 10_000

        def rest() -> bool:
            stalled.settimeout(30)
            seen = b""
            while b"event: left_out" not in seen:
                seen = seen[-100:] + stalled.recv(65536)
            return True

        assert await asyncio.to_thread(rest)
    await until(lambda: "tap_ended" in daemon.log, what="the end of the tap")
    daemon.check_books()


async def test_without_the_token_nothing_is_shown_and_the_reason_is(topology: Topology, tmp_path: Path) -> None:
    config = topology.daemon.config | {"control": {"http_token_file": str(tmp_path / "other")}}
    (tmp_path / "other").write_text("another token, of other people")
    path = topology.daemon.path
    topology.daemon.path = tmp_path / "other.yaml"
    topology.daemon.write(config)
    tap = TapCommand(topology, tmp_path / "tap")
    topology.daemon.path = path
    assert await tap.ended() == 1
    wrong = f"the token in {tmp_path / 'other'} is not the one of this streamer"
    assert tap.lines == [f"expected Authorization: Bearer, with the streamer's token; {wrong}"]
