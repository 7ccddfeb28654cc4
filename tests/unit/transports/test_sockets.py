"""Names are looked up so that one that is not answered holds up nobody else."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streamer.transports.sockets import addresses_of

HANGING = [f"unanswered{number}.example" for number in range(40)]  # more than any pool of threads has
GOOD = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80))]


class NameServer:
    """Stands in for `socket.getaddrinfo`: answers for good.example and numeric addresses; for other names once it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()
        self._real = socket.getaddrinfo

    def __call__(self, host: str, port: int, flags: int = 0, **keywords: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return self._real(host, port, flags=flags, **keywords)
        self.asked.append(host)
        if host == "wrong.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host != "good.example":
            assert self.answer.wait(60)
        return GOOD


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answer.set()


async def test_names_that_are_not_answered_hold_up_no_other_one(server: NameServer) -> None:
    waiting = [asyncio.create_task(addresses_of(name, 80)) for name in HANGING]
    while len(server.asked) < len(HANGING):
        await asyncio.sleep(0)
    assert await addresses_of("good.example", 80) == GOOD
    assert not any(each.done() for each in waiting)
    server.answer.set()
    assert await asyncio.gather(*waiting) == [GOOD] * len(HANGING)


async def test_a_name_has_one_look_up_at_a_time_however_often_it_is_asked_for(server: NameServer) -> None:
    for _ in range(3):  # each gives up before there is an answer
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await addresses_of(HANGING[0], 80)
    last = asyncio.create_task(addresses_of(HANGING[0], 80))
    await asyncio.sleep(0)
    server.answer.set()
    assert await last == GOOD
    assert server.asked == [HANGING[0]]
    assert await addresses_of(HANGING[0], 80) == GOOD
    assert server.asked == [HANGING[0]] * 2  # nothing is remembered


async def test_a_numeric_address_needs_no_look_up(server: NameServer) -> None:
    for host in ("127.0.0.1", "::1"):
        assert (await addresses_of(host, 80))[0][4][:2] == (host, 80)
    assert server.asked == []


async def test_a_name_that_is_not_known_is_an_error_each_time(server: NameServer) -> None:
    for _ in range(2):
        with pytest.raises(socket.gaierror, match="not known"):
            await addresses_of("wrong.example", 80)


PROGRAM = """
import asyncio, socket, threading, uvloop
from streamer.transports.sockets import addresses_of

def hang(*_, flags=0, **__):
    if flags & socket.AI_NUMERICHOST:
        raise socket.gaierror(socket.EAI_NONAME, "no number")
    threading.Event().wait()

async def ask():
    try:
        async with asyncio.timeout(0.1):
            await addresses_of("unanswered.example", 80)
    except TimeoutError:
        print("given up", flush=True)

socket.getaddrinfo = hang
uvloop.run(ask())
"""


def test_the_process_ends_while_a_name_is_not_answered() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("given up\n", "", 0)
