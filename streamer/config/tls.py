"""TLS on the HTTP port (`metrics.tls`), and the files of other sections with TLS."""

import ssl
from pathlib import Path

from streamer.config.types import FilePath, Section
from streamer.files import read_file


class TlsConfig(Section):
    """TLS on the HTTP port."""

    cert_file: FilePath
    """The certificate and the intermediate ones, as PEM."""
    key_file: FilePath
    """The private key of the certificate, as PEM and without a passphrase."""
    client_ca_file: FilePath | None = None
    """CA certificates, as PEM: clients with a certificate from them need no token. None: no client certificates."""

    def files(self) -> list[tuple[str, FilePath]]:
        """Return the keys with the files that they name."""
        found = [("cert_file", self.cert_file), ("key_file", self.key_file)]
        return found if self.client_ca_file is None else [*found, ("client_ca_file", self.client_ca_file)]


class TlsError(ValueError):
    """The files cannot be used; the text begins with the key of the wrong one."""


def server_context(options: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context of a server, from the files. Raises `TlsError`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authorities = {} if options.client_ca_file is None else {"client_ca_file": options.client_ca_file}
    load_files(context, "metrics.tls", options.cert_file, options.key_file, **authorities)
    if authorities:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def load_files(context: ssl.SSLContext, section: str, cert_file: Path, key_file: Path, **authorities: Path) -> None:
    """Load the files that a section names, CA certificates by their keys. Raises `TlsError`."""
    for key, path in ({"cert_file": cert_file, "key_file": key_file} | authorities).items():
        try:
            read_file(path)
        except OSError as exc:
            raise TlsError(f"{section}.{key}: {path}: {exc.strerror or type(exc).__name__}") from exc
    try:
        context.load_cert_chain(cert_file, key_file, password=no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as exc:
        expected = "expected a certificate and the key that belongs to it, as PEM and without a passphrase"
        raise TlsError(f"{section}.cert_file, key_file: {expected}") from exc
    for key, path in authorities.items():
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, OSError) as exc:
            raise TlsError(f"{section}.{key}: {path}: expected certificates, as PEM") from exc


def no_passphrase() -> str:
    """Raise ValueError instead of OpenSSL's prompt for a passphrase on the terminal."""
    raise ValueError("the key has a passphrase")
