"""The wall clock is stepped by an hour while messages wait: for the link, in back-off, for somebody who listens."""

from collections.abc import Callable
from typing import Any

import pytest

from streamer.transports.errors import RefusedError
from streamer.uprotocol.message import Options, UMessage, notification
from streamer.uprotocol.status import UCode
from tests.fault.clock_steps import HOUR_MS, LONG_MS, RETRY_MS, SHORT_MS, check_latencies, nobody_listens, payloads
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import order

# -- how a message can be kept waiting, and how that ends

Wait = Callable[[RouterHarness], Callable[[], None]]


def link_is_down(harness: RouterHarness) -> Callable[[], None]:
    harness.transports["vehicle"].lose_link()
    return harness.transports["vehicle"].restore_link


def receiver_refuses(harness: RouterHarness) -> Callable[[], None]:
    vehicle = harness.transports["vehicle"]
    vehicle.refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")

    def relent() -> None:
        vehicle.refuse = lambda message: None
        harness.pass_time(RETRY_MS)

    return relent


def queue_is_full(harness: RouterHarness) -> Callable[[], None]:
    """All but the first are not even in the queue."""
    vehicle = harness.transports["vehicle"]
    vehicle.is_withholding = True
    return vehicle.release_withheld


WAITS = pytest.mark.parametrize("wait", [link_is_down, receiver_refuses, nobody_listens, queue_is_full])


def harness_for(wait: Wait) -> RouterHarness:
    if wait is queue_is_full:
        return RouterHarness(configuration(queue_policy={"queue": {"messages": 1}}))
    return RouterHarness(unconfirmed_s=10 if wait is nobody_listens else 0)


# -- TTLs


@WAITS
@pytest.mark.parametrize("ticks", [False, True], ids=["no tick before it goes on", "a tick in between"])
async def test_what_has_expired_by_the_new_clock_is_not_sent(wait: Wait, ticks: bool) -> None:
    async with harness_for(wait) as harness:
        go_on = wait(harness)
        head, short, long = (
            order(harness, b"head"),
            order(harness, b"short", ttl=SHORT_MS),
            order(harness, b"long", ttl=LONG_MS),
        )
        (_, received, _) = harness.arrive("cloud", head, short, long)
        harness.clock.ms += HOUR_MS
        if ticks:
            harness.router.tick()
        go_on()
        assert payloads(harness) == [b"head", b"long"]
        (letter,) = harness.dead_letters("cloud")
        assert letter.message.payload == b"short"
        assert received.acknowledged
        harness.pass_time(20_000)  # with nobody who confirms, until it is certain
        harness.router.custody.flush()
        harness.pass_time(20_000)
        assert sum(account.queued for account in harness.router.accounts()) == 0
        check_latencies(harness)


@WAITS
async def test_clock_set_back_expires_nothing_early_and_everything_in_its_time(wait: Wait) -> None:
    async with harness_for(wait) as harness:
        wait(harness)
        harness.arrive("cloud", order(harness, b"head"), order(harness, b"short", ttl=SHORT_MS))
        harness.clock.ms -= HOUR_MS
        late = order(harness, b"late", ttl=SHORT_MS)
        harness.arrive("cloud", late)
        harness.router.tick()
        assert harness.dead_letters("cloud") == []
        harness.clock.ms += SHORT_MS + 1
        for _ in range(20):  # the backlog is not looked at with every tick
            harness.router.tick()
        assert [letter.message.payload for letter in harness.dead_letters("cloud")] == [b"late"]
        harness.clock.ms += HOUR_MS
        for _ in range(20):
            harness.router.tick()
        assert [letter.message.payload for letter in harness.dead_letters("cloud")] == [b"late", b"short"]


@WAITS
async def test_clock_set_back_lets_everything_pass(wait: Wait) -> None:
    async with harness_for(wait) as harness:
        go_on = wait(harness)
        harness.arrive("cloud", *(order(harness, text, ttl=SHORT_MS) for text in (b"1", b"2", b"3")))
        harness.clock.ms -= HOUR_MS
        harness.router.tick()
        harness.arrive("cloud", order(harness, b"4", ttl=SHORT_MS))
        go_on()
        assert payloads(harness) == [b"1", b"2", b"3", b"4"]
        check_latencies(harness)


async def test_clock_that_is_stepped_there_and_back_changes_nothing() -> None:
    async with RouterHarness() as harness:
        go_on = link_is_down(harness)
        harness.arrive("cloud", order(harness, b"short", ttl=SHORT_MS))
        harness.clock.ms -= HOUR_MS
        harness.router.tick()
        harness.clock.ms += HOUR_MS
        harness.router.tick()
        go_on()
        assert payloads(harness) == [b"short"]


@WAITS
async def test_messages_of_a_sender_whose_clock_is_an_hour_ahead_cross_and_do_not_expire_early(wait: Wait) -> None:
    async with harness_for(wait) as harness:
        go_on = wait(harness)
        source = MessagesFrom(harness.clock.ms + HOUR_MS)
        harness.arrive("cloud", *(source.order(text, ttl=1000) for text in (b"1", b"2")))
        harness.pass_time(30_000)
        assert harness.dead_letters("cloud") == []
        go_on()
        if wait is receiver_refuses:
            harness.pass_time(30_000)
        assert payloads(harness) == [b"1", b"2"]
        check_latencies(harness)


class MessagesFrom:
    """A sender with a clock of its own."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def order(self, text: bytes, **options: Any) -> UMessage:
        return notification(self.now_ms, ORDERS, VEHICLE_APP, text, Options(**options))
