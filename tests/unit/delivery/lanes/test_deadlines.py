"""When TTLs pass: by the wall clock, and for ids from the future by the time that their messages have waited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, Delivery
from streamer.delivery.lanes.queue import RouteQueue
from tests.unit.delivery.messages import NOW_MS, message, push, route_queue

ENTERED_S = 100.0  # of `push`, at NOW_MS
YEAR_9999_MS = 253_402_300_799_000
DAY_MS = 86_400_000
YEARS_MS = 56 * 365 * DAY_MS


def waiting(made_ms: int, ttl: int | None = 1000) -> RouteQueue:
    queue = route_queue()
    push(queue, message(ttl=ttl, made_ms=made_ms))
    return queue


def expires(queue: RouteQueue, now_ms: int, now_s: float) -> bool:
    return bool(queue.take_expired(now_ms, now_s))


@pytest.mark.parametrize("made_ms", [YEAR_9999_MS, 2**48 - 1, NOW_MS + DAY_MS + 1])
def test_id_from_the_future_waits_no_longer_than_its_ttl(made_ms: int) -> None:
    queue = waiting(made_ms)
    assert not expires(queue, NOW_MS + 1000, ENTERED_S + 1)
    assert expires(queue, NOW_MS + 1001, ENTERED_S + 1.001)
    assert not expires(queue, NOW_MS + 10**9, ENTERED_S + 10**6)


def test_nothing_is_lost_when_our_clock_was_years_behind_and_is_set() -> None:
    queue = waiting(NOW_MS + YEARS_MS)
    assert not expires(queue, NOW_MS + YEARS_MS + 900, ENTERED_S + 0.9)
    assert expires(queue, NOW_MS + YEARS_MS + 1001, ENTERED_S + 1.001)


def test_nothing_waits_for_years_when_our_clock_is_set_back() -> None:
    queue = waiting(NOW_MS + DAY_MS + 1)
    assert expires(queue, NOW_MS - YEARS_MS, ENTERED_S + 1.001)


@pytest.mark.parametrize("made_ms", [NOW_MS, NOW_MS - 500, NOW_MS + DAY_MS])
def test_id_that_is_less_than_a_day_ahead_goes_by_the_wall_clock_alone(made_ms: int) -> None:
    queue = waiting(made_ms)
    arrived_ms = NOW_MS - ENTERED_S * 1000  # so the clocks are not stepped
    assert not expires(queue, made_ms + 1000, (made_ms + 1000 - arrived_ms) / 1000)
    assert expires(queue, made_ms + 1001, (made_ms + 1001 - arrived_ms) / 1000)


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, YEARS_MS])
def test_own_clock_that_was_ahead_with_all_others_leaves_nothing_that_never_expires(ahead_ms: int) -> None:
    """The ids were not from the future when they came."""
    queue = waiting(NOW_MS + ahead_ms)
    assert not expires(queue, NOW_MS + ahead_ms + 200, ENTERED_S + 0.2)
    queue.deadlines.clock_set_back()
    assert not expires(queue, NOW_MS + 1000, ENTERED_S + 1)
    assert expires(queue, NOW_MS + 1001, ENTERED_S + 1.001)


def test_clock_that_runs_back_in_small_steps_leaves_nothing_that_never_expires() -> None:
    queue = waiting(NOW_MS, ttl=100_000)
    for n in range(1, 100):
        queue.deadlines.clock_set_back()
        assert not expires(queue, NOW_MS - n * DAY_MS // 40, ENTERED_S + n)
    assert not expires(queue, NOW_MS - 3 * DAY_MS, ENTERED_S + 100)
    assert expires(queue, NOW_MS - 3 * DAY_MS, ENTERED_S + 100.001)


def test_id_from_the_future_is_not_sent_between_its_end_and_the_next_tick() -> None:
    queue = waiting(YEAR_9999_MS)
    (lane,) = queue.lanes.values()
    assert not expires(queue, NOW_MS + 990, ENTERED_S + 0.99)
    out, expired = list[Delivery](), list[Delivery]()
    assert lane.take(1, NOW_MS + 1010, ENTERED_S + 1.01, out, expired) == 0
    assert (len(out), len(expired)) == (0, 1)


def test_time_outside_of_the_queue_counts_too() -> None:
    queue = route_queue()
    push(queue, message(ttl=1000, made_ms=YEAR_9999_MS)).received.since_s = ENTERED_S - 0.9
    assert not expires(queue, NOW_MS + 100, ENTERED_S + 0.1)
    assert expires(queue, NOW_MS + 101, ENTERED_S + 0.101)


@pytest.mark.parametrize("ttl", [None, 0])
def test_without_ttl_nothing_expires(ttl: int | None) -> None:
    assert not expires(waiting(YEAR_9999_MS, ttl), YEAR_9999_MS * 2, 1e12)


@pytest.mark.parametrize("made_ms", [NOW_MS, YEAR_9999_MS], ids=["by the wall clock", "by the time that they waited"])
def test_of_many_that_expire_at_one_moment_some_are_taken_at_a_time(made_ms: int) -> None:
    queue = route_queue()
    many = [push(queue, message(ttl=1000, made_ms=made_ms)) for _ in range(2 * EXPIRED_MESSAGES_PER_TICK + 1)]
    moment = (NOW_MS + 1001, ENTERED_S + 1.001)
    taken = [queue.take_expired(*moment) for _ in range(3)]
    assert [len(each) for each in taken] == [EXPIRED_MESSAGES_PER_TICK, EXPIRED_MESSAGES_PER_TICK, 1]
    assert [delivery for each in taken for delivery in each] == many


def test_what_is_in_flight_at_its_end_is_looked_at_again_and_does_not_pile_up() -> None:
    queue = waiting(YEAR_9999_MS)
    (lane,) = queue.lanes.values()
    lane.take(1, NOW_MS, 0.0, [], [])
    for n in range(5000):
        assert not expires(queue, NOW_MS + 2000 + n, ENTERED_S + 2 + n)
    assert len(queue.deadlines) == 2


@given(
    st.lists(
        st.tuples(st.integers(-5000, 5000) | st.integers(DAY_MS - 5000, DAY_MS + 5000), st.integers(1, 4000)), max_size=30
    ),
    st.integers(0, 10_000),
)
def test_exactly_what_has_expired_by_either_clock_is_taken(made: list[tuple[int, int]], after_ms: int) -> None:
    queue = route_queue()
    held = [push(queue, message(ttl=ttl, made_ms=NOW_MS + ahead_ms)) for ahead_ms, ttl in made]
    expected = {
        delivery.seq
        for delivery, (ahead_ms, ttl) in zip(held, made, strict=True)
        if after_ms > ahead_ms + ttl or (ahead_ms > DAY_MS and after_ms > ttl)
    }
    taken = queue.take_expired(NOW_MS + after_ms, ENTERED_S + after_ms / 1000)
    assert {delivery.seq for delivery in taken} == expected
