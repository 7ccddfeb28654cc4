"""The services that live in this streamer, put together: what they remember, what they do, when they begin and end."""

import asyncio
import logging
from collections.abc import Container, Mapping
from pathlib import Path

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.routing.table import local_authorities
from streamer.services.multicast import Receivers
from streamer.services.pause import PauseService
from streamer.services.router import RouterForServices
from streamer.services.rpc import RpcService
from streamer.services.state import StateError, StateFile
from streamer.services.usubscription.follow import Follower
from streamer.services.usubscription.service import USubscription
from streamer.transports.local import LocalTransport
from streamer.uprotocol.well_known import USTREAMER, USUBSCRIPTION, EntityId

logger = logging.getLogger("ustreamer.services")

TABLES = {**PauseService.TABLES, **Receivers.TABLES, **USubscription.TABLES, **Follower.TABLES}
"""Of the state file, whatever the configuration has services for."""

_AGAIN_S = 1.0


def entities(config: Config) -> tuple[EntityId, ...]:
    """The services that a streamer with this configuration has; the router has to know before they are built."""
    return (USTREAMER,) if config.usubscription is None else (USTREAMER, USUBSCRIPTION)


class ServiceHost:
    """core.usubscription and core.ustreamer, on the local endpoint."""

    def __init__(
        self,
        config: Config,
        transport: LocalTransport,
        router: RouterForServices,
        clock: Clock,
        addressed: Container[str] = (),
    ) -> None:
        """``addressed``: the endpoints on whose network a Publish needs a sink authority."""
        self.state = StateFile(state_path(config), TABLES)
        self._transport = transport
        self._problem = ""  # why the file cannot be used
        local = local_authorities(config, addressed)
        self.pause_service = PauseService(self.state, router, config.control, config.authority, local)
        self.receivers = Receivers(self.state, router, config.catalogue)
        self._rpc = RpcService(transport, USTREAMER, {**self.pause_service.methods(), **self.receivers.methods()})
        self.subscriptions: USubscription | Follower | None = None
        options = config.usubscription
        if options is not None:
            options = options.model_copy(update={"local": list(local)})
            kind = USubscription if options.external is None else Follower
            self.subscriptions = kind(transport, self.state, router, options, config.authority, clock)

    def open(self) -> None:
        """Open the file and take up what it says. Before the router recovers and starts.

        If the file cannot be used now, `run` waits for it; until then the local endpoint is down, as any endpoint may be.
        """
        if self.state.path is None:
            logger.warning("state_in_memory consequence=%s", "a restart forgets every subscription and what is stopped")
        try:
            self.state.open()
            self._restore()
        except StateError as exc:
            self._transport.hold()
            self._note_problem(exc)

    def look(self) -> None:
        """The same without running: what a daemon with this configuration remembers. Raises `StateError`."""
        try:
            if self.state.open_to_read():
                self._restore()
        finally:
            self.state.close()

    def _restore(self) -> None:
        self.pause_service.restore()
        self.receivers.restore()
        if self.subscriptions is not None:
            self.subscriptions.restore()

    async def _until_open(self) -> None:
        while self._problem:
            await asyncio.sleep(_AGAIN_S)
            try:
                await asyncio.to_thread(self.state.open)
                self._restore()
            except StateError as exc:
                self._note_problem(exc)
            else:
                self._problem = ""
                logger.info("state_open file=%s", self.state.path)
                self._transport.release()

    def _note_problem(self, exc: StateError) -> None:
        if str(exc) != self._problem:
            self._problem = str(exc)
            logger.error(
                "state_unavailable error=%s consequence=%s",
                exc,
                "until the file can be used the services answer nobody, and know neither subscriptions nor what is stopped",
            )

    def use(self, config: Config) -> None:
        """Follow what a reload may change."""
        self.receivers.use(config.catalogue)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._until_open()
        while self.subscriptions is not None:
            try:
                await self.subscriptions.run()
            except Exception:  # a fault of a service must not cost the daemon its life
                logger.exception("service_failed service=usubscription again_s=%s", _AGAIN_S)
                await asyncio.sleep(_AGAIN_S)

    def close(self) -> None:
        """Close the file. Nothing is answered after that."""
        self.pause_service.close()
        self.state.close()

    def gauges(self) -> Mapping[str, int]:
        """How many there are of what, for the metrics."""
        return {} if self.subscriptions is None else self.subscriptions.gauges()


def state_path(config: Config) -> Path | None:
    """Where a configuration has the services' file; None: in memory."""
    if config.state.path is not None:
        return config.state.path
    if config.journal is None:
        return None
    journal = config.journal.path
    return journal.with_name(f"{journal.stem}-state.db")
