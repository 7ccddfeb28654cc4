"""A subscription that nothing comes through: its watcher rests until the bell rings, and nothing is lost meanwhile."""

import pytest
import zenoh

from tests.unit.transports.fifo_harness import FilterHarness
from tests.waiting import until


async def test_a_watcher_rests_while_nothing_comes_and_goes_on_with_the_first_sample() -> None:
    harness = FilterHarness()
    sent = 0
    for _ in range(5):
        await harness.until_resting()
        assert [each.is_declared for each in harness.subscribers[-2:]] == [True, True]  # the bell, then the fresh FIFO
        assert sum(each.is_declared for each in harness.subscribers) == 2
        for _ in range(3):
            harness.arrive(sent)
            sent += 1
        await until(lambda: len(harness.samples) == sent)  # noqa: B023
        assert harness.bell is not None
        assert not harness.bell.is_declared
    assert harness.samples == list(range(sent))
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)


async def test_a_watcher_does_not_rest_while_something_comes_or_waits() -> None:
    harness = FilterHarness()
    harness.arrive(0)
    await until(lambda: harness.samples == [0])
    harness.look()
    assert harness.bell is None
    harness.gate.close()
    harness.arrive(1)
    await until(lambda: harness.gate._waiting == [harness.subscription])
    harness.look()
    harness.look()
    assert harness.bell is None
    for number in range(2, 100):
        harness.arrive(number)
    harness.gate.open()
    await until(lambda: len(harness.samples) == 100)
    assert harness.samples == list(range(100))


async def test_what_comes_while_the_fifo_is_replaced_arrives_in_order_and_may_arrive_twice() -> None:
    harness = FilterHarness()
    sent = 0

    def arrive(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            harness.arrive(sent)
            sent += 1

    harness.declared = lambda: arrive(2)  # after the bell, and after the fresh FIFO
    harness.look()
    harness.declared = lambda: None
    arrive(2)
    await until(lambda: harness.samples[-1:] == [5])
    assert harness.samples == [0, 1, 2, 3, 2, 3, 4, 5]


async def test_a_watcher_that_rests_is_left_alone() -> None:
    harness = FilterHarness()
    await harness.until_resting()
    harness.look()
    assert len(harness.subscribers) == 3
    harness.subscription._silence()  # it has rung
    harness.subscription._fresh = harness.subscription._handler  # but the watcher did not get to it
    harness.look()
    assert len(harness.subscribers) == 3
    harness.subscription._fresh = None
    harness.look()
    assert len(harness.subscribers) == 5


async def test_one_that_rests_ends_too() -> None:
    harness = FilterHarness()
    await harness.until_resting()
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert not any(each.is_declared for each in harness.subscribers)
    harness.look()
    harness.subscription._rest()  # asked for before it ended
    assert len(harness.subscribers) == 3


async def test_one_that_rests_and_is_abandoned_counts_what_still_comes() -> None:
    harness = FilterHarness()
    await harness.until_resting()
    harness.subscription.abandon()
    for number in range(3):
        harness.arrive(number)
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert harness.samples == []
    assert harness.subscription.discarded == 3


@pytest.mark.parametrize("failing", [1, 2])
async def test_a_watcher_that_cannot_be_sent_to_rest_goes_on_and_is_sent_again_later(failing: int) -> None:
    harness = FilterHarness()
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise zenoh.ZError("not now")

    harness.declaring = fail
    with pytest.raises(zenoh.ZError):
        harness.look()
    assert sum(each.is_declared for each in harness.subscribers) == 1
    harness.arrive(0)
    await until(lambda: harness.samples == [0])
    await harness.until_resting()
    harness.arrive(1)
    await until(lambda: harness.samples[-1] == 1)
