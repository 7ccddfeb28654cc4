"""The subscription of a filter: from Zenoh's FIFO to the loop, without loss or reordering, and within bounds."""

import asyncio
import queue
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import zenoh

from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.subscription import BATCH, Gate, KeySubscription
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh.deliveries import Deliveries
from tests.waiting import until

FILTER = (UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF), None)
_UNDECLARED = object()


class FakeFifo:
    """A subscriber with its FIFO: full, it holds the sender back; undeclared, it gives what it has and then raises."""

    def __init__(self, room: int) -> None:
        self.handler = self
        self.samples: queue.Queue[Any] = queue.Queue(room)
        self.asked = 0  # how often the watcher has waited for a sample

    def undeclare(self) -> None:
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


class FilterHarness(Deliveries):
    """A subscription with its FIFO and what it has delivered. This is also the session."""

    def __init__(self, room: int = 10_000, is_declared: bool = True, gate: Gate | None = None) -> None:
        super().__init__()
        self.fifo = FakeFifo(room)
        self.gate = gate or Gate()
        self.subscription = FifoSubscription(asyncio.get_running_loop(), FILTER, self.take, self.end, self.gate)
        if is_declared:
            self.declare()

    def declare(self) -> None:
        self.subscription.declare(self, "key", 1)  # type: ignore[arg-type]

    def declare_subscriber(self, key: str, handler: object, allowed_origin: object) -> FakeFifo:
        assert isinstance(handler, zenoh.handlers.FifoChannel)
        assert allowed_origin == zenoh.Locality.REMOTE
        return self.fifo


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
