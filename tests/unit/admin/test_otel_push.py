"""The push by itself: what a collector asks for, and spans that cannot be told."""

import time
from typing import Any

from streamer.admin.otel.push import _LONGEST_PAUSE_S, Push
from streamer.admin.otel.session import CollectorAnswer
from streamer.admin.otel.spans import Spans, TracerPair
from streamer.config.push import OtelConfig
from tests.flow.harness import RouterHarness


async def nothing() -> list[Any]:
    return []


def pushing(spans: Spans | None = None) -> Push:
    return Push(OtelConfig(endpoint="http://127.0.0.1:9", spans={}), "gw", nothing, spans, 0)  # type: ignore[arg-type]


def test_a_pause_that_a_collector_asks_for_holds_for_everything() -> None:
    push, began_s = pushing(), time.monotonic()
    push._count("spans", CollectorAnswer(503, "", retry_after_s=100))
    push._count("metrics", None)
    assert push._not_before_s >= began_s + 100
    push._count("spans", CollectorAnswer(503, "", retry_after_s=1e9))
    assert push._not_before_s <= time.monotonic() + _LONGEST_PAUSE_S


async def test_spans_that_cannot_be_told_are_dropped_and_the_next_ones_go_on() -> None:
    async with RouterHarness() as harness:
        spans = Spans(1.0, 10, harness.clock.wall_ms)
        harness.router.use_tracer(TracerPair(harness.tracer, spans))
        harness.arrive("vehicle", harness.speed())
        (record,) = spans.take(1)
        push = pushing(spans)
        push._pending = [record._replace(code=None)]  # type: ignore[arg-type]
        push._send_spans()
        assert (push._pending, push.spans_dropped, push.exports["spans", "failed"]) == ([], 1, 1)
