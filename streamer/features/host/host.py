"""Builds the streamer's own services, restores their state from the state file, runs and closes them."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.config.services import UsubscriptionConfig
from streamer.features.host.access import Access
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import Method, RpcService
from streamer.features.host.state import Mirror, StateError, StateFile
from streamer.features.host.status import StatusService, StreamerView
from streamer.features.multicast.service import MulticastReceivers
from streamer.features.pause.service import PauseService
from streamer.features.usubscription.follow import Follower
from streamer.features.usubscription.service import USubscription
from streamer.features.utwin.last_values import LastValues
from streamer.features.utwin.service import UTwin
from streamer.routing.table import RoutingTable
from streamer.transports.local import LocalTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import PING, USTREAMER, USUBSCRIPTIONS, UTWIN, EntityId

logger = logging.getLogger("ustreamer.services")

TABLES = {
    **PauseService.TABLES,
    **MulticastReceivers.TABLES,
    **USubscription.TABLES,
    **Follower.TABLES,
    **UTwin.TABLES,
}
"""The tables of the state file: those of all services, whichever a configuration has."""

_RETRY_S = 1.0
_LOOK_S = 1.0


def entities(config: Config) -> tuple[EntityId, ...]:
    """Return the services of a streamer with this configuration. The router needs them before they are built."""
    subscriptions = () if config.usubscription is None else USUBSCRIPTIONS
    return (USTREAMER, *subscriptions, *(() if config.utwin is None else (UTWIN,)))


def table_of(config: Config) -> RoutingTable:
    """Return the routing table that a daemon with this configuration would have."""
    return RoutingTable.from_config(config, config.addressed, entities(config), config.catalogue.topics)


class ServiceHost:
    """core.usubscription, core.utwin and core.ustreamer, on the local endpoint."""

    def __init__(
        self,
        config: Config,
        transport: LocalTransport,
        router: RouterForServices,
        clock: Clock,
        view: StreamerView | None = None,
        last_values: LastValues | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """``view``: the source of the published status. None: no status is published. ``last_values``: those for uTwin.

        ``mirror``: has a copy of the state file elsewhere.
        """
        self.state = state_file(config, mirror)
        self._transport = transport
        self._problem = ""  # why the file cannot be used
        options = config.usubscription
        access = Access.from_config(config)
        self.pause_service = PauseService(self.state, router, config.control, access, clock)
        self.receivers = MulticastReceivers(self.state, router, config.catalogue, access, _most_authorities(config))
        methods = {PING: Method(pb.PingRequest, _ping), **self.pause_service.methods(), **self.receivers.methods()}
        self._rpc = RpcService(transport, USTREAMER, methods)
        self.status = StatusService(transport, config.status, view, clock)
        self.utwin: UTwin | None = None
        if config.utwin is not None and last_values is not None:
            self.utwin = UTwin(self.state, last_values, config.utwin, access, clock)
            self._twin_rpc = RpcService(transport, UTWIN, self.utwin.methods())
        self.subscriptions: USubscription | Follower | None = None
        if options is not None:
            kind = USubscription if options.external is None else Follower
            self.subscriptions = kind(transport, self.state, router, options, access, clock)

    def open(self) -> None:
        """Open the state file, and restore the services from it. Call this before the router recovers and starts.

        If the file cannot be used now, `run` waits for it; the local endpoint is down until then, as any endpoint may be.
        Raises `StateError` for a file of a newer version, or of another streamer that runs.
        """
        if self.state.path is None:
            logger.warning("state_in_memory consequence=%s", "a restart loses every subscription and every pause rule")
        try:
            self.state.open()
            self._restore()
        except StateError as exc:
            if exc.is_newer or exc.is_in_use:
                raise
            self._note_problem(exc)

    def look(self) -> None:
        """Restore the services from the file of a daemon with this configuration, only to read. Raises `StateError`."""
        try:
            if self.state.open_to_read():
                self._restore()
        finally:
            self.state.close()

    def _restore(self) -> None:
        self.pause_service.restore()
        self.receivers.restore()
        if self.utwin is not None:
            self.utwin.restore()
        if self.subscriptions is not None:
            self.subscriptions.restore()

    async def _until_open(self) -> None:
        while self._problem:
            await asyncio.sleep(_RETRY_S)
            try:
                await asyncio.to_thread(self.state.open)
                self._restore()
            except StateError as exc:
                self._note_problem(exc)
            else:
                self._problem = ""
                logger.info("state_open file=%s", self.state.path, extra={"state": ("state file", "open")})
                self._transport.come_up()

    def _note_problem(self, exc: StateError) -> None:
        if str(exc) != self._problem:
            self._problem = str(exc)
            self._transport.stay_down(f"state file: {exc}")
            logger.error(
                "state_unavailable error=%s consequence=%s",
                exc,
                "until the file can be used, requests wait, and there are neither subscriptions nor pause rules",
                extra={"state": ("state file", self._problem)},
            )

    def use(self, config: Config) -> None:
        """Apply a reloaded configuration."""
        access = Access.from_config(config)
        self.pause_service.use(config.control, access)
        self.status.use(config.status)
        self.receivers.use(config.catalogue, access, _most_authorities(config))
        if self.utwin is not None and config.utwin is not None:
            self.utwin.use(config.utwin, access, config.listed_authorities)
        if self.subscriptions is not None and config.usubscription is not None:
            self.subscriptions.use(config.usubscription, access)

    async def run(self) -> None:
        """Run the services until cancelled."""
        await self._until_open()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_disk(), name="state-disk")
            tasks.create_task(self.status.run(), name="status")
            tasks.create_task(self.pause_service.run(), name="pause-ends")
            tasks.create_task(self._serve_subscriptions(), name="usubscription")
            if self.utwin is not None:
                tasks.create_task(self.utwin.run(), name="utwin")

    async def _watch_disk(self) -> None:
        """Say so while the disk of the state file hangs."""
        before = ""
        while True:
            await asyncio.sleep(_LOOK_S)
            hangs = self.state.hangs
            if bool(hangs) is not bool(before):
                self._transport.note(f"state file: {hangs}" if hangs else "")
                if hangs:
                    state = {"state": ("state file", hangs)}
                    logger.error(
                        "state_hangs error=%s consequence=%s", hangs, "changes are answered with an error", extra=state
                    )
                else:
                    logger.info("state_open file=%s", self.state.path, extra={"state": ("state file", "open")})
            before = hangs

    async def _serve_subscriptions(self) -> None:
        while self.subscriptions is not None:
            try:
                await self.subscriptions.run()
            except Exception:  # a fault in a service must not end the daemon
                logger.exception("service_failed service=usubscription retry_s=%s", _RETRY_S)
                await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Close the state file. The services answer no request after that."""
        self.pause_service.close()
        self.state.close()

    def gauges(self) -> Mapping[str, int]:
        """Return the number of entries by kind, for the metrics."""
        return {} if self.subscriptions is None else self.subscriptions.gauges()


async def _ping(caller: UUri, request: pb.PingRequest) -> pb.PingResponse:
    return pb.PingResponse()


def _most_authorities(config: Config) -> int:
    return (config.usubscription or UsubscriptionConfig()).max_authorities_per_topic


def state_file(config: Config, mirror: Mirror | None = None) -> StateFile:
    """Return the state file of a daemon with this configuration, not open yet."""
    return StateFile(state_path(config), TABLES, mirror)


def state_path(config: Config) -> Path | None:
    """Return the path of the state file; None: the state is in memory."""
    if config.state.path is not None:
        return config.state.path
    if config.journal is None:
        return None
    return config.journal.default_state
