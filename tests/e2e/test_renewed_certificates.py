"""A reload takes over what was renewed on disk: certificates of a broker's link, with nothing else in the file changed."""

import asyncio
from pathlib import Path

import pytest

from streamer.main import main
from streamer.transports.base import LinkState
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.waiting import until

pytestmark = pytest.mark.mosquitto


def connected(server: Mosquitto) -> int:
    """How often the daemon has connected to the broker."""
    return server.log_file.read_text().count(" as gateway ")


def is_up(served: DaemonHarness) -> bool:
    return served.daemon.transports["cloud"].state is LinkState.UP


async def test_a_reload_connects_with_the_renewed_certificate_of_a_broker_and_with_the_same_one_not_at_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "earlier").mkdir()
    (tmp_path / "later").mkdir()
    write_certificates(tmp_path / "earlier")
    write_certificates(tmp_path / "later")
    for name in ("client.pem", "client.key"):
        (tmp_path / name).write_bytes((tmp_path / "earlier" / name).read_bytes())
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join((tmp_path / age / "ca.pem").read_bytes() for age in ("earlier", "later")))
    files = TlsFiles(both, tmp_path / "earlier" / "server.pem", tmp_path / "earlier" / "server.key")
    with Mosquitto(tls=files) as server:
        own = {"ca_file": str(both), "cert_file": str(tmp_path / "client.pem"), "key_file": str(tmp_path / "client.key")}
        options = {"broker": server.url, "client_id": "gateway", "tls": own}
        endpoints = {
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": str(tmp_path)}},
            "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": options},
        }
        async with running(tmp_path, endpoints=endpoints) as served:
            command = ["reload", "--config", str(served.file)]
            await until(lambda: is_up(served))
            assert await asyncio.to_thread(main, command) == 0
            assert connected(server) == 1
            for name in ("client.pem", "client.key"):
                (tmp_path / "later" / name).replace(tmp_path / name)
            before = served.daemon.transports["cloud"]
            assert await asyncio.to_thread(main, command) == 0
            await until(lambda: is_up(served))
            assert served.daemon.transports["cloud"] is not before
            assert connected(server) == 2
