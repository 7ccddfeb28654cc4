"""Starts and stops the push of metrics and spans to a collector, and applies a reload to it."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamer.admin.metrics import Exposition
from streamer.admin.otel.spans import Spans, TracerPair
from streamer.config.push import OtelConfig, OtelError
from streamer.delivery.tracer import Tracer

if TYPE_CHECKING:
    from streamer.admin.otel.push import Push
    from streamer.traces.tracing import Tracing


class Pushing:
    """At most one push at a time. Waiting spans survive a reload that does not change their sampling."""

    def __init__(self, options: OtelConfig | None, authority: str, wall_ms: Callable[[], int]) -> None:
        self._options = options
        self._authority = authority
        self._wall_ms = wall_ms
        self._since_ns = time.time_ns()
        self._spans = self._new_spans(options)
        self._exposition: Exposition | None = None
        self._push: Push | None = None

    def tracer(self, tracing: "Tracing | None") -> Tracer | None:
        """Return the tracer for the router: the routing traces, the spans, or both."""
        recorder = None if tracing is None else tracing.recorder
        if recorder is None or self._spans is None:
            return recorder or self._spans
        return TracerPair(recorder, self._spans)

    def start(self, exposition: Exposition) -> None:
        """Start the push if the configuration has one. Raises `OtelError`."""
        self._exposition = exposition
        if self._options is not None:
            self._begin(self._new_push(self._options))

    async def prepare(self, options: OtelConfig | None) -> list[str]:
        """Load the modules that `use` needs for these options. Returns the problems."""
        try:
            if options is not None:
                await asyncio.to_thread(_push)
        except OtelError as exc:
            return [str(exc)]
        return []

    async def use(self, options: OtelConfig | None) -> bool:
        """Push by these options from now on. Returns whether the caller has to set the router's `tracer` again."""
        before, self._options = self._options, options
        if options == before or self._exposition is None:
            return False
        if before is None or options is None or options.spans != before.spans:
            spans, self._spans = self._spans, self._new_spans(options)
        else:
            spans = self._spans
        await self.stop()
        if options is None:
            self._exposition.use_push(None)
        else:
            self._begin(self._new_push(options))
        return spans is not self._spans

    async def stop(self) -> None:
        """Send what waits, and end the push."""
        push, self._push = self._push, None
        if push is not None:
            await asyncio.to_thread(push.stop)

    def _begin(self, push: "Push") -> None:
        self._push = push
        if self._exposition is not None:
            self._exposition.use_push(push)
        push.start()

    def _new_push(self, options: OtelConfig) -> "Push":
        assert self._exposition is not None
        return _push()(options, self._authority, self._exposition.families, self._spans, self._since_ns)

    def _new_spans(self, options: OtelConfig | None) -> Spans | None:
        if options is None or options.spans is None:
            return None
        return Spans(options.spans.sample, options.spans.queue, self._wall_ms)


def _push() -> "type[Push]":
    """Load the SDK, only if the configuration needs it: it takes time and memory. Raises `OtelError`."""
    try:
        from streamer.admin.otel.push import Push  # noqa: PLC0415  # see above
    except ImportError as exc:
        wanted = "expected otel: null, or all of what it needs installed (pip install --upgrade 'ustreamer[otel]')"
        raise OtelError(f"otel: {wanted}: {exc}") from exc
    return Push
