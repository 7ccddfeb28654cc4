"""Sums up records in memory that does not grow with their number. Pure.

Percentiles come from a histogram whose buckets are narrower than 1 % of their values, so their error is below 1 %.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamer.features.traces.reader import Ints, SeenRecords, ended_us

COLUMNS = (
    "ts",
    "seq",
    "run_ts",
    "route",
    "payload_bytes",
    "queue_wait_us",
    "latency_us",
    "retries",
    "outcome",
    "ucode",
    "redelivered",
)
"""The columns that `Summary.add` needs."""

_SHIFT = 52 - 7  # seven bits of the fraction are kept: buckets are 1/128 of their value wide


class LogHistogram:
    """Counts values from 0 up in buckets that grow with the value."""

    def __init__(self) -> None:
        self.largest: int | None = None
        self._counts: Counter[int] = Counter()

    def add(self, values: Ints) -> None:
        if not len(values):
            return
        bits = np.maximum(values, 0).astype(np.float64).view(np.int64) >> _SHIFT
        for bucket, count in zip(*np.unique(bits, return_counts=True), strict=True):
            self._counts[int(bucket)] += int(count)
        self.largest = max(self.largest or 0, int(values.max()))

    def percentile(self, share: float) -> int | None:
        """The smallest value that at least that share of the values does not exceed; None without values."""
        rank = share * self._counts.total()
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                low, high = np.array([bucket << _SHIFT, (bucket + 1) << _SHIFT]).view(np.float64)
                return min(round((low + high) / 2) if high - low > 1 else int(np.ceil(low)), self.largest or 0)
        return None


@dataclass(slots=True)
class RouteSummary:
    """The sums of one route. Latency and queue wait are those of delivered messages, in µs."""

    messages: int = 0
    bytes: int = 0
    retries: int = 0
    redelivered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    latency_us: LogHistogram = field(default_factory=LogHistogram)
    queue_wait_us: LogHistogram = field(default_factory=LogHistogram)

    def as_json(self, window_s: float) -> dict[str, object]:
        latency, wait = self.latency_us, self.queue_wait_us
        return {
            "messages": self.messages,
            "messages_per_s": round(self.messages / window_s, 3),
            "bytes": self.bytes,
            "outcomes": dict(sorted(self.outcomes.items())),
            "latency_us": {"p50": latency.percentile(0.5), "p99": latency.percentile(0.99), "max": latency.largest},
            "queue_wait_us": {"p50": wait.percentile(0.5), "p99": wait.percentile(0.99), "max": wait.largest},
            "retries": self.retries,
            "redelivered": self.redelivered,
        }


class Summary:
    """Sums up records whose outcome was at ``since_us`` (Unix µs) or later."""

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.routes: dict[str, RouteSummary] = {}
        self.reasons: Counter[tuple[str, str, str]] = Counter()
        """Messages that were not delivered, by route, outcome and UCode."""
        self._seen = SeenRecords()

    @property
    def missing(self) -> int:
        """Records that were lost: gaps in ``seq``."""
        return self._seen.missing(self.since_us)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records, in any order; those that were added before are ignored."""
        fresh = self._seen.add(batch)
        rows = fresh.filter(pa.array(ended_us(fresh) >= self.since_us))
        for group in _groups(rows):
            name = group["route"]
            route = self.routes.setdefault(name, RouteSummary())
            route.messages += group["seq_count"]
            route.bytes += group["payload_bytes_sum"] or 0
            route.retries += group["retries_sum"] or 0
            route.redelivered += group["redelivered_sum"] or 0
            route.outcomes[group["outcome"]] += group["seq_count"]
            if group["outcome"] != "delivered":
                self.reasons[name, group["outcome"], group["ucode"]] += group["seq_count"]
        delivered = rows.filter(pc.equal(rows.column("outcome"), "delivered"))
        for name in pc.unique(delivered.column("route")).to_pylist():
            of_route = delivered.filter(pc.equal(delivered.column("route"), name))
            self.routes[name].latency_us.add(_values(of_route, "latency_us"))
            self.routes[name].queue_wait_us.add(_values(of_route, "queue_wait_us"))


def _groups(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    sums = [("seq", "count"), ("payload_bytes", "sum"), ("retries", "sum"), ("redelivered", "sum")]
    grouped = pa.Table.from_batches([rows]).group_by(["route", "outcome", "ucode"]).aggregate(sums)
    yield from grouped.to_pylist()


def _values(rows: pa.RecordBatch, name: str) -> Ints:
    values: Ints = pc.drop_null(rows.column(name)).to_numpy()
    return values
