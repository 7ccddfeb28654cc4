"""`streamer.rate`: token buckets, and one for each of a bounded number of keys."""

import pytest

from streamer.rate import ByKey, Pace, TokenBucket


def test_as_many_pass_as_the_burst_and_what_has_come_since() -> None:
    bucket = TokenBucket(10, 5)
    assert sum(bucket.take(100.0) for _ in range(20)) == 5
    assert sum(bucket.take(100.25) for _ in range(20)) == 2
    assert sum(bucket.take(1000.0) for _ in range(20)) == 5  # no more is kept than the burst


def test_over_time_the_rate_holds_however_often_it_is_asked() -> None:
    bucket = TokenBucket(100, 2)
    passed = sum(bucket.take(tick / 1024) for tick in range(10 * 1024 + 1))
    assert passed == 1002  # the burst, and 100 in each of ten seconds


def test_says_when_the_next_one_passes() -> None:
    bucket = TokenBucket(4, 2)
    assert bucket.ready_in(0.0) == 0
    assert bucket.take(0.0, 2)
    assert bucket.ready_in(0.0) == pytest.approx(0.25)
    assert bucket.ready_in(0.125) == pytest.approx(0.125)
    assert bucket.take(0.25)


def test_what_is_larger_than_the_burst_passes_a_full_bucket_and_is_paid_for() -> None:
    bucket = TokenBucket(100, 50)
    assert bucket.take(0.0, 250)
    assert bucket.left(0.0) == -200
    assert not bucket.take(1.0, 1)
    assert bucket.ready_in(1.0, 1) == pytest.approx(1.01)
    assert bucket.take(2.5, 250)


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1000, 1)
    assert bucket.take(10.0)
    assert not bucket.take(10.0)
    assert not bucket.take(9.0)


def test_spends_what_is_not_there() -> None:
    bucket = TokenBucket(1, 1)
    assert bucket.left(0.0) == 1
    bucket.spend(3)
    assert bucket.left(1.0) == -1


def test_a_pace_holds_for_messages_and_for_bytes() -> None:
    pace = Pace(10, 1000, 2)
    pace.spend(20, 100)
    assert pace.ready_in(0.0) == pytest.approx(0.1)
    pace = Pace(10, 1000, 2)
    assert pace.is_full(0.0)
    pace.spend(1, 4999)
    assert pace.ready_in(0.0) == pytest.approx(3.0)
    assert not pace.is_full(4.9)
    assert pace.is_full(5.0)


def test_a_pace_without_bounds_never_waits() -> None:
    pace = Pace(None, None, 1)
    pace.spend(10**9, 10**12)
    assert pace.ready_in(0.0) == 0
    assert pace.is_full(0.0)


def test_each_key_has_a_bucket_of_its_own() -> None:
    buckets = ByKey(lambda: TokenBucket(1, 2), most=10)
    assert [buckets.of("a", 0.0).take(0.0) for _ in range(3)] == [True, True, False]
    assert buckets.of("b", 0.0).take(0.0)


def test_invented_keys_share_a_bucket_and_push_nobody_out() -> None:
    buckets = ByKey(lambda: TokenBucket(1, 2), most=10)
    assert buckets.of("honest", 0.0).take(0.0, 2)
    passed = sum(buckets.of(f"invented {number}", 0.0).take(0.0) for number in range(1000))
    assert passed == 9 + 2
    assert len(buckets) == 10
    assert not buckets.of("honest", 0.0).take(0.0)


def test_a_key_that_was_not_used_for_long_makes_room() -> None:
    buckets = ByKey(lambda: TokenBucket(1, 2), most=2)
    assert buckets.of("a", 0.0).take(0.0, 2)
    assert buckets.of("b", 1.0).take(1.0, 2)
    assert buckets.of("c", 2.0).take(2.0, 2)  # a is full again
    assert len(buckets) == 2
    assert buckets.of("d", 2.0) is buckets.of("e", 2.0)
    assert buckets.of("b", 9.0).take(9.0, 2)
    assert buckets.of("f", 9.0) is not buckets.of("d", 9.0)  # c is full, though b came first
