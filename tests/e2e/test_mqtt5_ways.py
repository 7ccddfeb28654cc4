"""The MQTT 5 transport with TLS and credentials, and through a proxy."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.errors import ConfigurationError
from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.probe import try_broker
from streamer.transports.probe import Answer, Verdict
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.e2e.mqtt_connection import connected, exchanged
from tests.e2e.mqtt_messages import TOPIC, numbered, texts
from tests.fault.proxy import Proxy
from tests.http_proxy import HttpProxyServer
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.ports import HOST, free_port
from tests.waiting import until

SECRET = "s3cret"


@pytest.mark.mosquitto
async def test_tls_with_client_certificate_and_password_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_certificates(tmp_path)
    word_file = tmp_path / "password"
    word_file.write_text("mistaken\n")
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key")
    own = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
    inbox = RecordingListener()
    with Mosquitto(tls=files, users={"gateway": "s3cret"}) as server:
        assert server.url.startswith("mqtts://")
        endpoint = Endpoint(server.url, "cloud", tls=own, username="gateway", password_file=word_file)
        async with endpoint.running():
            await endpoint.transport.register_listener(TOPIC, None, inbox)
            await until(lambda: "NOT_AUTHORIZED" in caplog.text)
            word_file.write_text("s3cret\n")  # rotated: read again at the next attempt
            await endpoint.up()
            async with Endpoint(server.url, "veh1", tls=own, username="gateway", password_file=word_file).running() as car:
                await car.up()
                car.submit(numbered(100))
                await until(lambda: len(inbox.received) == 100)
    assert inbox.payloads == texts(100)
    assert "s3cret" not in caplog.text
    assert "mistaken" not in caplog.text


@pytest.mark.mosquitto
async def test_broker_of_an_unknown_certificate_authority_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    with Mosquitto(tls=files) as server:
        async with Endpoint(server.url).running() as endpoint:
            await until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text or "certificate" in caplog.text)
            assert endpoint.states == []


@pytest.mark.parametrize("secure", [True, False])
async def test_a_broker_that_closes_properly_is_told_from_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, secure: bool
) -> None:
    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(mqtt5.ConnAckPacket().write())
        await up.wait()
        writer.close()

    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    up = asyncio.Event()
    server = await asyncio.start_server(answer_and_close, "127.0.0.1", 0, ssl=context if secure else None)
    async with server:
        port = server.sockets[0].getsockname()[1]
        own: dict[str, Any] = {"tls": {"ca_file": tmp_path / "ca.pem"}} if secure else {}
        async with Endpoint(f"mqtt{'s' if secure else ''}://127.0.0.1:{port}", **own).running() as endpoint:
            await endpoint.up()
            up.set()
            await until(lambda: "closed by the broker" in caplog.text, "the reason")
    assert "Error" not in caplog.text


async def test_missing_file_is_found_at_start(tmp_path: Path) -> None:
    endpoint = Endpoint("mqtt://127.0.0.1:9", password_file=tmp_path / "missing")
    with pytest.raises(ConfigurationError) as caught:
        await endpoint.transport.start()
    assert caught.value.key == "password_file"


def credentials(folder: Path, text: str = f"gateway:{SECRET}") -> Path:
    path = folder / "proxy"
    path.write_text(f"{text}\n")
    return path


@pytest.mark.mosquitto
@pytest.mark.parametrize("secure", [False, True], ids=["mqtt", "mqtts"])
async def test_messages_cross_a_proxy_that_wants_credentials(
    secure: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    tls: dict[str, Any] = {"tls": {"ca_file": tmp_path / "ca.pem"}} if secure else {}
    with Mosquitto(tls=files if secure else None) as server:
        async with HttpProxyServer(f"gateway:{SECRET}") as proxy:
            proxy.writes_single_bytes = True
            through = {"proxy": proxy.url, "proxy_credentials_file": credentials(tmp_path), **tls}
            await exchanged(Endpoint(server.url, **through), Endpoint(server.url, "veh1", **tls))
    assert proxy.heads[0].startswith(f"CONNECT {HOST}:{server.port} HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n".encode())
    assert SECRET not in caplog.text


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("name", "is_up"), [("server.test", True), ("broker.invalid", False)], ids=["its own", "of another"]
)
async def test_the_proxy_looks_the_name_up_and_the_certificate_has_to_be_the_brokers(
    name: str, is_up: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    with Mosquitto(tls=files) as server:
        async with HttpProxyServer(names={name: (HOST, server.port)}) as proxy:
            endpoint = Endpoint(f"mqtts://{name}:8883", proxy=proxy.url, tls={"ca_file": tmp_path / "ca.pem"})
            async with endpoint.running():
                if is_up:
                    await endpoint.up()
                else:
                    await until(lambda: "link_down" in caplog.text, "the refusal")
                    assert "the certificate of the other end is not accepted: " in caplog.text
                    assert endpoint.states == []
    assert proxy.heads[0].startswith(f"CONNECT {name}:8883 ".encode())


NOT_PROXIES = [
    pytest.param(
        b"HTTP/1.1 407 Who?\r\n\r\n", "answered '407 Who?': it does not accept the user or the password in", id="407"
    ),
    pytest.param(
        b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: NTLM\r\n\r\n",
        "answered '407 Who?': it takes no password as it is",
        id="NTLM",
    ),
    pytest.param(b"HTTP/1.1 403 No\r\n\r\n", "answered '403 No': it does not allow broker.invalid:1883: have it", id="403"),
    pytest.param(
        b"HTTP/1.0 502 Bad Gateway\r\nX: y\r\n\r\nno such host",
        "answered '502 Bad Gateway': it does not reach broker.invalid:1883, or does not find its name",
        id="502",
    ),
    pytest.param(b"HTTP/1.1 200 OK\r\n\r\n<html>", "answered '200 OK': is it a proxy that opens tunnels", id="a page"),
    pytest.param(b"HTTP/1.1 302 Found\r\n\r\n", "answered '302 Found': is it a proxy that opens tunnels", id="a login"),
    pytest.param(b"\x15\x03\x01\0\2\2\x46", "speaks TLS", id="TLS"),
    pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000, "sent more than 16384 bytes", id="endless headers"),
    pytest.param(b"HTTP/1.1 200 O", "closed the connection without an answer", id="half an answer"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is not an HTTP proxy", id="another protocol"),
    pytest.param(b"\r\n\r\n", "is not an HTTP proxy", id="nothing at all"),
    pytest.param(b"", "does not answer within", id="silence"),
]


@pytest.mark.parametrize(("answer", "expected"), NOT_PROXIES)
async def test_what_is_wrong_with_a_proxy_is_told_as_the_proxys(
    answer: bytes, expected: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.transports.mqtt5.probe.CONNECT_S", 0.5)
    async with HttpProxyServer(answer=answer) as proxy:
        given: dict[str, Any] = {
            "proxy": proxy.url,
            "proxy_credentials_file": credentials(tmp_path),
            "connect_timeout_s": 0.5,
        }
        async with Endpoint("mqtt://broker.invalid", **given).running() as endpoint:
            await until(lambda: "link_down" in caplog.text, "the end of the attempt")
            found = await tried(endpoint.transport.options)
    line = next(record.message for record in caplog.records if "link_down" in record.message)
    assert f"proxy {HOST}:{proxy.port} {expected}" in line or f"{HOST}:{proxy.port} {expected}" in line
    assert found.verdict is Verdict.PROBLEM
    assert "broker.invalid:1883 through the proxy" in found.text
    assert expected.removesuffix(" within") in found.text
    assert SECRET not in caplog.text + found.text


async def tried(options: Mqtt5Options) -> Answer:
    return await try_broker(options, options.brokers[0])


async def test_a_proxy_that_is_not_there_is_told_as_the_proxys(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    async with Endpoint("mqtt://broker.invalid", proxy=f"http://{HOST}:{port}").running() as endpoint:
        await until(lambda: "link_down" in caplog.text, "the end of the attempt")
        found = await tried(endpoint.transport.options)
        assert endpoint.transport.last_error is not None
        assert endpoint.transport.last_error.reason is LinkFailure.PROXY
    assert f"reason=proxy text=the proxy {HOST}:{port} cannot be reached: " in caplog.text
    assert f"broker.invalid:1883 through the proxy {HOST}:{port}: the proxy: " in found.text


async def test_the_probe_passes_the_proxy(fake: FakeBroker) -> None:
    async with HttpProxyServer(names={"broker.invalid": (HOST, int(fake.url.rpartition(":")[2]))}) as proxy:
        options = Endpoint("mqtt://broker.invalid", proxy=proxy.url).transport.options
        asked = asyncio.create_task(tried(options))
        await (await fake.peer()).accept()
        found = await asked
    where = f"broker.invalid:1883 through the proxy {HOST}:{proxy.port}"
    assert found == Answer(Verdict.OK, f"{where}: the broker accepts a client without credentials")


async def test_a_proxy_that_ends_its_tunnels_again_and_again_loses_nothing(fake: FakeBroker) -> None:
    async with HttpProxyServer() as inner, Proxy(inner.port) as way:
        endpoint = Endpoint(fake.url, proxy=f"http://{HOST}:{way.port}")
        async with endpoint.running():
            for number in range(3):
                await connected(fake, endpoint, session_present=number > 0)
                way.reset()
                await until(lambda: not endpoint.is_up, "DOWN")
            await connected(fake, endpoint, session_present=True)
    assert len(inner.heads) == 4


@pytest.mark.parametrize("alpn", ["mqtt", None])
async def test_tls_asks_for_the_protocol_of_the_options(alpn: str | None, tmp_path: Path) -> None:
    asked: list[str | None] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        writer.close()

    write_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.set_alpn_protocols(["http/1.1", "mqtt"])
    async with await asyncio.start_server(accepted, HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with Endpoint(f"mqtts://{HOST}:{port}", alpn=alpn, tls={"ca_file": tmp_path / "ca.pem"}).running():
            await until(lambda: asked, "a connection")
    assert asked[0] == alpn
