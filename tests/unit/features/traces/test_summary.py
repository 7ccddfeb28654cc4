"""Sums of records: exact counts, and percentiles whose error is below one percent."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.traces.summary import COLUMNS, LogHistogram, Summary
from tests.unit.features.traces.folders import NAME, NOW_US, Row, failed, row, table


def batch(*rows: Row) -> pa.RecordBatch:
    found = table(rows).select(COLUMNS).append_column("streamer", pa.array([NAME] * len(rows), pa.string()))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in found.columns], found.schema.names)


def histogram(*values: int) -> LogHistogram:
    found = LogHistogram()
    found.add(np.array(values, np.int64))
    return found


def test_nothing_has_no_percentile() -> None:
    empty = histogram()
    assert (empty.percentile(0.5), empty.largest) == (None, None)


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from((0.01, 0.5, 0.9, 0.99, 1.0)))
def test_a_percentile_is_within_one_percent_of_the_exact_one(values: list[int], share: float) -> None:
    exact = sorted(values)[max(0, int(np.ceil(share * len(values) - 1e-9)) - 1)]
    assert histogram(*values).percentile(share) == pytest.approx(exact, rel=0.01, abs=1)


@given(st.lists(st.integers(-5, 10**9), min_size=1))
def test_the_largest_value_is_exact_and_no_percentile_exceeds_it(values: list[int]) -> None:
    found = histogram(*values)
    assert found.largest == max(0, max(values))
    for share in (0.01, 1.0):
        assert 0 <= (found.percentile(share) or 0) <= max(0, max(values))


def test_values_may_come_in_pieces() -> None:
    whole, pieces = histogram(*range(1000)), LogHistogram()
    for start in range(0, 1000, 100):
        pieces.add(np.arange(start, start + 100))
    assert [pieces.percentile(share) for share in (0.1, 0.5, 0.99)] == [
        whole.percentile(share) for share in (0.1, 0.5, 0.99)
    ]


def test_each_route_has_its_sums() -> None:
    summary = Summary(0)
    summary.add(batch(row(0, retries=2, redelivered=True), row(1, payload_bytes=7), row(2, route="other")))
    route = summary.routes["vehicle-cloud"]
    assert (route.messages, route.bytes, route.retries, route.redelivered) == (2, 17, 2, 1)
    assert route.outcomes == {"delivered": 2}
    assert summary.routes["other"].messages == 1


def test_latencies_are_those_of_delivered_messages() -> None:
    summary = Summary(0)
    summary.add(batch(row(0, 0, 1000), failed(1, latency_us=50_000), row(2, 0, None, queue_wait_us=None)))
    latency = summary.routes["vehicle-cloud"].latency_us
    assert (latency.largest, latency.percentile(1.0)) == (1000, 1000)


def test_reasons_are_those_of_messages_that_were_not_delivered() -> None:
    summary = Summary(0)
    summary.add(batch(row(0), failed(1), failed(2), row(3, outcome="expired", ucode="UNAVAILABLE")))
    assert summary.reasons == {
        ("vehicle-cloud", "expired", "DEADLINE_EXCEEDED"): 2,
        ("vehicle-cloud", "expired", "UNAVAILABLE"): 1,
    }


def test_records_count_once_and_only_since_the_moment_and_gaps_are_told() -> None:
    summary = Summary(NOW_US)
    records = batch(row(1, 5_000_000), row(2), row(5))
    summary.add(records)
    summary.add(records)
    assert summary.routes["vehicle-cloud"].messages == 2
    assert summary.missing == 2


def test_a_route_as_json_has_rates_and_percentiles() -> None:
    summary = Summary(0)
    summary.add(batch(row(0), row(1)))
    found = summary.routes["vehicle-cloud"].as_json(10.0)
    assert (found["messages"], found["messages_per_s"], found["outcomes"]) == (2, 0.2, {"delivered": 2})
    assert found["latency_us"] == {"p50": 1000, "p99": 1000, "max": 1000}
