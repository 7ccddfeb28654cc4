"""The wall clock is stepped by an hour while messages wait: for the link, in back-off, for somebody who listens."""

from collections.abc import Callable
from typing import Any

import pytest

from streamer.transports.errors import RefusedError
from streamer.uprotocol.message import Options, UMessage, notification
from streamer.uprotocol.status import UCode
from tests.fault.clock_steps import HOUR_MS, LONG_MS, RETRY_MS, SHORT_MS, check_latencies, nobody_listens, payloads
from tests.flow.life import order
from tests.flow.stage import ORDERS, VEHICLE_APP, Stage, configuration

# -- how a message can be kept waiting, and how that ends

Wait = Callable[[Stage], Callable[[], None]]


def link_is_down(stage: Stage) -> Callable[[], None]:
    stage.transports["vehicle"].lose_link()
    return stage.transports["vehicle"].restore_link


def receiver_refuses(stage: Stage) -> Callable[[], None]:
    vehicle = stage.transports["vehicle"]
    vehicle.refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")

    def relent() -> None:
        vehicle.refuse = lambda message: None
        stage.pass_time(RETRY_MS)

    return relent


def queue_is_full(stage: Stage) -> Callable[[], None]:
    """All but the first are not even in the queue."""
    vehicle = stage.transports["vehicle"]
    vehicle.hold = True
    return vehicle.release_held


WAITS = pytest.mark.parametrize("wait", [link_is_down, receiver_refuses, nobody_listens, queue_is_full])


def stage_for(wait: Wait) -> Stage:
    if wait is queue_is_full:
        return Stage(configuration(queue_policy={"queue": {"messages": 1}, "retry": {"jitter": 0}}))
    return Stage(unconfirmed_s=10 if wait is nobody_listens else 0)


# -- TTLs


@WAITS
@pytest.mark.parametrize("ticks", [False, True], ids=["no tick before it goes on", "a tick in between"])
async def test_what_has_expired_by_the_new_clock_is_not_sent(wait: Wait, ticks: bool) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        head, short, long = order(stage, b"head"), order(stage, b"short", ttl=SHORT_MS), order(stage, b"long", ttl=LONG_MS)
        (_, received, _) = stage.arrive("cloud", head, short, long)
        stage.clock.ms += HOUR_MS
        if ticks:
            stage.router.tick()
        go_on()
        assert payloads(stage) == [b"head", b"long"]
        (letter,) = stage.dead_letters("cloud")
        assert letter.message.payload == b"short"
        assert received.acknowledged
        stage.pass_time(20_000)  # with nobody who confirms, until it is certain
        stage.router.custody.flush()
        stage.pass_time(20_000)
        assert sum(account.queued for account in stage.router.accounts()) == 0
        check_latencies(stage)


@WAITS
async def test_clock_set_back_expires_nothing_early_and_everything_in_its_time(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        wait(stage)
        stage.arrive("cloud", order(stage, b"head"), order(stage, b"short", ttl=SHORT_MS))
        stage.clock.ms -= HOUR_MS
        late = order(stage, b"late", ttl=SHORT_MS)
        stage.arrive("cloud", late)
        stage.router.tick()
        assert stage.dead_letters("cloud") == []
        stage.clock.ms += SHORT_MS + 1
        for _ in range(20):  # what is held back is not looked at with every tick
            stage.router.tick()
        assert [letter.message.payload for letter in stage.dead_letters("cloud")] == [b"late"]
        stage.clock.ms += HOUR_MS
        for _ in range(20):
            stage.router.tick()
        assert [letter.message.payload for letter in stage.dead_letters("cloud")] == [b"late", b"short"]


@WAITS
async def test_clock_set_back_lets_everything_pass(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        stage.arrive("cloud", *(order(stage, text, ttl=SHORT_MS) for text in (b"1", b"2", b"3")))
        stage.clock.ms -= HOUR_MS
        stage.router.tick()
        stage.arrive("cloud", order(stage, b"4", ttl=SHORT_MS))
        go_on()
        assert payloads(stage) == [b"1", b"2", b"3", b"4"]
        check_latencies(stage)


async def test_there_and_back_again_is_as_if_nothing_had_been() -> None:
    async with Stage() as stage:
        go_on = link_is_down(stage)
        stage.arrive("cloud", order(stage, b"short", ttl=SHORT_MS))
        stage.clock.ms -= HOUR_MS
        stage.router.tick()
        stage.clock.ms += HOUR_MS
        stage.router.tick()
        go_on()
        assert payloads(stage) == [b"short"]


@WAITS
async def test_sender_whose_clock_is_an_hour_ahead_is_heard_and_its_messages_do_not_expire_early(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        source = MessagesFrom(stage.clock.ms + HOUR_MS)
        stage.arrive("cloud", *(source.order(text, ttl=1000) for text in (b"1", b"2")))
        stage.pass_time(30_000)
        assert stage.dead_letters("cloud") == []
        go_on()
        if wait is receiver_refuses:
            stage.pass_time(30_000)
        assert payloads(stage) == [b"1", b"2"]
        check_latencies(stage)


class MessagesFrom:
    """A sender with a clock of its own."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def order(self, text: bytes, **options: Any) -> UMessage:
        return notification(self.now_ms, ORDERS, VEHICLE_APP, text, Options(**options))
