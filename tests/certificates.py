"""Certificates for tests: a CA of their own, and what it signs."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.ports import HOST

DAY = datetime.timedelta(days=1)


def write_certificates(
    directory: Path, server: datetime.timedelta = DAY, client: datetime.timedelta = DAY, ca: datetime.timedelta = DAY
) -> None:
    """A CA, a broker's and a client's certificate: ca.pem, server.pem, server.key, client.pem, client.key.

    ``server``, ``client``, ``ca``: how long each of them is still valid; negative: since when it is not.
    """
    now = datetime.datetime.now(datetime.UTC)
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    ca_key = _write_key(directory / "ca.key")

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey, valid: datetime.timedelta) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    signed = (
        builder(ca_name, ca_key, ca)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    (directory / "ca.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    for who, usage, valid in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH, server),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH, client),
    ):
        key = _write_key(directory / f"{who}.key")
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName(f"{who}.test")]
        certificate = (
            builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, who)]), key, valid)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        (directory / f"{who}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key
