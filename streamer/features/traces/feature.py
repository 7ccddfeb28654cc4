"""The record of routing traces: a record of each outcome, events of the links, and the command that searches them."""

import asyncio
from typing import TYPE_CHECKING, Any

from streamer.clock import Clock
from streamer.config.models import Config
from streamer.config.shown import cohort
from streamer.delivery.router import Additions
from streamer.features.record import Feature, FlowReader, Metrics, RunningStreamer, StreamerParts
from streamer.features.traces.config import TraceConfig, missing_for_traces
from streamer.journal.journal import Journal
from streamer.transports.base import LinkState
from streamer.transports.installed import load_transport
from streamer.transports.local import LocalTransport
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

if TYPE_CHECKING:
    from streamer.features.traces.tracing import Tracing


class TracesFeature(Feature):
    """The writer of the traces. ``tracing`` None: none are written. A streamer on standby writes no events."""

    COMMANDS = ("streamer.features.traces.command",)
    KEYS = {"trace": TraceConfig}
    tracing: "Tracing | None" = None
    _running: RunningStreamer

    def __init__(self, config: Config, clock: Clock) -> None:
        super().__init__(config, clock)
        self._kinds = {LOCAL_ENDPOINT: LocalTransport.kind}  # by endpoint, removed ones included: their messages are left

    def join(self, parts: StreamerParts) -> Journal | None:
        self._kinds |= _kinds(self.config)
        self.tracing = self._new()
        return None

    @property
    def additions(self) -> Additions:
        return Additions(observers=() if self.tracing is None else (self.tracing.recorder,))

    def start(self, running: RunningStreamer) -> None:
        self._running = running
        if self.tracing is not None:
            self.tracing.start()
            if running.router.standby() is None:
                self.tracing.begin(self._links())

    def started(self) -> None:
        if self.tracing is not None:
            self.tracing.begin(self._links())

    def prepare(self, config: Config) -> list[str]:
        if config.section(TraceConfig) is not None:
            _tracing()
        return []

    def use(self, config: Config) -> None:
        self._kinds |= _kinds(config)

    async def reloaded(self) -> None:
        """Write the traces with other bounds, or to another path, without a gap."""
        old, options = self.tracing, self.config.section(TraceConfig)
        if old is not None:
            old.configured(cohort(self.config))
            if options is not None and options.path == old.path:
                old.use(options)
                return
        self.tracing = self._new()
        if self.tracing is not None:
            self.tracing.start()
            self.tracing.begin(self._links())
        recorders = [None if each is None else each.recorder for each in (old, self.tracing)]
        self._running.router.replace_observer(*recorders)
        if old is not None:
            await asyncio.to_thread(old.stop)

    def link_changed(self, endpoint: str, state: LinkState, reason: str) -> None:
        if self.tracing is not None and endpoint != LOCAL_ENDPOINT:
            self.tracing.link_changed(endpoint, state is LinkState.UP, reason)

    def tick(self, now_s: float) -> None:
        if self.tracing is not None:
            self.tracing.recorder.tick(now_s)

    async def close(self) -> None:
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.stop)

    def families(self) -> Metrics:
        return () if self.tracing is None else self.tracing.families()

    def state(self) -> dict[str, Any]:
        if (tracing := self.tracing) is None:
            return {"traces": None}
        counted = {"written": tracing.written, "dropped": tracing.dropped, "bytes": tracing.compacted.bytes}
        return {"traces": {"path": str(tracing.path), "problem": tracing.problem, **counted}}

    @staticmethod
    def flow_reader() -> FlowReader:
        from streamer.tools.running import NotAskedError  # noqa: PLC0415

        if missing := missing_for_traces():
            raise NotAskedError(f"traces can be read with {missing}")
        from streamer.features.traces.flows import read_week  # noqa: PLC0415

        return read_week

    def _new(self) -> "Tracing | None":
        if (options := self.config.section(TraceConfig)) is None:
            return None
        return _tracing()(options, self.config.authority, self._kinds, cohort(self.config))

    def _links(self) -> dict[str, bool]:
        """Return whether each endpoint is up."""
        transports = self._running.router.transports
        return {name: transports[name].state is LinkState.UP for name in self.config.endpoints}


def _kinds(config: Config) -> dict[str, str]:
    return {name: load_transport(each.transport).kind for name, each in config.endpoints.items()}


def _tracing() -> "type[Tracing]":
    """Load pyarrow, only if traces are written: it takes time and memory."""
    from streamer.features.traces.tracing import Tracing  # noqa: PLC0415  # see above

    return Tracing
