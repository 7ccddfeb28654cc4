"""The live part of the administration API: events, and the last hour."""

from collections.abc import Callable, Sequence

from aiohttp import web

from streamer.config.models import Config
from streamer.delivery.router import Router
from streamer.features.api.events import Events
from streamer.features.api.history import History
from streamer.features.api.streams import Streams
from streamer.features.record import Feature


class LivePages:
    """The pages with live data. The daemon's clock calls ``tick``."""

    def __init__(self, router: Router, config: Callable[[], Config], features: Sequence[Feature] = ()) -> None:
        """``config`` returns the configuration in use."""
        self._streams = Streams()
        self._history = History(router)
        self._events = Events(router, config, self._streams, features)

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [*self._history.routes(), *self._events.routes()]

    def tick(self, now_s: float) -> None:
        """Do the due periodic work; ``now_s`` is monotonic. Costs a comparison or two if nothing is due."""
        self._history.tick(now_s)
        self._events.tick(now_s)

    def close(self) -> None:
        """End every stream."""
        self._streams.close()
