"""A browser, and a daemon between an MQTT broker and a Zenoh network: shared by the tests of a file."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.console.browser import Console, chromium
from tests.console.scene import TOKEN
from tests.e2e.topology import Topology, TopologyThread
from tests.independent.message import Plain
from tests.waiting import until


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopologyThread]:
    folder = tmp_path_factory.mktemp("console")
    (folder / "token").write_text(TOKEN)
    changes: dict[str, Any] = {
        "journal": {"path": str(folder / "journal.db")},
        "control": {"http_token_file": str(folder / "token")},
        "utwin": {},
        "shutdown": {"drain_s": 0},
    }
    with TopologyThread(Topology("mqtt/in-vehicle", "zenoh", **changes)) as thread:
        yield thread


@pytest.fixture
def topology(thread: TopologyThread) -> Topology:
    return thread.topology


@pytest.fixture
def console(browser: Browser, topology: Topology) -> Iterator[Console]:
    console = Console(browser, f"http://127.0.0.1:{topology.daemon.admin}")
    yield console
    console.close()


@pytest.fixture
def send(thread: TopologyThread) -> Any:
    def send(messages: list[Plain]) -> None:
        thread.run(thread.topology.networks[0].side.send(messages))

    return send


@pytest.fixture
def arrives(thread: TopologyThread) -> Any:
    """Wait until messages with these ids are on the other side."""

    def arrives(messages: list[Plain]) -> None:
        wanted = {message.id for message in messages}
        far = thread.topology.networks[1].side
        thread.run(until(lambda: wanted <= {message.id for message in far.arrived}, what="the messages on the other side"))

    return arrives
