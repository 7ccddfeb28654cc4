"""The MQTT 5 transport with TLS and credentials."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.errors import ConfigurationError
from tests.brokers import Mosquitto, TlsFiles
from tests.certificates import write_certificates
from tests.e2e.mqtt_messages import TOPIC, numbered, texts
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint
from tests.waiting import until


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
