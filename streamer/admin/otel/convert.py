"""From the families of `/metrics` and the records of spans to the messages of OTLP. Pure."""

import random
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from streamer import __version__
from streamer.admin.otel.spans import SpanRecord
from streamer.uprotocol.message import UPriority

SCOPE = InstrumentationScope(name="ustreamer", version=__version__)
_FLAGS = 0x301
"""Of a span: sampled, and it is known that its parent is elsewhere."""


def resource_of(authority: str, attributes: Mapping[str, str]) -> Resource:
    """Which streamer it is. ``attributes`` go before ours."""
    ours = {
        "service.name": "ustreamer",
        "service.version": __version__,
        "service.instance.id": authority,
        "uprotocol.authority": authority,
    }
    resource = Resource()
    _describe(resource, {**ours, **attributes})
    return resource


def _describe(part: Resource | Span | NumberDataPoint | HistogramDataPoint, values: Mapping[str, str | int | bool]) -> None:
    """Add attributes. In place, because copies of messages are what takes time here."""
    add = part.attributes.add
    for key, value in values.items():
        attribute = add()
        attribute.key = key
        if isinstance(value, str):
            attribute.value.string_value = value
        elif isinstance(value, bool):
            attribute.value.bool_value = value
        else:
            attribute.value.int_value = value


# metrics


def metrics_request(
    families: Iterable[Family], resource: Resource, since_ns: int, now_ns: int
) -> ExportMetricsServiceRequest:
    """Families with their names as in `/metrics`, where counters end in ``_total``. They have counted since ``since_ns``."""
    metrics = [metric for family in families if (metric := _metric(family, since_ns, now_ns)) is not None]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics)
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


def _metric(family: Family, since_ns: int, now_ns: int) -> Metric | None:
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return None
    about = family.documentation
    if family.type == "histogram":
        histogram = Histogram(
            data_points=_histograms(samples, since_ns, now_ns), aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        return Metric(name=family.name, description=about, histogram=histogram)
    if family.type == "counter":
        total = Sum(
            data_points=[_number(sample, since_ns, now_ns) for sample in samples],
            aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE,
            is_monotonic=True,
        )
        return Metric(name=samples[0].name, description=about, sum=total)
    gauge = Gauge(data_points=[_number(sample, 0, now_ns) for sample in samples])
    return Metric(name=samples[0].name, description=about, gauge=gauge)


def _number(sample: Sample, since_ns: int, now_ns: int) -> NumberDataPoint:
    point = NumberDataPoint(start_time_unix_nano=since_ns, time_unix_nano=now_ns)
    _describe(point, sample.labels)
    if isinstance(sample.value, int):
        point.as_int = int(sample.value)  # it may be a boolean
    else:
        point.as_double = sample.value
    return point


def _histograms(samples: Sequence[Sample], since_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    buckets: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        key = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, []).append(sample)
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    points = []
    for labels, several in buckets.items():
        counts, before = [], 0
        for sample in several:
            counts.append(int(sample.value) - before)
            before = int(sample.value)
        point = HistogramDataPoint(
            start_time_unix_nano=since_ns,
            time_unix_nano=now_ns,
            count=before,
            sum=sums.get(labels, 0.0),
            bucket_counts=counts,
            explicit_bounds=[bound for sample in several if (bound := float(sample.labels["le"])) != inf],
        )
        _describe(point, dict(labels))
        points.append(point)
    return points


# spans


def spans_request(records: Sequence[SpanRecord], resource: Resource) -> ExportTraceServiceRequest:
    """A span for each record, from the reception to the outcome."""
    scope = ScopeSpans(scope=SCOPE, spans=map(_span, records))
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def _span(record: SpanRecord) -> Span:
    attributes = record.attributes
    route, ingress, egress = record.names
    told: dict[str, str | int | bool] = {
        "uprotocol.id": record.message_id.hex(),
        "uprotocol.type": attributes.type.name.lower(),
        "uprotocol.source": str(attributes.source),
        "uprotocol.sink": "" if attributes.sink is None else str(attributes.sink),
        "uprotocol.priority": (attributes.priority or UPriority.CS1).name,
        "ustreamer.route": route,
        "ustreamer.ingress": ingress,
        "ustreamer.egress": egress,
        "ustreamer.outcome": record.outcome.value,
        "ustreamer.code": record.code.name,
        "ustreamer.attempts": record.attempts,
        "ustreamer.confirmed": record.is_confirmed,
    }
    span = Span(
        trace_id=record.trace_id.to_bytes(16, "big"),
        span_id=(random.getrandbits(64) or 1).to_bytes(8, "big"),
        name=f"route {route}",
        kind=Span.SPAN_KIND_CONSUMER,
        start_time_unix_nano=record.start_ns,
        end_time_unix_nano=record.end_ns,
    )
    _describe(span, {name: value for name, value in told.items() if value != ""})
    if record.parent_id is not None:
        span.parent_span_id = record.parent_id.to_bytes(8, "big")
        span.flags = _FLAGS
    if record.outcome.is_failure:
        span.status.code = Status.STATUS_CODE_ERROR
        span.status.message = record.text
    return span
