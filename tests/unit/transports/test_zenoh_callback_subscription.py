"""The subscription of one topic: from Zenoh's threads to the loop, without loss or reordering, and within bounds."""

import asyncio
import threading
from typing import Any

from streamer.transports.zenoh.callback_subscription import CallbackSubscription
from streamer.transports.zenoh.subscription import BATCH, Gate
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh_deliveries import Deliveries
from tests.waiting import until

TOPIC = (UUri("veh1", 0xA8000, 2, 0x8A50), None)


class FakeSession:
    """Calls back as Zenoh does: ``sample`` for what comes, ``drop`` when it will not call again."""

    def declare_subscriber(self, key: str, handler: Any, allowed_origin: object) -> "FakeSession":
        self.sample, self.drop = handler.callback, handler.drop
        return self

    def undeclare(self) -> None:
        self.drop()


class TopicHarness(Deliveries):
    """A subscription and what it has delivered."""

    def __init__(self, buffer: int = 10_000) -> None:
        super().__init__()
        self.session = FakeSession()
        loop = asyncio.get_running_loop()
        self.gate = Gate()
        self.subscription = CallbackSubscription(loop, TOPIC, self.take, self.end, self.gate)
        self.subscription.declare(self.session, "key", buffer)  # type: ignore[arg-type]


def sending(harness: TopicHarness, numbers: range) -> threading.Thread:
    """A thread of Zenoh with so many samples."""

    def send() -> None:
        for number in numbers:
            harness.session.sample(number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


async def test_all_samples_arrive_in_order_in_batches_that_are_bounded() -> None:
    harness = TopicHarness()
    sending(harness, range(5000))
    await until(lambda: len(harness.samples) == 5000)
    assert harness.samples == list(range(5000))
    assert max(map(len, harness.batches)) <= BATCH


async def test_what_comes_in_while_a_batch_is_taken_is_not_forgotten() -> None:
    harness = TopicHarness()
    for number in range(300):
        harness.session.sample(number)
        if number % 7 == 0:
            await asyncio.sleep(0)
    await until(lambda: len(harness.samples) == 300)
    assert harness.samples == list(range(300))


async def test_a_pause_holds_the_sender_back_at_the_buffers_bound_and_loses_nothing() -> None:
    harness = TopicHarness(buffer=10)
    harness.gate.close()
    thread = sending(harness, range(100))
    await until(lambda: len(harness.subscription._samples) == 10)
    await asyncio.sleep(0)
    assert thread.is_alive()
    assert harness.samples == []
    harness.gate.open()
    await until(lambda: len(harness.samples) == 100)
    assert harness.samples == list(range(100))
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_a_full_buffer_lets_go_when_it_is_abandoned_and_counts_what_is_discarded() -> None:
    harness = TopicHarness(buffer=10)
    harness.gate.close()
    thread = sending(harness, range(25))
    await until(lambda: len(harness.subscription._samples) == 10)
    harness.subscription.abandon()
    await asyncio.to_thread(thread.join, 10)
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert harness.samples == []
    assert harness.subscription.discarded == 25


async def test_what_waits_when_it_is_undeclared_still_comes_before_the_end() -> None:
    harness = TopicHarness()
    for number in range(600):
        harness.session.sample(number)
    harness.subscription.undeclare()
    await until(lambda: harness.ended == 1)
    assert harness.samples == list(range(600))


async def test_it_ends_once_when_it_was_paused_at_the_end() -> None:
    harness = TopicHarness()
    harness.gate.close()
    harness.session.sample(1)
    harness.subscription.undeclare()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert harness.ended == 0
    harness.gate.open()
    await until(lambda: harness.ended == 1)
    assert harness.samples == [1]


async def test_one_that_was_never_declared_ends_too() -> None:
    ended: list[object] = []
    subscription = CallbackSubscription(asyncio.get_running_loop(), TOPIC, lambda *_: None, ended.append, Gate())
    subscription.undeclare()
    await until(lambda: ended == [subscription])
