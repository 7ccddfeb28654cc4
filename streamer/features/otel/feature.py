"""The record of OpenTelemetry: metrics and spans are pushed to a collector."""

import asyncio
import time
from typing import TYPE_CHECKING

from streamer.config.models import Config
from streamer.delivery.router import Additions
from streamer.features.otel.config import OtelConfig
from streamer.features.otel.spans import Spans
from streamer.features.record import Feature, Metrics, RunningStreamer, StreamerParts
from streamer.journal.journal import Journal

if TYPE_CHECKING:
    from streamer.features.otel.push import Push


class OtelFeature(Feature):
    """At most one push at a time. Waiting spans survive a reload that does not change their sampling."""

    KEYS = {"otel": OtelConfig}
    spans: Spans | None = None
    push: "Push | None" = None
    _options: OtelConfig | None = None
    _running: RunningStreamer

    def join(self, parts: StreamerParts) -> Journal | None:
        self._since_ns = time.time_ns()
        self._options = self.config.section(OtelConfig)
        self.spans = _new_spans(self._options)
        return None

    @property
    def additions(self) -> Additions:
        return Additions(observers=() if self.spans is None else (self.spans,))

    def start(self, running: RunningStreamer) -> None:
        self._running = running
        self._begin()

    def prepare(self, config: Config) -> list[str]:
        try:
            if config.section(OtelConfig) is not None:
                _push()
        except ImportError as exc:
            wanted = "expected otel: null, or all of what it needs installed (pip install 'uprotocol-ustreamer[otel]')"
            return [f"otel: {wanted}: {exc}"]
        return []

    async def reloaded(self) -> None:
        before, self._options = self._options, self.config.section(OtelConfig)
        if self._options == before:
            return
        if before is None or self._options is None or self._options.spans != before.spans:
            spans, self.spans = self.spans, _new_spans(self._options)
            self._running.router.replace_observer(spans, self.spans)
        await self.close()
        self._begin()

    async def close(self) -> None:
        push, self.push = self.push, None
        if push is not None:
            await asyncio.to_thread(push.stop)

    def families(self) -> Metrics:
        return () if self.push is None else self.push.families()

    def _begin(self) -> None:
        if self._options is not None:
            collect = self._running.exposition.families
            self.push = _push()(self._options, self.config.authority, collect, self.spans, self._since_ns)
            self.push.start()


def _new_spans(options: OtelConfig | None) -> Spans | None:
    if options is None or options.spans is None:
        return None
    return Spans(options.spans.sample, options.spans.queue)


def _push() -> "type[Push]":
    """Load the SDK, only if the configuration needs it: it takes time and memory."""
    from streamer.features.otel.push import Push  # noqa: PLC0415  # see above

    return Push
