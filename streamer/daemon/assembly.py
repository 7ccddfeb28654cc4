"""Builds everything of a streamer from a configuration: features, transports, journal, router and services.

Nothing of it is started here. A reload builds the transports of new and changed endpoints in the same way.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from streamer import systemd
from streamer.clock import Clock, SystemClock
from streamer.config.load import ConfigError, Problem
from streamer.config.models import Config
from streamer.delivery.inbound.transport_events import CountingEvents
from streamer.delivery.router import Router
from streamer.features.api.readiness import summary
from streamer.features.api.status_message import StatusView
from streamer.features.every import built
from streamer.features.host.host import ServiceHost, entities, journal_tables
from streamer.features.record import Feature, StreamerParts, additions_of, first
from streamer.journal.batches import LetterBounds
from streamer.journal.journal import Journal
from streamer.journal.schema import Tables
from streamer.transports.base import LinkState, TransportContext, UTransport
from streamer.transports.errors import ConfigurationError
from streamer.transports.installed import load_transport
from streamer.transports.local import LocalTransport
from streamer.transports.own_nodes import OwnNodes
from streamer.uprotocol.uri import ANY_AUTHORITY
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

logger = logging.getLogger("ustreamer.daemon")


class Assembly:
    """The parts of a streamer, built and not started. ``path``: of the configuration; ``end`` has it end: `StreamerParts`.

    The constructor raises `ConfigError` for options that cannot work.
    """

    def __init__(self, config: Config, path: Path | None, clock: Clock | None, end: Callable[[bool, bool], None]) -> None:
        self.config = config
        self.path = path
        self.clock = clock or SystemClock()
        self.end = end
        self.has_started = False
        """Whether the router has started."""
        self.started_ms, self.started_s = self.clock.wall_ms(), self.clock.monotonic_s()
        self.router: Router
        self.features: Sequence[Feature] = built(config, self.clock)
        self._own_nodes = OwnNodes(first(feature.nodes_key for feature in self.features), config.authority)
        self.transports, problems = self.build(config, config.endpoints)
        problems += self.prepare(config, self.transports)
        if problems:
            raise self.unusable(problems)
        local_transport = LocalTransport(self._context(config, LOCAL_ENDPOINT), entities(config, self.features))
        self.transports[LOCAL_ENDPOINT] = local_transport
        make_journal = partial(_journal, config, journal_tables(self.features))
        parts = StreamerParts(self.transports, make_journal, end)
        self.journal = first([feature.join(parts) for feature in self.features])
        if self.journal is None and config.journal is not None:
            self.journal = make_journal(Journal)
        additions = additions_of(self.features)
        self.router = Router(config, self.transports, self.clock, journal=self.journal, additions=additions)
        view = StatusView(self)
        self.service_host = ServiceHost(config, local_transport, self.router, self.clock, self.features, view, self.journal)

    def build(self, config: Config, names: Iterable[str]) -> tuple[dict[str, UTransport], list[str]]:
        """Build the transports of endpoints, not prepared yet; return them by endpoint, and the problems of the others."""
        transports: dict[str, UTransport] = {}

        def build(name: str) -> None:
            endpoint = config.endpoints[name]
            transports[name] = load_transport(endpoint.transport)(self._context(config, name), endpoint.options)
            for feature in self.features:
                feature.built(transports[name])

        return transports, [problem for name in names if (problem := _tried(name, partial(build, name)))]

    def prepare(self, config: Config, transports: Mapping[str, UTransport]) -> list[str]:
        """Prepare transports and features for a configuration; return the problems. This reads files, which may hang."""
        found = [problem for name, each in transports.items() if (problem := _tried(name, each.prepare))]
        return [*found, *(problem for feature in self.features for problem in feature.prepare(config))]

    def unusable(self, problems: list[str]) -> ConfigError:
        """Return the error that says what is wrong with the configuration."""
        return ConfigError([Problem(str(self.path or "the configuration"), 0, 0, "", text) for text in problems])

    def _context(self, config: Config, name: str) -> TransportContext:
        return TransportContext(
            name,
            config.authority,
            serves=served(config, name),
            events=_EndpointEvents(self, name),
            now_ms=self.clock.wall_ms,
            own_nodes=self._own_nodes,
        )


class _EndpointEvents(CountingEvents):
    """Passes the events of one endpoint's transport to the router, and counts and logs them."""

    def __init__(self, streamer: Assembly, name: str) -> None:
        # The router is built after the transports.
        super().__init__(name, lambda name: streamer.router.ingresses.get(name), lambda: streamer.router.settler.log)
        self._streamer = streamer

    def state_changed(self, state: LinkState, reason: str = "") -> None:
        router = self._streamer.router
        extra = {"state": (f"endpoint {self._name}", state)}
        logger.info("endpoint_state endpoint=%s state=%s", self._name, state.value, extra=extra)
        router.link_changed(self._name, state)
        for feature in self._streamer.features:
            feature.link_changed(self._name, state, reason)
        self._streamer.service_host.status.health_changed()
        systemd.notify(f"STATUS={summary(router)}")

    def node_changed(self, is_there: bool) -> None:
        self._streamer.router.node_changed(self._name, is_there)


def _tried(name: str, work: Callable[[], None]) -> str:
    """Call ``work`` on the transport of an endpoint; return its problem, empty if there is none."""
    try:
        work()
    except ConfigurationError as exc:
        return f"endpoints.{name}.options.{exc.key}: {exc}"
    except Exception as exc:  # a bug in a plugin
        logger.exception("prepare_failed endpoint=%s", name)
        return f"endpoints.{name}: its transport failed: {type(exc).__name__}"
    return ""


def _journal(config: Config, tables: Tables, kind: type[Journal]) -> Journal:
    """Return the journal, not open yet."""
    assert config.journal is not None
    bounds = letter_bounds(config, config.journal.max_bytes)
    post = asyncio.get_running_loop().call_soon_threadsafe
    return kind(config.journal.path, config.journal.max_bytes, bounds, post, tables=tables)


def letter_bounds(config: Config, max_bytes: int) -> LetterBounds:
    """Return the bounds for the dead letters in a journal of this size."""
    return LetterBounds(*config.dead_letter.store.bounds(max_bytes))


def served(config: Config, endpoint: str) -> tuple[str, ...]:
    """Return the authorities that are reached through this streamer from an endpoint."""
    targets = dict.fromkeys(route.to for route in config.routes if route.from_ == endpoint)
    found = (authority for target in targets for authority in config.endpoints[target].authorities)
    return tuple(dict.fromkeys(authority for authority in found if authority != ANY_AUTHORITY))
