"""The MQTT 5 transport with TLS and credentials."""

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from streamer.transports.errors import ConfigurationError
from tests.brokers import HOST, Mosquitto, TlsFiles, needs_mosquitto
from tests.e2e.signals import TOPIC, numbered, texts
from tests.mqtt_peer import Endpoint, Inbox, until


def _write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key


def _write_certificates(directory: Path) -> None:
    """A CA, a broker's and a client's certificate: ca.pem, server.pem, server.key, client.pem, client.key."""
    now = datetime.datetime.now(datetime.UTC)
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    ca_key = _write_key(directory / "ca.key")

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    ca = (
        builder(ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    (directory / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    for who, usage in (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH)):
        key = _write_key(directory / f"{who}.key")
        certificate = (
            builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)]), key)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        (directory / f"{who}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


@pytest.mark.mosquitto
@needs_mosquitto
async def test_tls_with_client_certificate_and_password_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write_certificates(tmp_path)
    word_file = tmp_path / "password"
    word_file.write_text("wrong\n")
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key")
    own = {"ca_file": tmp_path / "ca.pem", "cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
    inbox = Inbox()
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
    assert "wrong" not in caplog.text


@pytest.mark.mosquitto
@needs_mosquitto
async def test_broker_of_an_unknown_authority_is_not_talked_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write_certificates(tmp_path)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key", require_certificate=False)
    with Mosquitto(tls=files) as server:
        async with Endpoint(server.url).running() as endpoint:
            await until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text or "certificate" in caplog.text)
            assert endpoint.states == []


async def test_missing_file_is_found_at_start(tmp_path: Path) -> None:
    endpoint = Endpoint("mqtt://127.0.0.1:9", password_file=tmp_path / "missing")
    with pytest.raises(ConfigurationError) as caught:
        await endpoint.transport.start()
    assert caught.value.key == "password_file"
