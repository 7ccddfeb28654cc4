"""Converts the families of `/metrics` and records of spans to the data types of OpenTelemetry's SDK. Pure."""

import random
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from streamer import __version__
from streamer.features.otel.spans import SpanRecord
from streamer.uprotocol.message import UPriority

SCOPE = InstrumentationScope("ustreamer", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def resource_of(authority: str, attributes: Mapping[str, str]) -> Resource:
    """Return the resource that identifies the streamer. ``attributes`` override ours."""
    ours = {
        "service.name": "ustreamer",
        "service.version": __version__,
        "service.instance.id": authority,
        "uprotocol.authority": authority,
    }
    return Resource({**ours, **attributes})


def metrics_data(families: Iterable[Family], resource: Resource, since_ns: int, now_ns: int) -> MetricsData:
    """Convert families, named as in `/metrics`, where counters end in ``_total``. ``since_ns``: start of the counters."""
    metrics = [metric for family in families if (metric := _metric(family, since_ns, now_ns)) is not None]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, metrics, "")], "")])


def _metric(family: Family, since_ns: int, now_ns: int) -> Metric | None:
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        points = list(_histograms(family, since_ns, now_ns))
        if not points:
            return None
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
        return Metric(family.name, family.documentation, "", data)
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if not samples:
        return None
    is_counter = family.type == "counter"
    numbers = [
        NumberDataPoint(sample.labels, since_ns if is_counter else 0, now_ns, _number(sample.value)) for sample in samples
    ]
    data = Sum(numbers, AggregationTemporality.CUMULATIVE, True) if is_counter else Gauge(numbers)
    return Metric(samples[0].name, family.documentation, "", data)


def _number(value: float) -> int | float:
    return int(value) if isinstance(value, int) else value


def _histograms(family: Family, since_ns: int, now_ns: int) -> Iterable[HistogramDataPoint]:
    buckets: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        key = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, []).append(sample)
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for labels, several in buckets.items():
        counts, before = [], 0
        for sample in several:
            counts.append(int(sample.value) - before)
            before = int(sample.value)
        bounds = [bound for sample in several if (bound := float(sample.labels["le"])) != inf]
        total, unknown = sums.get(labels, 0.0), cast(float, None)  # minimum and maximum are optional on the wire
        yield HistogramDataPoint(dict(labels), since_ns, now_ns, before, total, counts, bounds, unknown, unknown)


def spans_of(records: Sequence[SpanRecord], resource: Resource) -> list[ReadableSpan]:
    """Return a span for each record, from the reception to the outcome."""
    return [_span(record, resource) for record in records]


def _span(record: SpanRecord, resource: Resource) -> ReadableSpan:
    attributes = record.attributes
    route, ingress, egress = record.names
    span_attributes: dict[str, str | int | bool] = {
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
    failed = record.outcome.is_failure
    parent = None
    if record.parent_id is not None:
        parent = SpanContext(record.trace_id, record.parent_id, is_remote=True, trace_flags=_SAMPLED)
    return ReadableSpan(
        name=f"route {route}",
        context=SpanContext(record.trace_id, random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED),
        parent=parent,
        resource=resource,
        attributes={name: value for name, value in span_attributes.items() if value != ""},
        kind=SpanKind.CONSUMER,
        status=Status(StatusCode.ERROR, record.text) if failed else Status(StatusCode.UNSET),
        start_time=record.start_ns,
        end_time=record.end_ns,
        instrumentation_scope=SCOPE,
    )
