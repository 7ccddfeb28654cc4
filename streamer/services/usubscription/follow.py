"""Follows a uSubscription service elsewhere, instead of running one."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from streamer import config
from streamer.router.clock import Clock
from streamer.services.core import Core
from streamer.services.state import State
from streamer.services.usubscription.service import Want
from streamer.uprotocol.message import UMessage


class Follower:
    """Knows what the service of ``options.external`` knows, as far as it was asked for."""

    SCHEMA: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, core: Core, state: State, options: config.Usubscription, authority: str, clock: Clock, want: Want
    ) -> None:
        core.serve(0, 3, self._take)

    def restore(self) -> None:
        """Read what is on disk and tell who wants what. Blocks: before the router starts."""

    async def run(self) -> None:
        """Follow until cancelled."""

    def gauges(self) -> Mapping[str, int]:
        """How many there are of what."""
        return {}

    def _take(self, message: UMessage, done: Callable[[], None]) -> None:
        done()
