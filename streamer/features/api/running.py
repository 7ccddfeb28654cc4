"""The daemon's interface for the pages of the administration API."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from streamer.config.models import Config
from streamer.delivery.router import Router
from streamer.features.host.host import ServiceHost
from streamer.features.pair.view import PairView

if TYPE_CHECKING:
    from streamer.features.traces.tracing import Tracing

Judge = Callable[[Config], Awaitable[list[str]]]


class PairedView(Protocol):
    """A streamer's part in its pair."""

    @property
    def view(self) -> PairView:
        """The state of the pair as this streamer sees it now."""

    def hand_over(self, anyway: bool = False) -> str:
        """End, hand over, and start anew on standby. Return why the other one cannot take over; empty if it can.

        ``anyway``: also to one that has no link to nodes that this one hears.
        """


class RunningStreamer(Protocol):
    """A running streamer."""

    router: Router
    service_host: ServiceHost

    @property
    def config(self) -> Config:
        """The configuration in use."""

    @property
    def pair(self) -> "PairedView | None":
        """The state of the pair, and the way to hand over. None: the streamer works alone."""

    @property
    def tracing(self) -> "Tracing | None":
        """The writer of the routing traces that is in use."""

    @property
    def started_ms(self) -> int:
        """Return the time of the start in Unix milliseconds."""

    @property
    def started_s(self) -> float:
        """Return the time of the start in seconds of the monotonic clock."""

    async def read_file(self) -> Config | list[str]:
        """Return the configuration file as it is now, which is not used, or its problems."""

    async def reload(self, who: str, where: str, judge: Judge | None = None) -> list[str]:
        """Load and use the configuration file. Returns its problems: with any, the earlier configuration stays in use.

        ``judge`` returns why a configuration that could be used is not wanted.
        """
