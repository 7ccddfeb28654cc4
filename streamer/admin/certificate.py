"""The certificate of the HTTP port: read again when its files have changed, so that it shows what commands trust.

The command line trusts the certificate in the file (`cli.running`). So what is renewed there is in use from the next
connection on, as other secrets are; a reload is not needed for it. Files that cannot be used change nothing: the earlier
ones stay in use.
"""

import logging
import os
from ssl import SSLContext

from streamer.config.tls import TlsConfig, TlsError, server_context
from streamer.files import Files

logger = logging.getLogger("ustreamer.admin")

_LOOK_S = 2.0
"""How long a connection waits for the look at the files, if their file system hangs."""

_Seen = tuple[tuple[int, ...], ...]


class PortCertificate:
    """What the section ``metrics.tls`` names. The constructor reads it, which may hang, and raises `TlsError`."""

    def __init__(self, options: TlsConfig) -> None:
        self._options = options
        self._files = Files(_LOOK_S)
        self._seen = self._look()
        self._context = server_context(options)

    async def context(self) -> SSLContext:
        """What the next connection needs."""
        try:
            await self._files.run(self._read_again)
        except OSError as exc:
            self._complain(exc.strerror or type(exc).__name__)
        return self._context

    def _read_again(self) -> None:
        found = self._look()
        if found == self._seen:
            return
        self._seen = found  # of before they are read: what changes meanwhile is seen the next time
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
        consequence = "the earlier one is shown, and commands that trust the file get no answer"
        logger.error(text, self._options.cert_file, problem, consequence, extra={"state": state})

    def _look(self) -> _Seen:
        return tuple(_identity(path) for _, path in self._options.files())


def _identity(path: os.PathLike[str]) -> tuple[int, ...]:
    """What differs once a file was changed or replaced; empty if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
