"""The subscription of one topic: from Zenoh's threads to the loop, without loss or reordering, and within bounds."""

import asyncio
import threading
from typing import Any

from streamer.transports.zenoh.callback_subscription import CallbackSubscription
from streamer.transports.zenoh.subscription import BATCH, Gate
from streamer.transports.zenoh.wildcard_samples import WildcardSamples
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh.deliveries import Deliveries
from tests.waiting import until

TOPIC = (UUri("veh1", 0xA8000, 2, 0x8A50), None)
KEY = "up/veh1/8000/A/2/8A50/{}/{}/{}/{}/{}"


class Sample(int):
    """A number that came on a key."""

    key_expr = KEY


class WildcardSample(Sample):
    key_expr = "up/**"


class FakeSession:
    """Calls back as Zenoh does: ``arrive`` for what comes, ``drop`` when it will not call again."""

    def declare_subscriber(self, key: str, handler: Any, allowed_origin: object) -> "FakeSession":
        self.arrive, self.drop = handler.callback, handler.drop
        return self

    def sample(self, number: int) -> None:
        self.arrive(Sample(number))

    def undeclare(self) -> None:
        self.drop()


class TopicHarness(Deliveries):
    """A subscription and what it has delivered."""

    def __init__(self, buffer: int = 10_000) -> None:
        super().__init__()
        self.session = FakeSession()
        loop = asyncio.get_running_loop()
        self.gate = Gate()
        self.wildcard_samples: list[tuple[int, str]] = []
        wildcard_samples = WildcardSamples(loop, lambda *found: self.wildcard_samples.append(found))
        self.subscription = CallbackSubscription(loop, TOPIC, self.take, self.end, self.gate, wildcard_samples)
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
    loop, ended = asyncio.get_running_loop(), list[object]()
    subscription = CallbackSubscription(
        loop, TOPIC, lambda *_: None, ended.append, Gate(), WildcardSamples(loop, lambda *_: None)
    )
    subscription.undeclare()
    await until(lambda: ended == [subscription])


async def test_samples_on_keys_with_wildcards_cost_the_loop_one_call_for_many() -> None:
    harness = TopicHarness()
    for number in range(500):
        harness.session.arrive(WildcardSample(number))
        harness.session.sample(number)
    await until(lambda: len(harness.samples) == 500)
    assert harness.samples == list(range(500))
    assert harness.wildcard_samples == [(500, "up/**")]


async def test_samples_on_keys_with_wildcards_are_counted_also_where_nothing_else_is_taken() -> None:
    harness = TopicHarness(buffer=10)
    harness.gate.close()
    for number in range(20):
        harness.session.arrive(WildcardSample(number))
    harness.subscription.abandon()
    harness.session.arrive(WildcardSample(20))
    await until(lambda: sum(number for number, _ in harness.wildcard_samples) == 21)
    assert (harness.samples, harness.subscription.discarded) == ([], 0)
