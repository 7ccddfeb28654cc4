"""The HTTP port: `/metrics`, `/healthz` (the event loop runs), `/readyz` (everything works), and further pages."""

import logging
from collections.abc import Callable, Iterable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from streamer.config.metrics import ControlConfig, MetricsConfig
from streamer.delivery.router import Router
from streamer.features.api.access import AUTHENTICATED, access, active_only, is_authenticated
from streamer.features.api.answers import PROLONG, errors_in_json
from streamer.features.api.certificate import PortCertificate
from streamer.features.api.listener import AdminListener
from streamer.features.api.metrics import CONTENT_TYPE, Exposition
from streamer.features.api.readiness import alone, link_of, unready
from streamer.features.api.request_queue import is_gone
from streamer.files import Files

BODY_BYTES = 65_536
"""The most bytes of a request's body."""

_TOKEN_S = 5.0
"""How long a request waits for the check of its token if the token's file system hangs."""

_PAGES_END_S = 2.0
"""How long a stop waits for requests that are being handled."""


def _without_what_was_sent(record: logging.LogRecord) -> bool:
    """Remove the quoted request from a parser's log record: it may contain the token."""
    if record.exc_info and isinstance(exc := record.exc_info[1], HttpProcessingError | web.RequestPayloadError):
        where = record.args[0] if isinstance(record.args, tuple) and record.args else "unknown"
        record.msg, record.args = "http_not_understood where=%s problem=%s", (where, type(exc).__name__)
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.exc_info = None
    return True


_http_logger = logging.getLogger("ustreamer.admin.http")
_http_logger.addFilter(_without_what_was_sent)


class AdminServer:
    """Serves the admin pages on one port, one request per connection."""

    def __init__(
        self,
        router: Router,
        exposition: Exposition,
        options: MetricsConfig,
        control: ControlConfig | None = None,
        pages: Iterable[web.RouteDef] = (),
        tls: PortCertificate | None = None,
        notes: Callable[[], list[str]] = list,
    ) -> None:
        """``control`` decides who may change something; its token file may be one that the streamer has made.

        ``notes`` are for `/readyz`.
        """
        self._notes = notes
        self._pages = list(pages)
        self._options = options
        self._control = control or ControlConfig()
        self._tls = tls
        self._files = Files(_TOKEN_S)
        self._router = router
        self._exposition = exposition
        self._runner: web.AppRunner | None = None
        self._listener: AdminListener | None = None

    def own_pages(self) -> list[web.RouteDef]:
        """Return the HTTP routes without a version in their path, which other programs expect there."""
        return [web.get("/metrics", self._metrics), web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]

    def use(self, options: MetricsConfig, control: ControlConfig, tls: PortCertificate | None = None) -> None:
        """Apply other access rules and TLS files from now on. Address and port stay the same."""
        self._options, self._control, self._tls = options, control, tls
        if self._listener is not None:
            self._listener.tls = tls

    def permit(self, control: ControlConfig) -> None:
        """Apply another section `control` from now on."""
        self._control = control

    async def start(self) -> None:
        """Start listening. Raises OSError, for example if the port is taken."""
        checks = access(lambda: (self._options, self._control), self._files)
        active = active_only(lambda: self._router.standby() is not None)
        app = web.Application(middlewares=[_close_connection, errors_in_json, checks, active], client_max_size=BODY_BYTES)
        app.add_routes([*self.own_pages(), *self._pages])
        app[PROLONG] = self._prolong
        app[AUTHENTICATED] = lambda request: is_authenticated(request, self._options, self._control, self._files)
        app.on_response_prepare.append(_set_headers)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_logger,
            shutdown_timeout=_PAGES_END_S,
            auto_decompress=False,  # otherwise, aiohttp decompresses on the loop even bodies that no page reads
        )
        await self._runner.setup()
        factory = self._runner.server
        assert factory is not None
        listener = AdminListener(factory, self._options.host, self._options.port, self._tls)
        await listener.open()
        self._listener = listener

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _prolong(self, request: web.Request, by_s: float) -> None:
        if self._listener is not None:
            self._listener.prolong(request.transport, by_s)

    async def _metrics(self, request: web.Request) -> web.Response:
        text = await self._exposition.scrape()
        if is_gone(request):  # compressing takes time on the event loop
            return web.Response()
        answer = web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})
        answer.enable_compression()
        return answer

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = unready(self._router)
        answer = {
            "ready": not reasons,
            "reasons": reasons,
            "notes": [*alone(self._router), *self._notes()],
            "endpoints": [
                {"name": account.name, "transport": account.transport, **link_of(account.link)}
                for account in self._router.endpoint_accounts()
            ],
        }
        return web.json_response(answer, status=503 if reasons else 200)


@web.middleware
async def _close_connection(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Close the connection after each answer: it may last only a few seconds anyway (`AdminListener`)."""
    try:
        answer = await handler(request)
    except web.HTTPException as exc:
        exc.force_close()
        raise
    answer.force_close()
    return answer


async def _set_headers(request: web.Request, answer: web.StreamResponse) -> None:
    """Add the headers that forbid caching and guessing the content type."""
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    answer.headers.setdefault("Cache-Control", "no-store")
