"""The record of a feature: what it brings to a running streamer, one method for each seam.

`streamer.features.every` lists the features. The daemon, the host of services, the HTTP port and the command line go through
that list, and name none of them. A feature overrides what it has; each default brings nothing. The methods stand in the
order in which they are called.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

from streamer.clock import Clock
from streamer.config.models import Config, FeatureSection
from streamer.delivery.router import Additions, Router
from streamer.features.flow import Week
from streamer.features.host.router import RouterForServices
from streamer.features.host.service import Service
from streamer.features.host.state import Mirror, StateFile
from streamer.journal.journal import Journal
from streamer.transports.base import LinkState, UTransport
from streamer.transports.local import LocalTransport
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.well_known import EntityId

if TYPE_CHECKING:  # no command needs these, and they take time to load
    from aiohttp import web
    from prometheus_client.core import Metric

    from streamer.features.api.metrics import Exposition


Metrics: TypeAlias = "Iterable[Metric]"
Pages: TypeAlias = "Iterable[web.RouteDef]"
Judge: TypeAlias = Callable[[Config], Awaitable[list[str]]]
Kinds: TypeAlias = "Sequence[type[Feature]]"
FlowReader: TypeAlias = Callable[[Path, int, int, Callable[[str], None], str | None], Week]


class BuiltStreamer(Protocol):
    """A streamer that may be running."""

    router: Router

    @property
    def features(self) -> "Sequence[Feature]":
        """Return the features, whether they are configured or not."""

    @property
    def config(self) -> Config:
        """Return the configuration in use."""


class RunningStreamer(BuiltStreamer, Protocol):
    """A running streamer."""

    exposition: "Exposition"
    path: Path | None

    @property
    def started_ms(self) -> int:
        """Return the time of the start in Unix milliseconds."""

    @property
    def started_s(self) -> float:
        """Return the time of the start in seconds of the monotonic clock."""

    async def read_file(self) -> Config | list[str]:
        """Return the configuration file as it is now, which is not used, or its problems."""

    async def reload(self, who: str, where: str, judge: Judge | None = None, config: Config | None = None) -> list[str]:
        """Load and use the configuration file, or ``config``. Returns the problems: with any, nothing has changed.

        ``judge`` returns why a configuration that could be used is not wanted.
        """


class StreamerParts(NamedTuple):
    """The parts of a streamer before its router. ``transports`` are by endpoint, and follow each reload.

    ``make_journal`` makes a journal of a class, on the configured file. ``end(restarts, drains)`` has the streamer end, and
    start anew if it ``restarts``.
    """

    transports: Mapping[str, UTransport]
    make_journal: Callable[[type[Journal]], Journal]
    end: Callable[[bool, bool], None]


class ServiceParts(NamedTuple):
    """The parts that a service is built on. ``local``: the endpoint of the streamer's own uEntities."""

    local: LocalTransport
    state: StateFile
    router: RouterForServices


class Feature:
    """One thing that an operator can name and do without. It is built before the router, whether it is configured or not."""

    KEYS: ClassVar[Mapping[str, type[FeatureSection]]] = {}
    """The feature's sections of the configuration file, by their keys; `endpoints.*.KEY` stands at each endpoint."""

    COMMANDS: ClassVar[Sequence[str]] = ()
    """The modules that add the feature's commands, by ``add_to``: only the command line loads them, no daemon does."""

    TABLES: ClassVar[Mapping[str, str]] = {}
    """The statements that create the feature's tables in the journal, by name: they are there in any configuration."""

    EVENTS: ClassVar[tuple[str, ...]] = ()
    """The kinds of events that the feature adds to the stream of events."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self.clock = clock

    @classmethod
    def in_place_of(cls, config: Config, at_start: bool) -> str | None:
        """Return the text that is used in place of a file with this content, at a start or a reload; None: the file is."""
        return None

    @property
    def nodes_key(self) -> bytes | None:
        """Return the key that tells the nodes of this streamer from others on a network, if several streamers share it."""
        return None

    @property
    def mirror(self) -> Mirror | None:
        """Return what has a copy of the features' tables elsewhere."""
        return None

    @property
    def is_followed(self) -> bool:
        """Return whether another streamer goes on at once if this one ends now."""
        return False

    def built(self, transport: UTransport) -> None:
        """Use a transport that has been built anew, and has not been started."""

    def prepare(self, config: Config) -> list[str]:
        """Load what the feature needs for a configuration, before anything is changed; return the problems. It may hang."""
        return []

    @classmethod
    def entities(cls, config: Config) -> tuple[EntityId, ...]:
        """Return the uEntities that the feature serves with this configuration. The router needs them before it is built."""
        return ()

    def join(self, parts: StreamerParts) -> Journal | None:
        """Take the parts of a streamer whose router is about to be built; return its journal, if the feature has made it."""
        return None

    @property
    def additions(self) -> Additions:
        """Return what the router's constructor gets."""
        return Additions()

    def serve(self, parts: ServiceParts) -> Service | None:
        """Build the feature's service, and return it; None: there is none."""
        return None

    def lock(self) -> bool:
        """Lock the feature's files; return whether the journal's file is one of them. Raises `FileError`."""
        return False

    def start(self, running: RunningStreamer) -> None:
        """Start: the files are locked, and nothing has been received. The streamer may be on standby."""

    async def stand_by(self, router: Router, stopping: asyncio.Event, on_opened: Callable[[], None]) -> None:
        """Wait until the streamer may work, or is ``stopping``. ``on_opened`` is called once its journal is open."""

    def opened(self, state: StateFile) -> None:
        """Go on: the journal is open, and only this streamer writes it. ``state``: the tables of all features in there."""

    def started(self) -> None:
        """Go on: the router has started."""

    def link_changed(self, endpoint: str, state: LinkState, reason: str) -> None:
        """Observe another state of an endpoint's link. ``reason``: why it is not up."""

    def tick(self, now_s: float) -> None:
        """Do what is due; ``now_s`` is monotonic. On standby, too."""

    def use(self, config: Config) -> None:
        """Apply a reloaded configuration, which is the feature's `config` now. Links and routes change after that."""

    async def reloaded(self) -> None:
        """Go on: the links and routes are those of the reloaded configuration."""

    async def stop(self) -> None:
        """End what is left: nothing is sent any more. It may be called again."""

    async def close(self) -> None:
        """Write what is left: the journal is closed, and no outcome follows."""

    def pages(self, running: RunningStreamer) -> Pages:
        """Return the feature's pages of the HTTP port."""
        return ()

    def families(self) -> Metrics:
        """Yield the feature's metrics, with the present values."""
        return ()

    def state(self) -> dict[str, Any]:
        """Return the feature's part of the page with the state of the streamer, in types of JSON."""
        return {}

    def report(self, status: pb.Status) -> None:
        """Fill in the feature's part of the status that core.ustreamer publishes."""

    def notes(self) -> list[str]:
        """Return what the feature has to say in `/readyz`, whether the streamer is ready or not."""
        return []

    def events(self) -> "Sequence[tuple[str, dict[str, Any]]]":
        """Return the events since the last call, as kind and fields. Called once a second while the stream has readers."""
        return ()

    @staticmethod
    def flow_reader() -> FlowReader | None:
        """Return what reads the flows of past messages out of files that the feature has written; None: it writes none.

        Raises `NotAskedError` with what has to be installed for it.
        """
        return None


_Found = TypeVar("_Found")


def first(found: Iterable[_Found | None]) -> _Found | None:
    """Return the first of what features bring, where only one of them brings any."""
    return next((each for each in found if each is not None), None)


def additions_of(features: Iterable[Feature]) -> Additions:
    """Return what the router of a streamer with these features gets."""
    return reduce(Additions.plus, (feature.additions for feature in features), Additions())
