"""docs/how-to/rotate-certificates.md, step by step: MQTT, Zenoh, administration and JWKS, while messages go through."""

import asyncio
import json
import re
import socket
import ssl
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from streamer.transports.base import LinkState
from streamer.transports.link_error import LinkFailure
from streamer.uprotocol.message import Options, publish, request
from streamer.uprotocol.uri import UUri
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.e2e.how_to import up
from tests.flow.harness import SPEED
from tests.independent.zenoh import ZenohSide
from tests.pages import DOCS
from tests.ports import HOST, free_port
from tests.preloaded import command as run_command
from tests.tokens import AUDIENCE, ISSUER, OTHER_KEY, jwk, private_key, token, write_keys
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import now_ms
from tests.waiting import until
from tests.zenoh_peers import raw_peer

pytestmark = pytest.mark.mosquitto

PAGE = (DOCS / "how-to/rotate-certificates.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(text: str) -> list[list[str]]:
    """The commands in a part of the page."""
    return [each.split() for each in re.findall(r"^    sudo -u ustreamer streamer (.*)$", text, re.MULTILINE)]


async def run_commands_of(title: str, served: DaemonHarness) -> None:
    """Run the commands of a section on the test's daemon. Every endpoint comes up again."""
    there = commands(section(title))
    assert there
    for command in there:
        done = await run_command(*command, "--config", str(served.file))
        assert done.returncode == 0, (command, done.stderr)
    await until(lambda: all(each.state is LinkState.UP for each in served.daemon.transports.values()))


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

            await until(lambda: served.daemon.transports["cloud"].state is LinkState.UP)
            await one_more_arrives()

            # the streamer's own certificate, of another CA, which the broker accepts already
            replace(folder, later, {"client.pem": "client.pem", "client.key": "client.key"})
            await run_commands_of("MQTT: the streamer's own certificate", served)
            await one_more_arrives()

            # the CA of the broker
            steps = section("MQTT: the CA of the broker").split("\n2. ")
            (folder / "ca.pem").write_bytes(both.read_bytes())
            assert "and reload" in steps[0]
            await run_commands_of("MQTT: the streamer's own certificate", served)
            server.options = type(server.options)(
                tls=TlsFiles(both, later / "server.pem", later / "server.key"), persistence=True
            )
            server.restart()
            await until(lambda: served.daemon.transports["cloud"].state is LinkState.UP)
            await one_more_arrives()
            replace(folder, later, {"ca.pem": "ca.pem"})
            await run_commands_of("MQTT: the streamer's own certificate", served)
            await one_more_arrives()

            # administration
            assert "nothing to reload" in section("Administration")
            assert await shown_by_the_port(served, folder / "earlier/ca.pem") == serial((folder / "server.pem").read_bytes())
            (folder / "server.key").write_text("half a key")
            assert await shown_by_the_port(served, folder / "earlier/ca.pem") == serial((folder / "server.pem").read_bytes())
            replace(folder, later, {"server.pem": "server.pem", "server.key": "server.key"})
            assert await shown_by_the_port(served, later / "ca.pem") == serial((later / "server.pem").read_bytes())
            await run_commands_of("MQTT: the streamer's own certificate", served)  # through the port
            await one_more_arrives()


def zenoh_tls(folder: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """The section ``transport/link/tls`` with these files, in which both sides show a certificate."""
    return {"enable_mtls": True, "verify_name_on_connect": False} | {key: str(folder / name) for key, name in names.items()}


def zenoh_endpoint(folder: Path, tls: dict[str, Any], **options: Any) -> dict[str, Any]:
    file = folder / "zenoh.json5"
    file.write_text(json.dumps({"transport": {"link": {"tls": tls}}, "scouting": {"multicast": {"enabled": False}}}))
    return {"transport": "zenoh", "options": {"config_file": str(file), **options}}


def bundle(folder: Path) -> Path:
    """A file with both CA certificates."""
    both = folder / "both.pem"
    both.write_bytes(b"".join((folder / age / "ca.pem").read_bytes() for age in ("earlier", "later")))
    return both


def total(served: DaemonHarness, source: str) -> int:
    return next(each for each in served.daemon.router.accounts() if each.source == source).stats.settled


async def test_the_files_of_a_zenoh_endpoint_where_others_connect(folder: Path) -> None:
    """The page's section Zenoh, ``listen_certificate``; what a vehicle sends before and after it arrives."""
    bundle(folder)
    where = f"tls/{HOST}:{free_port()}"
    own = {"root_ca_certificate": "both.pem", "listen_certificate": "server.pem", "listen_private_key": "server.key"}
    theirs = {"root_ca_certificate": "both.pem", "connect_certificate": "client.pem", "connect_private_key": "client.key"}
    endpoints = {
        "vehicle": {"authorities": ["veh1"], **zenoh_endpoint(folder, zenoh_tls(folder, own), listen=[where])},
        "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": str(folder)}},
    }
    vehicle_tls = {f"transport/link/tls/{key}": value for key, value in zenoh_tls(folder, theirs).items()}
    async with running(folder, endpoints=endpoints) as served, ZenohSide(connect=[where], settings=vehicle_tls) as vehicle:
        link = served.daemon.transports["vehicle"]
        await until(lambda: link.state is LinkState.UP, "the link")
        await vehicle.until_subscribed(up(1))
        await vehicle.send([up(1)])
        await until(lambda: total(served, "vehicle") == 1, "the first message")
        assert {await shown_at(where, folder)} == {serial((folder / "earlier/server.pem").read_bytes())}
        replace(folder, folder / "later", {"server.pem": "server.pem", "server.key": "server.key"})
        await run_commands_of("Zenoh", served)
        assert served.daemon.transports["vehicle"] is not link
        assert {await shown_at(where, folder)} == {serial((folder / "later/server.pem").read_bytes())}
        await vehicle.until_subscribed(up(2))
        await vehicle.send([up(2)])
        await until(lambda: total(served, "vehicle") == 2, "the second message")


async def shown_at(where: str, folder: Path) -> int:
    """The serial number of the certificate that a client of a Zenoh endpoint with TLS sees."""

    def read() -> int:
        context = ssl.create_default_context(cafile=str(folder / "both.pem"))
        context.check_hostname = False
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        host, _, port = where.partition("/")[2].partition(":")
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as secure:
            der = secure.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number

    return await asyncio.to_thread(read)


async def test_the_files_of_a_zenoh_endpoint_that_connects_and_the_three_steps_of_a_ca(folder: Path) -> None:
    """The page's section Zenoh, ``connect_certificate`` and ``root_ca_certificate``."""
    later, both = folder / "later", bundle(folder)
    port = free_port()
    own = {"root_ca_certificate": "ca.pem", "connect_certificate": "client.pem", "connect_private_key": "client.key"}
    connects = zenoh_endpoint(folder, zenoh_tls(folder, own), mode="client", connect=[f"tls/{HOST}:{port}"])
    endpoints = {
        "vehicle": {"authorities": ["veh1"], **connects},
        "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": str(folder)}},
    }
    age = "earlier"

    def router() -> AbstractContextManager[Any]:
        names = {"listen_certificate": f"{age}/server.pem", "listen_private_key": f"{age}/server.key"}
        tls = zenoh_tls(folder, {"root_ca_certificate": "both.pem", **names})
        return raw_peer(mode="router", listen=[f"tls/{HOST}:{port}"], transport__link__tls=tls)

    def state() -> LinkState:
        return served.daemon.transports["vehicle"].state

    async with running(folder, endpoints=endpoints) as served:
        with router():
            await until(lambda: state() is LinkState.UP, "the link with the earlier files")
            before = served.daemon.transports["vehicle"]
            replace(folder, later, {"client.pem": "client.pem", "client.key": "client.key"})
            await run_commands_of("Zenoh", served)
            assert served.daemon.transports["vehicle"] is not before
            assert state() is LinkState.UP

            (folder / "ca.pem").write_bytes(both.read_bytes())
            await run_commands_of("Zenoh", served)
        await until(lambda: state() is LinkState.DOWN, "the end of the router")
        age = "later"
        with router():
            await until(lambda: state() is LinkState.UP, "the link to the later certificate")
            replace(folder, later, {"ca.pem": "ca.pem"})
            await run_commands_of("Zenoh", served)
        age = "earlier"
        await until(lambda: state() is LinkState.DOWN, "the end of the router")
        with router():
            link = served.daemon.transports["vehicle"]
            await until(lambda: LinkFailure.TLS in link.errors, "the refusal of what the earlier CA has signed")
            assert state() is LinkState.DOWN


async def test_the_keys_of_tokens(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The page's section JWKS: at each step, whose tokens are believed. Nothing is reloaded."""
    caplog.set_level("INFO")
    earlier, later = ({"key": private_key("ES256"), "kid": "earlier"}, {"key": OTHER_KEY, "kid": "later"})
    keys = folder / "jwks.json"

    def write(*listed: Mapping[str, Any]) -> None:
        write_keys(folder / "jwks.new", *(jwk(each["key"], kid=each["kid"]) for each in listed)).replace(keys)

    write(earlier)
    options = {"jwks_file": str(keys), "issuer": ISSUER, "audience": AUDIENCE}
    method = UUri.parse("//cloud/B/1/8")
    allowed: dict[str, Any] = {"endpoints": {each: {"rules": [{"allow": {}}]} for each in ("vehicle", "cloud")}}
    needs = {"methods": [{"method": str(method), "tap": True}], "tap": {"verifier": "jwt", "options": options}}
    async with running(folder, permissions=allowed | needs) as served:

        async def is_believed(key: Mapping[str, Any]) -> bool:
            """Whether a Request with a token of this key gets through."""
            before = total_of(served)
            word = token(now_ms(served) / 1000, key=key["key"], kid=key["kid"], scope=[str(method)])
            source = UUri.parse("//veh1/A8000/2/0")
            served.arrive("vehicle", request(now_ms(served), source, method, 60_000, b"", Options(token=word)))
            await until(lambda: total_of(served).total() > before.total(), "the end of the Request")
            return total_of(served)["delivered"] > before["delivered"]

        async def believed() -> list[str]:
            return [str(each["kid"]) for each in (earlier, later) if await is_believed(each)]

        assert await believed() == ["earlier"]
        write(earlier, later)
        await until(lambda: caplog.text.count(f"file={keys} keys=2") == 1, "the new key")
        assert await believed() == ["earlier", "later"]
        write(later)
        await until(lambda: caplog.text.count(f"file={keys} keys=1") == 2, "the end of the earlier key")
        assert await believed() == ["later"]


def total_of(served: DaemonHarness) -> Counter[str]:
    """How many messages of the vehicle had each outcome."""
    counted: Counter[str] = Counter()
    for each in served.daemon.router.accounts():
        if each.source == "vehicle":
            counted.update({outcome.value: number for (outcome, _), number in each.stats.outcomes.items()})
    return counted


def test_the_page_names_keys_that_there_are() -> None:
    known = (DOCS / "configuration.md").read_text()
    for key in ("tls.cert_file", "metrics.tls.client_ca_file", "config_file", "jwks_file"):
        assert f"`{key}`" in PAGE
        assert key.rpartition(".")[2] in known
