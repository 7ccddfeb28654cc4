"""Builds the streamer's own services, restores their state from the journal's file, runs and closes them."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.features.host.earlier_state import take_over
from streamer.features.host.router import RouterForServices
from streamer.features.host.rpc import Method, RpcService
from streamer.features.host.service import Service
from streamer.features.host.state import StateError, StateFile
from streamer.features.host.status import StatusConfig, StatusService, StreamerView
from streamer.features.record import Feature, ServiceParts, first
from streamer.journal.journal import Journal
from streamer.journal.schema import Tables
from streamer.routing.table import RoutingTable
from streamer.transports.local import LocalTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import PING, USTREAMER, EntityId

logger = logging.getLogger("ustreamer.services")

_RETRY_S = 1.0


def entities(config: Config, features: Iterable[Feature | type[Feature]]) -> tuple[EntityId, ...]:
    """Return the services of a streamer with this configuration. The router needs them before they are built."""
    return (USTREAMER, *(entity for feature in features for entity in feature.entities(config)))


def table_of(config: Config, features: Iterable[Feature | type[Feature]]) -> RoutingTable:
    """Return the routing table that a daemon with this configuration would have."""
    return RoutingTable.from_config(config, config.addressed, entities(config, features))


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
        journal: Journal | None = None,
    ) -> None:
        """``view``: the source of the published status. None: no status is published.

        ``journal``: its file has the tables. None: they are in memory.
        """
        mirror = first(feature.mirror for feature in features)
        self.state = StateFile(journal, journal_tables(features).create, mirror)
        self._transport = transport
        self.features = features
        self._problem = ""  # why the tables cannot be used
        self._is_open = False
        methods = {PING: Method(pb.PingRequest, _ping)}
        served = (feature.serve(ServiceParts(transport, self.state, router)) for feature in features)
        self._services = [service for service in served if service is not None]
        for service in self._services:
            methods |= service.methods()
        self._rpc = RpcService(transport, USTREAMER, methods)
        self.status = StatusService(transport, config.section(StatusConfig), view, clock)

    def open(self) -> None:
        """Restore the services from their tables. Call this once the journal is open, before the router recovers messages.

        If the tables cannot be read now, `run` tries again; the local endpoint is down until then, as any endpoint may be.
        """
        self._is_open = True
        if self.state.path is None:
            logger.warning("state_in_memory consequence=%s", "a restart loses every subscription and every pause rule")
        try:
            self._restore()
        except StateError as exc:
            self.wait(str(exc))
        else:
            if self._problem:
                self._problem = ""
                logger.info("state_open file=%s", self.state.path, extra={"state": ("services' tables", "open")})
                self._transport.come_up()

    def look(self, path: Path) -> None:
        """Restore the services from a journal's file, only to read. Raises `StateError`."""
        try:
            self.state.open_to_read(path)
            self._restore()
        finally:
            self.state.close()

    def _restore(self) -> None:
        for service in self._services:
            service.restore()

    async def _until_open(self) -> None:
        while self._problem:
            await asyncio.sleep(_RETRY_S)
            if self._problem and self._is_open:
                self.open()

    def wait(self, problem: str) -> None:
        """Keep the local endpoint down because the tables cannot be used now."""
        if problem != self._problem:
            self._problem = problem
            self._transport.stay_down(f"services' tables: {problem}")
            logger.error(
                "state_unavailable error=%s consequence=%s",
                problem,
                "until the file can be used, requests wait, and there are neither subscriptions nor pause rules",
                extra={"state": ("services' tables", self._problem)},
            )

    def use(self, config: Config) -> None:
        """Apply a reloaded configuration."""
        self.status.use(config.section(StatusConfig))
        for feature in self.features:
            feature.config = config
            feature.use(config)

    async def run(self) -> None:
        """Run the services until cancelled."""
        await self._until_open()
        async with asyncio.TaskGroup() as tasks:
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

    def close(self) -> None:
        """Have the services answer no request any more."""
        for service in self._services:
            service.close()
        self.state.close()


async def _ping(caller: UUri, request: pb.PingRequest) -> pb.PingResponse:
    return pb.PingResponse()


def journal_tables(features: Iterable[Feature | type[Feature]]) -> Tables:
    """Return the tables of all features, whichever a configuration has, for the journal's file."""
    tables = {name: sql for feature in features for name, sql in feature.TABLES.items()}
    return Tables(tables, partial(take_over, tables))
