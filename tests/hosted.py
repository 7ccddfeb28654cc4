"""The services of all features and their tables, in the file of a journal of their own, without a daemon. No tests."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.features.every import FEATURES, built
from streamer.features.host.host import ServiceHost, entities, journal_tables
from streamer.features.host.router import RouterForServices
from streamer.features.host.state import Mirror, StateError, StateFile
from streamer.features.record import Feature
from streamer.journal.journal import Journal, JournalState
from streamer.journal.schema import Tables
from streamer.transports.local import LocalTransport
from streamer.uprotocol.well_known import EntityId
from tests.unit.journal.harness import BOUNDS

JOURNAL_TABLES = journal_tables(FEATURES)
TABLES = JOURNAL_TABLES.create
_Kind = TypeVar("_Kind", bound=Feature)


def one_of(features: Iterable[Feature], kind: type[_Kind]) -> _Kind:
    return next(each for each in features if isinstance(each, kind))


def served(config: Config) -> tuple[EntityId, ...]:
    return entities(config, FEATURES)


class StateOn(StateFile):
    """The tables in a journal's file at ``path``; None keeps them in memory."""

    def __init__(self, path: Path | None, tables: Mapping[str, str] = TABLES, mirror: Mirror | None = None) -> None:
        self.own = None
        if path is not None:
            own = JOURNAL_TABLES if tables is TABLES else Tables(tables)
            self.own = Journal(path, 1 << 30, BOUNDS, lambda call, *args: None, tables=own, retry_s=0.05, idle_s=3600)
        super().__init__(self.own, tables, mirror)

    def open(self, goes_on: bool = False) -> None:
        """``goes_on``: try again after a failure."""
        if self.own is not None and self.own._thread is None:
            assert self.own.start(lambda: None).wait(60)
            if self.own.state is not JournalState.OK and not goes_on:
                self.own.stop(60)
                raise StateError(self.own.problem, is_newer=self.own.is_newer)

    def close(self) -> None:
        if self.own is not None:
            assert self.own.stop(60)
        super().close()


class HostOn(ServiceHost):
    """The services with their tables at a path, as the daemon has them."""

    def __init__(
        self,
        path: Path | None,
        config: Config,
        local: LocalTransport,
        router: RouterForServices,
        clock: Clock,
        features: Sequence[Feature] | None = None,
    ) -> None:
        self.file = StateOn(path)
        super().__init__(config, local, router, clock, features or built(config, clock), journal=self.file.own)

    def start(self) -> None:
        self.file.open()
        self.open()

    def close(self) -> None:
        super().close()
        self.file.close()
