"""The router's counters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.stats import LATENCY_BOUNDS, Histogram, RouteStats
from streamer.routing.outcome import Outcome
from streamer.uprotocol.status import UCode


@pytest.mark.parametrize(
    ("value_s", "bucket"),
    [(0.0, 0), (0.0005, 0), (0.00051, 1), (0.001, 1), (60.0, len(LATENCY_BOUNDS) - 1), (60.1, len(LATENCY_BOUNDS))],
)
def test_a_value_counts_in_the_first_bucket_whose_bound_it_does_not_pass(value_s: float, bucket: int) -> None:
    histogram = Histogram()
    histogram.observe(value_s)
    assert [number for number, count in enumerate(histogram.counts) if count] == [bucket]


@given(st.lists(st.floats(-1, 100) | st.sampled_from(LATENCY_BOUNDS)))
def test_a_histogram_counts_every_value_where_it_belongs_and_their_sum(values_s: list[float]) -> None:
    histogram = Histogram()
    for value_s in values_s:
        histogram.observe(value_s)
    bounds = (*LATENCY_BOUNDS, math.inf)
    assert [sum(histogram.counts[: at + 1]) for at in range(len(bounds))] == [
        sum(value_s <= bound for value_s in values_s) for bound in bounds
    ]
    assert histogram.sum == pytest.approx(sum(values_s))


def test_outcomes_are_counted_by_code_and_add_up() -> None:
    stats = RouteStats()
    stats.count(Outcome.DELIVERED)
    stats.count(Outcome.DELIVERED, number=4)
    stats.count(Outcome.EXPIRED, UCode.UNAVAILABLE)
    stats.count(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, 2)
    assert stats.outcomes == {
        (Outcome.DELIVERED, UCode.OK): 5,
        (Outcome.EXPIRED, UCode.UNAVAILABLE): 1,
        (Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED): 2,
    }
    assert stats.settled == 8
