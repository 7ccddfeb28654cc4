"""Builds the streamer's own services, restores their state from the state file, runs and closes them."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import Method, RpcService
from streamer.features.host.service import Service
from streamer.features.host.state import Mirror, StateError, StateFile
from streamer.features.host.status import StatusService, StreamerView
from streamer.features.record import Feature, ServiceParts, first
from streamer.routing.table import RoutingTable
from streamer.transports.local import LocalTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import PING, USTREAMER, EntityId

logger = logging.getLogger("ustreamer.services")

_RETRY_S = 1.0
_LOOK_S = 1.0


def entities(config: Config, features: Iterable[Feature | type[Feature]]) -> tuple[EntityId, ...]:
    """Return the services of a streamer with this configuration. The router needs them before they are built."""
    return (USTREAMER, *(entity for feature in features for entity in feature.entities(config)))


def table_of(config: Config, features: Iterable[Feature | type[Feature]]) -> RoutingTable:
    """Return the routing table that a daemon with this configuration would have."""
    return RoutingTable.from_config(config, config.addressed, entities(config, features), config.catalogue.topics)


class ServiceHost:
    """core.ustreamer and the services of the features, on the local endpoint."""

    def __init__(
        self,
        config: Config,
        transport: LocalTransport,
        router: RouterForServices,
        clock: Clock,
        features: Sequence[Feature],
        view: StreamerView | None = None,
    ) -> None:
        """``view``: the source of the published status. None: no status is published."""
        self.state = state_file(config, features, first(feature.mirror for feature in features))
        self._transport = transport
        self.features = features
        self._problem = ""  # why the file cannot be used
        methods = {PING: Method(pb.PingRequest, _ping)}
        served = (feature.serve(ServiceParts(transport, self.state, router)) for feature in features)
        self._services = [service for service in served if service is not None]
        for service in self._services:
            methods |= service.methods()
        self._rpc = RpcService(transport, USTREAMER, methods)
        self.status = StatusService(transport, config.status, view, clock)

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
        for service in self._services:
            service.restore()

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
        self.status.use(config.status)
        for feature in self.features:
            feature.use(config)

    async def run(self) -> None:
        """Run the services until cancelled."""
        await self._until_open()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_disk(), name="state-disk")
            tasks.create_task(self.status.run(), name="status")
            for service in self._services:
                tasks.create_task(self._serve(service), name=type(service).__name__)

    async def _serve(self, service: Service) -> None:
        while True:
            try:
                return await service.run()
            except Exception:  # a fault in a service must not end the daemon
                logger.exception("service_failed service=%s retry_s=%s", type(service).__name__, _RETRY_S)
                await asyncio.sleep(_RETRY_S)

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

    def close(self) -> None:
        """Close the state file. The services answer no request after that."""
        for service in self._services:
            service.close()
        self.state.close()


async def _ping(caller: UUri, request: pb.PingRequest) -> pb.PingResponse:
    return pb.PingResponse()


def tables(features: Iterable[Feature | type[Feature]]) -> dict[str, str]:
    """Return the tables of the state file: those of all features, whichever a configuration has."""
    return {name: sql for feature in features for name, sql in feature.TABLES.items()}


def state_file(config: Config, features: Iterable[Feature | type[Feature]], mirror: Mirror | None = None) -> StateFile:
    """Return the state file of a daemon with this configuration, not open yet."""
    return StateFile(state_path(config), tables(features), mirror)


def state_path(config: Config) -> Path | None:
    """Return the path of the state file; None: the state is in memory."""
    if config.state.path is not None:
        return config.state.path
    if config.journal is None:
        return None
    return config.journal.default_state
