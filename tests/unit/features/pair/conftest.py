"""Tests of the link run on each event loop that the daemon may have: their transports have nothing in common."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from streamer.features.pair import link
from tests.certificates import write_certificates
from tests.ports import free_port
from tests.unit.features.pair.stations import Stations


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops = {"uvloop": uvloop.new_event_loop}
    return loops | {"asyncio": asyncio.new_event_loop} if item.path.name.startswith("test_link") else loops


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """At the end there is no task of the test any more; pytest looks for sockets."""
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that dials does not pause for long."""
    monkeypatch.setattr(link, "PAUSE_S", 0.01)


class Certificates:
    """Of the one that listens and of the one that dials, each of which trusts the other's."""

    def __init__(self, directory: Path) -> None:
        write_certificates(directory)
        self.authorities = directory / "ca.pem"
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.authorities)
        self.server.load_cert_chain(directory / "server.pem", directory / "server.key")
        self.server.verify_mode = ssl.CERT_REQUIRED
        self.client = ssl.create_default_context(cafile=self.authorities)
        self.client.load_cert_chain(directory / "client.pem", directory / "client.key")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
async def stations(tmp_path: Path) -> AsyncIterator[Stations]:
    found = Stations(tmp_path)
    for each in (found.first, found.second):
        await each.start()
    yield found
    for each in (found.first, found.second):
        await each.kill()
