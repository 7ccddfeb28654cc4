"""The certificate of the HTTP port: loaded again when its files have changed, as the command line trusts the files.

The command line trusts the certificate in the file (`cli.running`). So a renewed certificate is in use from the next
connection on, without a reload, as other secrets are. If the files cannot be used, the earlier certificate stays in use.
"""

import logging
import os
from ssl import SSLContext

from streamer.config.tls import TlsConfig, TlsError, server_context
from streamer.files import Files

logger = logging.getLogger("ustreamer.admin")

_LOOK_S = 2.0
"""How long a connection waits for the check of the files if their file system hangs."""

_Seen = tuple[tuple[int, ...], ...]


class PortCertificate:
    """The files that ``metrics.tls`` names. The constructor reads them, which may hang, and raises `TlsError`."""

    def __init__(self, options: TlsConfig) -> None:
        self._options = options
        self._files = Files(_LOOK_S)
        self._seen = self._look()
        self._context = server_context(options)

    async def context(self) -> SSLContext:
        """Return the TLS context for the next connection, after a check of the files."""
        try:
            await self._files.run(self._read_again)
        except OSError as exc:
            self._complain(exc.strerror or type(exc).__name__)
        return self._context

    def _read_again(self) -> None:
        found = self._look()
        if found == self._seen:
            return
        self._seen = found  # from before the read: a change during the read is noticed next time
        try:
            self._context = server_context(self._options)
        except TlsError as exc:
            self._complain(str(exc))
            return
        state = ("certificate of the HTTP port", str(found))
        logger.info("http_certificate_read file=%s", self._options.cert_file, extra={"state": state})

    def _complain(self, problem: str) -> None:
        text = "http_certificate_unusable file=%s problem=%s consequence=%s"
        state = ("certificate of the HTTP port", problem)
        consequence = "the earlier one stays in use, and commands that trust the file cannot connect"
        logger.error(text, self._options.cert_file, problem, consequence, extra={"state": state})

    def _look(self) -> _Seen:
        return tuple(_identity(path) for _, path in self._options.files())


def _identity(path: os.PathLike[str]) -> tuple[int, ...]:
    """Return a key that differs once a file was changed or replaced; empty if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
