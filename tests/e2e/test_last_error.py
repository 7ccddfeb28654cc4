"""Why an endpoint is not up, as its operator reads it: with real brokers, sockets, certificates and Zenoh routers."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamer.journal.moments import as_moment
from streamer.logs.lines import JsonFormatter
from streamer.transports.base import LinkError, LinkState, UTransport
from streamer.transports.link_error import LinkFailure
from tests.brokers import Mosquitto, TlsFiles, any_broker
from tests.certificates import DAY, write_certificates
from tests.configurations import endpoint_of
from tests.e2e.answering import answering
from tests.mqtt_peer import Endpoint
from tests.ports import HOST, free_port
from tests.transport_events import EventLog
from tests.unit.features.api.daemon import running as running_daemon
from tests.waiting import until
from tests.zenoh_peers import PeerProcess, free_endpoint, raw_peer, running

WORD = "s3cret-canary"
UNKNOWN = "nobody.invalid"


async def error_of(transport: UTransport) -> LinkError:
    await until(lambda: transport.last_error is not None, "an error of the link")
    assert transport.last_error is not None
    return transport.last_error


def tls_broker(folder: Path, **valid: Any) -> Mosquitto:
    write_certificates(folder, **valid)
    return Mosquitto(tls=TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key"))


def own_files(folder: Path) -> dict[str, Path]:
    return {"ca_file": folder / "ca.pem", "cert_file": folder / "client.pem", "key_file": folder / "client.key"}


# -- MQTT


async def test_a_refused_connection_and_the_next_attempt() -> None:
    port = free_port()
    async with Endpoint(f"mqtt://{HOST}:{port}").running() as endpoint:
        error = await error_of(endpoint.transport)
        assert error[:3] == (LinkFailure.REFUSED, "connection refused", f"{HOST}:{port}")
        await until(lambda: endpoint.transport.next_attempt_ms is not None)
        assert endpoint.transport.next_attempt_ms is not None
        assert endpoint.transport.next_attempt_ms > error.at_ms
        await until(lambda: endpoint.transport.errors[LinkFailure.REFUSED] > 2)
        assert endpoint.transport.errors.keys() == {LinkFailure.REFUSED}


async def test_an_unknown_name() -> None:
    async with Endpoint(f"mqtt://{UNKNOWN}").running() as endpoint:
        error = await error_of(endpoint.transport)
        assert (error.reason, error.address) == (LinkFailure.UNKNOWN_HOST, f"{UNKNOWN}:1883")


@pytest.mark.mosquitto
async def test_a_wrong_password_and_a_password_file_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "word").write_text(WORD)
    with Mosquitto(users={"gateway": "right"}) as server:
        own: dict[str, Any] = {"username": "gateway", "password_file": tmp_path / "word"}
        async with Endpoint(server.url, **own).running() as endpoint:
            error = await error_of(endpoint.transport)
            assert error.reason is LinkFailure.AUTHENTICATION
            assert error.text.startswith("the broker refused: NOT_AUTHORIZED (0x87)")
            assert WORD not in str(error)
            (tmp_path / "word").unlink()
            await until(lambda: LinkFailure.FILES in endpoint.transport.errors)
            (tmp_path / "word").write_text("right")
            await endpoint.up()
            assert endpoint.transport.last_error is not None  # it stays, with its time
            assert endpoint.transport.next_attempt_ms is None


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("valid", "reason", "text"),
    [
        ({"server": -DAY}, LinkFailure.CERTIFICATE_EXPIRED, "of the other end is not accepted: certificate has expired"),
        ({"client": -DAY}, LinkFailure.CERTIFICATE_EXPIRED, "our certificate has expired"),
    ],
    ids=["the broker's", "ours"],
)
async def test_an_expired_certificate(tmp_path: Path, valid: Any, reason: LinkFailure, text: str) -> None:
    with tls_broker(tmp_path, **valid) as server:
        async with Endpoint(server.url, tls=own_files(tmp_path)).running() as endpoint:
            error = await error_of(endpoint.transport)
            assert error.reason is reason
            assert text in error.text


@pytest.mark.mosquitto
async def test_a_broker_of_another_authority(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write_certificates(tmp_path / "other")
    with tls_broker(tmp_path) as server:
        own = {**own_files(tmp_path), "ca_file": tmp_path / "other" / "ca.pem"}
        async with Endpoint(server.url, tls=own).running() as endpoint:
            error = await error_of(endpoint.transport)
            assert error.reason is LinkFailure.TLS


@pytest.mark.parametrize(
    ("answer", "options", "reason"),
    [
        (None, {"connect_timeout_s": 0.2}, LinkFailure.TIMEOUT),
        (b"", {}, LinkFailure.RESET),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", {}, LinkFailure.PROTOCOL),
        (mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.SERVER_BUSY).write(), {}, LinkFailure.BROKER),
        (mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.BANNED).write(), {}, LinkFailure.AUTHENTICATION),
    ],
)
async def test_what_answers_is_no_use(answer: bytes | None, options: Any, reason: LinkFailure) -> None:
    async with answering(answer) as port, Endpoint(f"mqtt://{HOST}:{port}", **options).running() as endpoint:
        assert (await error_of(endpoint.transport)).reason is reason


async def test_an_end_that_was_asked_for_is_no_error() -> None:
    async with answering(mqtt5.ConnAckPacket().write()) as port:
        endpoint = Endpoint(f"mqtt://{HOST}:{port}")
        async with endpoint.running():
            await until(lambda: endpoint.transport.last_error is not None)
            before = dict(endpoint.transport.errors)
        assert sum(endpoint.transport.errors.values()) <= sum(before.values()) + 1
        assert "stopped" not in str(endpoint.transport.last_error)


# -- Zenoh


@contextmanager
def zenoh_router(folder: Path, port: int, **settings: Any) -> Iterator[None]:
    with raw_peer(
        mode="router", listen=[f"tls/{HOST}:{port}" if settings.pop("tls", True) else f"tcp/{HOST}:{port}"], **settings
    ):
        yield


def zenoh_file(folder: Path, **settings: Any) -> Path:
    file = folder / "zenoh.json5"
    file.write_text(json.dumps(settings))
    return file


@pytest.mark.parametrize("mode", ["client", "peer"])
async def test_zenoh_refused_and_unknown(mode: str) -> None:
    port = free_port()
    for address, reason in ((f"tcp/{HOST}:{port}", LinkFailure.REFUSED), (f"tcp/{UNKNOWN}:7447", LinkFailure.UNKNOWN_HOST)):
        async with running(mode=mode, connect=[f"{address}#so_sndbuf=100000"]) as transport:
            error = await error_of(transport)
            assert (error.reason, error.address) == (reason, address)


@pytest.mark.parametrize("mode", ["client", "peer"])
async def test_zenoh_wrong_password(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.transports.zenoh.transport.LOOK_S", 0.1)
    (tmp_path / "users").write_text("gateway:right\n")
    here = {"dictionary_file": str(tmp_path / "users"), "user": "router", "password": "right"}
    port = free_port()
    file = zenoh_file(tmp_path, transport={"auth": {"usrpwd": {"user": "gateway", "password": WORD}}})
    with zenoh_router(tmp_path, port, tls=False, transport__auth__usrpwd=here):
        async with running(mode=mode, connect=[f"tcp/{HOST}:{port}"], config_file=str(file)) as transport:
            error = await error_of(transport)
            assert (error.reason, error.address) == (LinkFailure.AUTHENTICATION, f"tcp/{HOST}:{port}")
            assert WORD not in str(error)


@pytest.mark.parametrize(
    ("valid", "reason"),
    [({"server": -DAY}, LinkFailure.CERTIFICATE_EXPIRED), ({"client": -DAY}, LinkFailure.CERTIFICATE_EXPIRED)],
    ids=["the router's", "ours"],
)
async def test_zenoh_expired_certificate(tmp_path: Path, valid: Any, reason: LinkFailure) -> None:
    write_certificates(tmp_path, **valid)
    own = {
        "root_ca_certificate": str(tmp_path / "ca.pem"),
        "enable_mtls": True,
        "connect_certificate": str(tmp_path / "client.pem"),
        "connect_private_key": str(tmp_path / "client.key"),
    }
    theirs = {
        "root_ca_certificate": str(tmp_path / "ca.pem"),
        "enable_mtls": True,
        "listen_certificate": str(tmp_path / "server.pem"),
        "listen_private_key": str(tmp_path / "server.key"),
    }
    port = free_port()
    with zenoh_router(tmp_path, port, transport__link__tls=theirs):
        file = zenoh_file(tmp_path, transport={"link": {"tls": own}})
        async with running(mode="client", connect=[f"tls/{HOST}:{port}"], config_file=str(file)) as transport:
            error = await error_of(transport)
            assert (error.reason, error.address) == (reason, f"tls/{HOST}:{port}")


async def test_zenoh_link_that_ends_and_comes_back() -> None:
    port = free_port()
    async with running(connect=[f"tcp/{HOST}:{port}"]) as transport:
        assert (await error_of(transport)).reason is LinkFailure.REFUSED
        with raw_peer(listen=[f"tcp/{HOST}:{port}"]):
            await until(lambda: transport.state is LinkState.UP, "UP")
        await until(lambda: LinkFailure.RESET in transport.errors)
        await until(lambda: transport.last_error is not None and transport.last_error.reason is LinkFailure.REFUSED)
        link = transport.link
        assert link.first_error is not None
        assert (link.first_error.reason, link.first_error.text) == (
            LinkFailure.RESET,
            "the link to the last other node has ended",
        )


@pytest.mark.parametrize("other", ["peer", "client"])
async def test_nodes_that_come_to_a_zenoh_endpoint_and_leave_are_no_errors(other: str) -> None:
    events, place = EventLog(), free_endpoint()
    async with running(events, listen=[place]) as transport:
        await until(lambda: transport.state is LinkState.ALONE, "the session")
        for number in range(1, 4):
            with raw_peer(connect=[place], mode=other):
                await until(lambda: transport.state is LinkState.UP, "UP")
            await until(lambda: transport.state is LinkState.ALONE, "ALONE")
            assert transport.report().figures["nodes_lost"] == number
        assert (transport.errors, transport.last_error, events.reconnects) == ({}, None, 0)


async def test_nor_are_nodes_that_crash() -> None:
    events, place = EventLog(), free_endpoint()
    async with running(events, listen=[place], mode="router") as transport:
        for number in range(1, 3):
            async with PeerProcess.running(connect=[place]) as peer:
                await until(lambda: transport.state is LinkState.UP, "UP")
                await peer.kill()
            await until(lambda: transport.state is LinkState.ALONE, "ALONE")
            assert transport.report().figures["nodes_lost"] == number
        assert (transport.errors, transport.last_error, events.reconnects) == ({}, None, 0)


@pytest.mark.parametrize("mode", ["client", "peer"])
async def test_a_zenoh_router_that_is_lost_is_an_error_and_its_return_a_reconnection(mode: str) -> None:
    events, place = EventLog(), free_endpoint()
    async with running(events, mode=mode, connect=[place]) as transport:
        for _ in range(2):
            errors = transport.errors.get(LinkFailure.RESET, 0)
            with raw_peer(mode="router", listen=[place]):
                await until(lambda: transport.state is LinkState.UP, "UP")
                await until(lambda: transport.report().connected_to == (place,), "the other end")
            await until(lambda: transport.state is not LinkState.UP, "the loss")
            assert transport.errors[LinkFailure.RESET] == errors + 1
            await until(lambda: transport.report().connected_to == (), "no other end")
        assert events.reconnects == 1


# -- the log


def logged(caplog: pytest.LogCaptureFixture, event: str) -> dict[str, Any]:
    """The first line of an event, as it is in the log of a service."""
    record = next(record for record in caplog.records if str(record.msg).startswith(event))
    return dict(json.loads(JsonFormatter().format(record)))


async def test_the_log_has_address_reason_and_text_as_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    async with Endpoint(f"mqtt://{HOST}:{port}").running() as endpoint:
        await until(lambda: endpoint.transport.next_attempt_ms is not None)
        error = await error_of(endpoint.transport)
    line = logged(caplog, "link_down")
    assert (line["address"], line["reason"], line["text"]) == (error.address, error.reason, error.text)
    assert (line["address"], line["reason"], line["text"]) == (f"{HOST}:{port}", "refused", "connection refused")
    assert line["retry_in_s"] > 0


@pytest.mark.parametrize(("mode", "event"), [("client", "zenoh_open_failed"), ("peer", "link_down")])
async def test_so_it_has_for_zenoh(mode: str, event: str, caplog: pytest.LogCaptureFixture) -> None:
    place = free_endpoint()
    async with running(mode=mode, connect=[place]) as transport:
        await error_of(transport)
        await until(lambda: event in caplog.text)
    line = logged(caplog, event)
    assert (line["address"], line["reason"], line["text"]) == (place, "refused", "connection refused")


# -- the whole streamer


def samples_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def command(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "streamer", *words, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def test_since_when_and_the_cause_are_told_everywhere_while_attempts_go_on(tmp_path: Path) -> None:
    with any_broker() as broker:
        address = broker.url.removeprefix("mqtt://")
        endpoints = {
            "cloud": endpoint_of("mqtt5", "*", broker=broker.url, reconnect={"initial_ms": 20, "max_ms": 100}),
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": f"{tmp_path}-v"}},
        }
        routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}]
        async with running_daemon(tmp_path, endpoints=endpoints, routes=routes) as served:
            transport = served.daemon.transports["cloud"]
            await until(lambda: transport.state is LinkState.UP, "UP")

            async def link() -> Any:
                return next(each for each in (await served.ask("/readyz")).json["endpoints"] if each["name"] == "cloud")

            up = await link()
            assert (up["connected_to"], up["first_error"], up["why"]) == ([address], None, None)
            top = json.loads(await command("top", "--config", str(served.file), "--json", "--interval", "0.1"))
            assert {each["name"]: each["connected_to"] for each in top["endpoints"]}["cloud"] == [address]
            metrics = samples_of((await served.ask("/metrics")).text)
            assert metrics["ustreamer_endpoint_connection_info"] == [
                ({"endpoint": "cloud", "transport": "mqtt5", "address": address}, 1.0)
            ]
            broker.kill()
            await until(lambda: transport.errors.get(LinkFailure.REFUSED, 0) > 2, "some attempts")
            first = await link()
            assert (first["state"], first["connected_to"]) == ("down", [])
            assert first["since"] > up["since"]
            assert first["first_error"]["reason"] == "reset"
            assert first["last_error"]["reason"] == "refused"
            assert first["first_error"]["when"] <= first["since"] < first["last_error"]["when"]
            attempts = transport.errors[LinkFailure.REFUSED]
            await until(lambda: transport.errors[LinkFailure.REFUSED] > attempts, "one more")
            later = await link()
            assert (later["since"], later["first_error"]) == (first["since"], first["first_error"])
            assert later["why"] == (
                f"is not connected since {first['since']}: {address}: {first['first_error']['text']}; "
                f"now {address}: connection refused"
            )
            api = (await served.ask("/api/v1/endpoints")).json["endpoints"]
            assert {each["name"]: each["why"] for each in api}["cloud"] == later["why"]
            assert f"endpoint cloud (mqtt5) {later['why']}" in (await served.ask("/readyz")).json["reasons"]
            metrics = samples_of((await served.ask("/metrics")).text)
            since = {
                labels["endpoint"]: value for labels, value in metrics["ustreamer_endpoint_state_since_timestamp_seconds"]
            }
            assert as_moment(round(since["cloud"] * 1000)) == first["since"]
            assert "ustreamer_endpoint_connection_info" not in metrics
            file = str(served.file)
            assert f"! endpoint cloud (mqtt5) {later['why']}\n" in await command(
                "top", "--config", file, "--once", "--interval", "0.1"
            )
            words = ("--running", "--type", "publish", "--source", "//veh1/A8000/2/8A50")
            assert f"  and waits there: cloud {later['why']}" in await command("explain", "--config", file, *words)


async def test_each_of_them_reads_differently_for_the_operator(tmp_path: Path) -> None:
    refused, alone = free_port(), free_port()
    options: dict[str, Any] = {
        "refused": ("mqtt5", {"broker": f"mqtt://{HOST}:{refused}"}),
        "unknown": ("mqtt5", {"broker": f"mqtt://{UNKNOWN}"}),
        "lonely": ("zenoh", {"connect": [f"tcp/{HOST}:{alone}#iface=lo"]}),
    }
    endpoints = {
        name: {"transport": transport, "authorities": [name], "options": each} for name, (transport, each) in options.items()
    }
    async with running_daemon(tmp_path, endpoints=endpoints, routes=[{"from": "refused", "to": "unknown"}]) as served:
        await until(lambda: all(each.last_error for name, each in served.daemon.transports.items() if name in options))
        ready = (await served.ask("/readyz")).json
        links = {each["name"]: each for each in ready["endpoints"]}
        since = {name: link["since"] for name, link in links.items()}
        text = f"endpoint refused (mqtt5) is not connected since {since['refused']}: {HOST}:{refused}: connection refused"
        assert ready["reasons"][0] == text
        text = f"endpoint unknown (mqtt5) is not connected since {since['unknown']}: {UNKNOWN}:1883: "
        assert ready["reasons"][1].startswith(text)
        text = f"no other node is connected to it since {since['lonely']}: tcp/{HOST}:{alone}: connection refused"
        assert ready["notes"] == [f"endpoint lonely (zenoh) is alone: {text}"]
        assert links["refused"]["last_error"]["reason"] == "refused"
        assert (await served.ask("/api/v1")).json["notes"] == ready["notes"]
        api = {each["name"]: each for each in (await served.ask("/api/v1/endpoints")).json["endpoints"]}
        assert api["unknown"]["last_error"]["reason"] == "unknown_host"
        assert api["lonely"]["addresses"] == [f"tcp/{HOST}:{alone}"]
        families = text_string_to_metric_families((await served.ask("/metrics")).text)
        samples = {
            (sample.name, sample.labels.get("endpoint"), sample.labels.get("reason")): sample.value
            for family in families
            for sample in family.samples
        }
        assert samples["ustreamer_link_errors_total", "refused", "refused"] >= 1
        assert samples["ustreamer_link_errors_total", "unknown", "unknown_host"] >= 1
        assert samples["ustreamer_last_link_error_timestamp_seconds", "lonely", "refused"] > 1e9
        command = ["top", "--config", str(served.file), "--once", "--interval", "0.1"]
        top = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "streamer", *command, stdout=asyncio.subprocess.PIPE
        )
        shown = (await top.communicate())[0].decode()
    assert f"! endpoint refused (mqtt5) {links['refused']['why']}\n" in shown
    assert f"- endpoint lonely (zenoh) {links['lonely']['why']}\n" in shown
