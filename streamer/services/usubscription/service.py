"""The uSubscription service: takes what came, decides, writes it down, and only then says anything."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from streamer import config
from streamer.router.clock import Clock
from streamer.services.core import Core
from streamer.services.state import State
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri

Want = Callable[[UUri, Mapping[str, int]], None]
"""Tells which authorities want a topic, and how often (ms; 0: every message). Empty: nobody."""


class USubscription:
    """core.usubscription on our own authority and on those of ``options.local``."""

    SCHEMA: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, core: Core, state: State, options: config.Usubscription, authority: str, clock: Clock, want: Want
    ) -> None:
        core.serve(0, 3, self._take)

    def restore(self) -> None:
        """Read what is on disk and tell who wants what. Blocks: before the router starts."""

    async def run(self) -> None:
        """Serve until cancelled."""

    def gauges(self) -> Mapping[str, int]:
        """How many there are of what."""
        return {}

    def _take(self, message: UMessage, done: Callable[[], None]) -> None:
        done()
