"""How long to wait after a failure before the next try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.backoff import RECONNECT_STEPS, Backoff, wait_s

retries = st.builds(
    lambda initial, factor, more, jitter: Backoff(initial, factor, initial + more, jitter),
    st.integers(1, 10_000),
    st.floats(1, 10),
    st.integers(0, 100_000),
    st.floats(0, 1),
)
chances = st.floats(0, 1, exclude_max=True)


def test_waits_double_up_to_their_bound() -> None:
    retry = Backoff(jitter=0)
    assert [wait_s(retry, attempts, 0.9) for attempts in range(1, 8)] == [0.5, 1, 2, 4, 8, 10, 10]


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 0.4), (0.5, 0.5), (0.75, 0.55)])
def test_jitter_spreads_to_both_sides(chance: float, expected: float) -> None:
    assert wait_s(Backoff(jitter=0.2), 1, chance) == pytest.approx(expected)


@given(retries, st.integers(1, 10_000), chances)
def test_wait_stays_within_bound_and_jitter(retry: Backoff, attempts: int, chance: float) -> None:
    wait = wait_s(retry, attempts, chance)
    assert retry.initial_ms * (1 - retry.jitter) / 1001 <= wait <= retry.max_ms * (1 + retry.jitter) / 999


@given(retries, st.integers(1, 200), chances)
def test_wait_never_shrinks_with_more_attempts(retry: Backoff, attempts: int, chance: float) -> None:
    assert wait_s(retry, attempts + 1, chance) >= wait_s(retry, attempts, chance)


def test_steps_of_the_specification_end_at_the_longest_wait() -> None:
    waits = [wait_s(Backoff(jitter=0), failures, 0.5, RECONNECT_STEPS) for failures in range(1, 8)]
    assert waits == [0.5, 1, 2, 4, 10, 10, 10]


def test_many_failures_do_not_overflow() -> None:
    assert wait_s(Backoff(factor=1e4, jitter=0), 10_000, 0.5) == 10
