"""docs/how-to/rotate-certificates.md, step by step: MQTT and administration, while messages go through."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography import x509

from streamer.cli.main import main
from streamer.transports.base import LinkState
from streamer.uprotocol.message import publish
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.flow.harness import SPEED
from tests.pages import DOCS
from tests.ports import HOST
from tests.unit.admin.daemon import DaemonHarness, running
from tests.unit.admin.played import now_ms
from tests.waiting import until

pytestmark = pytest.mark.mosquitto

PAGE = (DOCS / "how-to/rotate-certificates.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(text: str, served: DaemonHarness) -> list[list[str]]:
    """The commands in a part of the page, for the configuration of the test."""
    found = re.findall(r"`streamer ((?:reload|check)[^`]*)`", text)
    return [each.replace("streamer.yaml", str(served.file)).split() for each in found]


def replace(folder: Path, later: Path, names: Mapping[str, str]) -> None:
    """Put new files in place as the page says: beside the old ones, and renamed."""
    for name, new in names.items():
        (folder / f"{name}.new").write_bytes((later / new).read_bytes())
        (folder / f"{name}.new").replace(folder / name)


def serial(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


async def shown_by_the_port(served: DaemonHarness, ca: Path) -> int:
    """The serial number of the certificate that a new client of the port sees."""

    def read() -> int:
        return serial(ssl.get_server_certificate((HOST, served.port), ca_certs=str(ca)).encode())

    return await asyncio.to_thread(read)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for age in ("earlier", "later"):
        (tmp_path / age).mkdir()
        write_certificates(tmp_path / age)
    for name in ("ca.pem", "client.pem", "client.key", "server.pem", "server.key"):
        (tmp_path / name).write_bytes((tmp_path / "earlier" / name).read_bytes())
    return tmp_path


async def test_each_step_of_the_page_and_every_message_arrives(folder: Path) -> None:
    later = folder / "later"
    both = folder / "both.pem"
    both.write_bytes(b"".join((folder / age / "ca.pem").read_bytes() for age in ("earlier", "later")))
    files = TlsFiles(both, folder / "earlier/server.pem", folder / "earlier/server.key")
    own = {"ca_file": "ca.pem", "cert_file": "client.pem", "key_file": "client.key"}
    port = {"cert_file": str(folder / "server.pem"), "key_file": str(folder / "server.key")}
    with Mosquitto(tls=files, persistence=True) as server:
        tls = {key: str(folder / name) for key, name in own.items()}
        options = {"broker": server.url, "client_id": "gateway", "tls": tls, "reconnect": {"initial_ms": 20, "max_ms": 100}}
        endpoints = {
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": str(folder)}},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": options},
        }
        async with running(folder, tls=port, endpoints=endpoints) as served:
            sent = 0

            async def one_more_arrives() -> None:
                nonlocal sent
                sent += 1
                served.arrive("vehicle", publish(now_ms(served), SPEED, b"%d" % sent))
                stats = next(each for each in served.daemon.router.accounts() if each.source == "vehicle").stats
                await until(lambda: stats.settled == sent)
                assert {outcome.value for outcome, _ in stats.outcomes} == {"delivered"}

            async def run_commands_of(text: str) -> None:
                there = commands(text, served)
                assert there
                for command in there:
                    assert await asyncio.to_thread(main, command) == 0
                await until(lambda: served.daemon.transports["cloud"].state is LinkState.UP)

            await until(lambda: served.daemon.transports["cloud"].state is LinkState.UP)
            await one_more_arrives()

            # the streamer's own certificate, of another CA, which the broker accepts already
            replace(folder, later, {"client.pem": "client.pem", "client.key": "client.key"})
            await run_commands_of(section("MQTT: the streamer's own certificate"))
            await one_more_arrives()

            # the CA of the broker
            steps = section("MQTT: the CA of the broker").split("\n2. ")
            (folder / "ca.pem").write_bytes(both.read_bytes())
            assert "and reload" in steps[0]
            await run_commands_of(section("MQTT: the streamer's own certificate"))
            server.options = type(server.options)(
                tls=TlsFiles(both, later / "server.pem", later / "server.key"), persistence=True
            )
            server.restart()
            await until(lambda: served.daemon.transports["cloud"].state is LinkState.UP)
            await one_more_arrives()
            replace(folder, later, {"ca.pem": "ca.pem"})
            await run_commands_of(section("MQTT: the streamer's own certificate"))
            await one_more_arrives()

            # administration
            assert "nothing to reload" in section("Administration")
            assert await shown_by_the_port(served, folder / "earlier/ca.pem") == serial((folder / "server.pem").read_bytes())
            (folder / "server.key").write_text("half a key")
            assert await shown_by_the_port(served, folder / "earlier/ca.pem") == serial((folder / "server.pem").read_bytes())
            replace(folder, later, {"server.pem": "server.pem", "server.key": "server.key"})
            assert await shown_by_the_port(served, later / "ca.pem") == serial((later / "server.pem").read_bytes())
            await run_commands_of(section("MQTT: the streamer's own certificate"))  # through the port
            await one_more_arrives()


def test_the_page_names_keys_that_there_are() -> None:
    known = (DOCS / "configuration.md").read_text()
    for key in ("tls.cert_file", "metrics.tls.client_ca_file", "config_file", "jwks_file"):
        assert f"`{key}`" in PAGE
        assert key.rpartition(".")[2] in known
