"""A collector of OpenTelemetry for tests: OTLP over HTTP, decoded with the messages of OpenTelemetry itself."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.ports import HOST


class Collector:
    """What was sent. ``answers``: the statuses of the next requests, with ``elsewhere`` as place; after them 200."""

    def __init__(self) -> None:
        self.port = 0
        self.elsewhere = "/"
        self.answers: list[int] = []
        self.requests = 0
        self.headers: list[dict[str, str]] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests += 1
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.answers and (status := self.answers.pop(0)) != 200:
            return web.Response(status=status, headers={"Location": self.elsewhere})
        assert request.headers["Content-Type"] == "application/x-protobuf"
        if request.path.endswith("/v1/metrics"):
            metrics = ExportMetricsServiceRequest.FromString(body)
            self.metrics.append(metrics)
            resource = metrics.resource_metrics[0].resource
        else:
            traces = ExportTraceServiceRequest.FromString(body)
            for group in traces.resource_spans:
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
            resource = traces.resource_spans[0].resource
        self.resources.append({each.key: each.value.string_value for each in resource.attributes})
        return web.Response(body=b"", content_type="application/x-protobuf")

    def last(self) -> list[Metric]:
        """The metrics of the last export."""
        (group,) = self.metrics[-1].resource_metrics
        (scope,) = group.scope_metrics
        return list(scope.metrics)

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The last export as `/metrics` would have it: samples by name and labels."""
        found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for metric in self.last():
            for point in (*metric.sum.data_points, *metric.gauge.data_points):
                value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
                found[metric.name, frozenset(attributes(point).items())] = value
            for histogram in metric.histogram.data_points:
                labels, total = attributes(histogram), 0
                for bound, count in zip((*histogram.explicit_bounds, "+Inf"), histogram.bucket_counts, strict=True):
                    total += count
                    found[f"{metric.name}_bucket", frozenset({**labels, "le": str(bound)}.items())] = total
                found[f"{metric.name}_sum", frozenset(labels.items())] = histogram.sum
                found[f"{metric.name}_count", frozenset(labels.items())] = histogram.count
        return found


def attributes(part: Any) -> dict[str, Any]:
    """Of a span or a data point."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in part.attributes}


@asynccontextmanager
async def listening(collector: Collector, context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Collector]:
    """A collector that can be reached, at ``port`` or any other."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/metrics", collector.take)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, port, ssl_context=context)
    await site.start()
    collector.port = runner.addresses[0][1]
    try:
        yield collector
    finally:
        await runner.cleanup()
