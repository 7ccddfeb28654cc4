"""The subscription of a filter: from Zenoh's FIFO to the loop, without loss or reordering, and within bounds."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import zenoh

from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.subscription import BATCH, Gate, KeySubscription
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh_deliveries import Deliveries
from tests.waiting import until

FILTER = (UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF), None)
_UNDECLARED = object()


class FakeFifo:
    """A subscriber with its FIFO: full, it holds the sender back; undeclared, it gives what it has and then raises."""

    def __init__(self, room: int) -> None:
        self.handler = self
        self.samples: queue.Queue[Any] = queue.Queue(room)
        self.asked = 0  # how often the watcher has waited for a sample
        self.is_declared = True

    def arrive(self, sample: Any) -> None:
        self.samples.put(sample)

    def undeclare(self) -> None:
        self.is_declared = False
        self.samples.put(_UNDECLARED)

    def recv(self) -> Any:
        self.asked += 1
        return self._given(self.samples.get())

    def try_recv(self) -> Any:
        try:
            return self._given(self.samples.get_nowait())
        except queue.Empty:
            return None

    def _given(self, sample: Any) -> Any:
        if sample is _UNDECLARED:
            self.samples.put(_UNDECLARED)
            raise zenoh.ZError("undeclared")
        return sample


class FakeBell:
    """A subscriber that calls back."""

    def __init__(self, handler: "zenoh.handlers.Callback[Any]") -> None:
        self.arrive = handler.callback
        self.is_declared = True

    def undeclare(self) -> None:
        self.is_declared = False


class FilterHarness(Deliveries):
    """A subscription and what it has delivered. This is also the session, and what is posted is done at once.

    ``fifo`` is the youngest FIFO, ``bell`` the youngest bell. ``declaring`` and ``declared`` are called before and
    after each is declared.
    """

    def __init__(self, room: int = 10_000, is_declared: bool = True, gate: Gate | None = None) -> None:
        super().__init__()
        self.fifo = FakeFifo(room)
        self.bell: FakeBell | None = None
        self.subscribers: list[FakeFifo | FakeBell] = []
        self.declaring: Callable[[], None] = lambda: None
        self.declared: Callable[[], None] = lambda: None
        self.gate = gate or Gate()
        self.subscription = FifoSubscription(
            asyncio.get_running_loop(), FILTER, self.take, self.end, self.gate, lambda call: call()
        )
        if is_declared:
            self.declare()

    def declare(self) -> None:
        self.subscription.declare(self, "key", 1)  # type: ignore[arg-type]

    def declare_subscriber(self, key: str, handler: object, allowed_origin: object) -> FakeFifo | FakeBell:
        assert allowed_origin == zenoh.Locality.REMOTE
        self.declaring()
        if isinstance(handler, zenoh.handlers.Callback):
            made: FakeFifo | FakeBell = FakeBell(handler)
            self.bell = made  # type: ignore[assignment]
        else:
            made = self.fifo = FakeFifo(10_000) if self.subscribers else self.fifo
        self.subscribers.append(made)
        self.declared()
        return made

    def arrive(self, sample: object) -> None:
        """A sample comes: every subscriber gets it."""
        for subscriber in [each for each in self.subscribers if each.is_declared]:
            subscriber.arrive(sample)

    def look(self) -> None:
        """As much time passes as nothing has to come before the watcher rests, and is over now."""
        self.subscription._look()

    async def until_resting(self) -> None:
        """Nothing comes for long enough."""
        self.look()
        if self.bell is None or not self.bell.is_declared:  # something had come since the last look
            self.look()
        await until(lambda: self.subscription._fresh is None and self.subscription._handler is self.fifo)
        assert self.fifo.asked == 0


def sending(harness: FilterHarness, numbers: Iterable[int]) -> threading.Thread:
    """A thread of Zenoh that puts these into the FIFO."""

    def send() -> None:
        for number in numbers:
            harness.fifo.samples.put(number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


async def test_all_samples_arrive_in_order_in_batches_that_are_bounded() -> None:
    harness = FilterHarness(room=300)
    sending(harness, range(20_000))
    await until(lambda: len(harness.samples) == 20_000)
    assert harness.samples == list(range(20_000))
    assert max(map(len, harness.batches)) <= BATCH


async def test_what_is_there_when_it_is_declared_arrives_in_order() -> None:
    harness = FilterHarness(is_declared=False)
    for number in range(1000):
        harness.fifo.samples.put(number)
    harness.declare()
    await until(lambda: len(harness.samples) == 1000)
    assert harness.samples == list(range(1000))


async def test_single_samples_arrive_one_by_one() -> None:
    harness = FilterHarness()
    for number in range(100):
        harness.fifo.samples.put(number)
        await until(lambda sent=number + 1: len(harness.samples) == sent)  # type: ignore[misc]
    assert harness.samples == list(range(100))
    # The watcher goes back to waiting by itself: it has asked once per sample, and once more.
    await until(lambda: harness.fifo.asked == 101)


async def test_bursts_and_single_samples_arrive_in_order() -> None:
    harness = FilterHarness()
    sent = 0
    for size in (1, 15, 16, 17, 1, 2, 600, 1, 31, 32, 33, 3, 257) * 8:
        for _ in range(size):
            harness.fifo.samples.put(sent)
            sent += 1
        if size % 2:
            await until(lambda: len(harness.samples) == sent)  # noqa: B023
    await until(lambda: len(harness.samples) == sent)
    assert harness.samples == list(range(sent))


async def test_a_pause_holds_the_sender_back_and_loses_nothing() -> None:
    harness = FilterHarness(room=50)
    harness.gate.close()
    thread = sending(harness, range(500))
    await until(harness.fifo.samples.full)
    assert thread.is_alive()
    assert harness.samples == []
    harness.gate.open()
    await until(lambda: len(harness.samples) == 500)
    assert harness.samples == list(range(500))


async def test_a_gate_keeps_only_those_that_have_something_and_each_once() -> None:
    gate = Gate()
    busy, idle = FilterHarness(gate=gate), FilterHarness(gate=gate)
    gate.close()
    sending(busy, range(100)).join()
    await until(lambda: gate._waiting == [busy.subscription])
    for _ in range(3):
        gate.open()
        gate.close()
        await until(lambda: gate._waiting == [busy.subscription])  # it finds the gate closed again
    gate.open()
    await until(lambda: len(busy.samples) == 100)
    assert busy.samples == list(range(100))
    assert idle.batches == []


async def test_many_pauses_keep_the_order() -> None:
    harness = FilterHarness(room=20)
    sending(harness, range(3000))
    while len(harness.samples) < 3000:
        harness.gate.close()
        seen = len(harness.samples)
        await asyncio.sleep(0)
        assert len(harness.samples) == seen
        harness.gate.open()
        await until(lambda: len(harness.samples) > seen)  # noqa: B023
    assert harness.samples == list(range(3000))


async def test_a_pause_in_the_middle_of_a_burst_holds_back_what_was_fetched_with_it() -> None:
    harness = FilterHarness()
    takes = harness.take

    def take_and_pause(subscription: KeySubscription, samples: Sequence[Any]) -> None:
        takes(subscription, samples)
        harness.gate.close()

    harness.subscription._take = take_and_pause
    sending(harness, range(1000)).join()
    while len(harness.samples) < 1000:
        seen = len(harness.samples)
        harness.gate.open()
        await until(lambda: len(harness.samples) > seen)  # noqa: B023
        assert len(harness.samples) <= seen + BATCH
        assert harness.samples == list(range(len(harness.samples)))


async def test_what_was_fetched_before_one_is_abandoned_counts_as_discarded() -> None:
    harness = FilterHarness()
    takes = harness.take

    def take_and_pause(subscription: KeySubscription, samples: Sequence[Any]) -> None:
        takes(subscription, samples)
        if len(harness.samples) > BATCH:  # in the middle of a burst
            harness.gate.close()

    harness.subscription._take = take_and_pause
    sending(harness, range(1000)).join()
    await until(lambda: len(harness.samples) > BATCH)
    harness.subscription.abandon()
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert len(harness.samples) + harness.subscription.discarded == 1000


async def test_what_waits_when_it_is_undeclared_still_comes_before_the_end() -> None:
    harness = FilterHarness()
    sending(harness, range(600)).join()
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert harness.samples == list(range(600))


async def test_one_that_is_paused_ends_after_what_it_still_has() -> None:
    harness = FilterHarness()
    harness.gate.close()
    sending(harness, range(3)).join()
    harness.subscription.undeclare()
    await until(lambda: harness.subscription._token_is_here)
    assert harness.ended == 0
    harness.gate.open()
    await until(lambda: harness.ended == 1)
    assert harness.samples == [0, 1, 2]


async def test_one_that_is_abandoned_lets_go_and_counts_what_is_discarded() -> None:
    harness = FilterHarness(room=50)
    harness.gate.close()
    thread = sending(harness, range(500))
    await until(harness.fifo.samples.full)
    harness.subscription.abandon()
    await asyncio.to_thread(thread.join, 10)
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert harness.samples == []
    assert harness.subscription.discarded == 500


async def test_one_that_was_never_declared_ends_too() -> None:
    harness = FilterHarness(is_declared=False)
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)


# rest


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
