"""The HTTP port of a running streamer: assembles its pages, its access rules, its certificate and its token.

Each group of pages is an object with ``routes()``, in a module of its own.
"""

import logging

from aiohttp import web

from streamer.config.metrics import ControlConfig
from streamer.config.models import Config
from streamer.config.tls import TlsError
from streamer.config.token import made_token_file, make_token, token_file
from streamer.features.api.certificate import PortCertificate
from streamer.features.api.console import ConsolePages
from streamer.features.api.expiry import CertificateExpiry
from streamer.features.api.letters import LetterPages
from streamer.features.api.live import LivePages
from streamer.features.api.metrics import Exposition
from streamer.features.api.openapi import OpenApiPages
from streamer.features.api.server import AdminServer
from streamer.features.api.status import StatusPages
from streamer.features.record import RunningStreamer
from streamer.files import Files

logger = logging.getLogger("ustreamer.admin")


class AdminPort:
    """The HTTP port, if the configuration has one. The constructor raises `TlsError` for files that cannot be used."""

    def __init__(self, running: RunningStreamer) -> None:
        config = running.config
        self._expiry = CertificateExpiry(running.router, lambda: running.config)
        families = [*(feature.families for feature in running.features), self._expiry.families]
        self.exposition = Exposition(running.router, families)
        self._live = LivePages(running.router, lambda: running.config, running.features)
        self._server: AdminServer | None = None
        self._files = Files()
        if config.metrics is not None:
            self._server = AdminServer(
                running.router,
                self.exposition,
                config.metrics,
                config.control,
                [*pages(running), *self._live.routes(), *ConsolePages(lambda: _has_console(running.config)).routes()],
                None if config.metrics.tls is None else PortCertificate(config.metrics.tls),
                lambda: [note for feature in running.features for note in feature.notes()],
            )

    async def start(self) -> None:
        """Start listening. Raises OSError, for example if the port is taken; its text begins with the key."""
        if self._server is not None:
            try:
                await self._server.start()
            except OSError as exc:
                raise OSError(exc.errno, f"metrics.listen: {exc.strerror or exc}") from exc

    def tick(self, now_s: float) -> None:
        """Do the due periodic work of the pages; ``now_s`` is monotonic."""
        self._live.tick(now_s)
        self._expiry.tick(now_s)

    def prepare(self, config: Config) -> list[str]:
        """Read the files of another configuration for `use`. Return the problems. May hang: use a thread."""
        tls = None if config.metrics is None else config.metrics.tls
        try:
            self._prepared = _control(config), None if tls is None else PortCertificate(tls)
        except TlsError as exc:
            return [str(exc)]
        return []

    def use(self, config: Config) -> None:
        """Apply the access rules and TLS files that were prepared. Address and port stay the same."""
        if self._server is not None and config.metrics is not None:
            self._server.use(config.metrics, *self._prepared)

    async def provide_token(self, config: Config) -> None:
        """Create the file with the token beside the journal if it is needed and missing. The folder has to exist."""
        if self._server is not None:
            try:
                self._server.permit(await self._files.run(lambda: _control(config)))
            except OSError as exc:
                logger.error("http_token_not_made reason=%s", exc.strerror)

    def close(self) -> None:
        """End every stream: no events follow."""
        self._live.close()
        self._expiry.close()

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.stop()


def _has_console(config: Config) -> bool:
    return config.metrics is not None and config.metrics.has_console


def pages(running: RunningStreamer) -> list[web.RouteDef]:
    """Return the HTTP routes of all pages except the streams."""
    kinds = (StatusPages(running), LetterPages(running), OpenApiPages())
    of_features = [route for feature in running.features for route in feature.pages(running)]
    return [*(route for kind in kinds for route in kind.routes()), *of_features]


def _control(config: Config) -> ControlConfig:
    """Return the section `control` with the token file in use: the configured one, or a safe file that the streamer made."""
    path = made_token_file(config)
    if path is not None:
        try:
            if make_token(path):
                logger.info("http_token_made file=%s", path)
        except OSError as exc:
            consequence = "only clients with a certificate can change anything over HTTP"
            logger.error("http_token_not_made file=%s reason=%s consequence=%s", path, exc.strerror or exc, consequence)
            return config.control
    return config.control.model_copy(update={"http_token_file": token_file(config)})
