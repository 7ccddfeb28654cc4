"""Starts and stops the push of metrics and spans to a collector, and applies a reload to it."""

import asyncio
import time
from typing import TYPE_CHECKING

from streamer.config.push import OtelConfig, OtelError
from streamer.delivery.router import Router
from streamer.features.api.metrics import Exposition
from streamer.features.otel.spans import Spans

if TYPE_CHECKING:
    from streamer.features.otel.push import Push


class Pushing:
    """At most one push at a time. Waiting spans survive a reload that does not change their sampling."""

    def __init__(self, options: OtelConfig | None, authority: str, router: Router) -> None:
        self._options = options
        self._authority = authority
        self._router = router
        self._since_ns = time.time_ns()
        self._spans = _new_spans(options)
        router.replace_observer(None, self._spans)
        self._exposition: Exposition | None = None
        self._push: Push | None = None

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

    async def use(self, options: OtelConfig | None) -> None:
        """Push by these options from now on."""
        before, self._options = self._options, options
        if options == before or self._exposition is None:
            return
        if before is None or options is None or options.spans != before.spans:
            spans, self._spans = self._spans, _new_spans(options)
            self._router.replace_observer(spans, self._spans)
        await self.stop()
        if options is None:
            self._exposition.use_push(None)
        else:
            self._begin(self._new_push(options))

    async def stop(self) -> None:
        """Send the queued data, and end the push."""
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


def _new_spans(options: OtelConfig | None) -> Spans | None:
    if options is None or options.spans is None:
        return None
    return Spans(options.spans.sample, options.spans.queue)


def _push() -> "type[Push]":
    """Load the SDK, only if the configuration needs it: it takes time and memory. Raises `OtelError`."""
    try:
        from streamer.features.otel.push import Push  # noqa: PLC0415  # see above
    except ImportError as exc:
        wanted = "expected otel: null, or all of what it needs installed (pip install 'uprotocol-ustreamer[otel]')"
        raise OtelError(f"otel: {wanted}: {exc}") from exc
    return Push
