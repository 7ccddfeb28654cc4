"""004 §8: remote commands are given time, and repeated as long as they are needed. And what becomes of late ones."""

import pytest

from streamer.config.services import UsubscriptionConfig
from streamer.services.usubscription import wire
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.services.usubscription.desk import (
    APP,
    APP2,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    Desk,
)

DAY_MS = 24 * 3_600_000


def test_the_timeout_is_at_least_five_minutes() -> None:
    assert UsubscriptionConfig().remote_timeout_s >= 300
    with pytest.raises(ValueError, match="remote_timeout_s"):
        UsubscriptionConfig(remote_timeout_s=299.9)


@pytest.mark.parametrize("leaves", [False, True], ids=["subscribe", "unsubscribe"])
async def test_a_remote_command_has_the_timeout_as_ttl_and_is_repeated_after_it(desk: Desk, leaves: bool) -> None:
    await desk.subscribe(REMOTE)
    if leaves:
        await desk.answered(desk.commands()[0], SUBSCRIBED)
        desk.forget()
        await desk.unsubscribe(REMOTE)
    [command] = desk.commands()
    assert command.attributes.ttl == TIMEOUT_MS
    await desk.pass_ms(TIMEOUT_MS - 1)
    assert desk.commands() == [command]
    await desk.pass_ms(1)
    [_, again] = desk.commands()
    assert again.attributes.sink == command.attributes.sink
    assert again.id != command.id


@pytest.mark.parametrize("leaves", [False, True], ids=["subscribe", "unsubscribe"])
async def test_a_command_is_repeated_for_days_and_across_restarts(desk: Desk, leaves: bool) -> None:
    await desk.subscribe(REMOTE)
    if leaves:
        await desk.answered(desk.commands()[0], SUBSCRIBED)
        await desk.unsubscribe(REMOTE)
    kind = wire.UNSUBSCRIBE if leaves else wire.SUBSCRIBE
    for _ in range(3 * DAY_MS // TIMEOUT_MS):
        desk.forget()
        await desk.pass_ms(TIMEOUT_MS)
        assert len(desk.commands(kind)) == 1
    desk.clock.now_ms += 3 * DAY_MS
    await desk.restart()
    assert len(desk.commands(kind)) == 1
    await desk.answered(desk.commands(kind)[-1], None if leaves else SUBSCRIBED)
    assert desk.standings(APP)[-1] is (UNSUBSCRIBED if leaves else SUBSCRIBED)
    desk.forget()
    await desk.pass_ms(DAY_MS)
    assert desk.commands() == []


async def test_a_subscribe_that_is_not_needed_any_more_is_not_repeated(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    desk.forget()
    await desk.pass_ms(TIMEOUT_MS)
    assert desk.commands(wire.SUBSCRIBE) == []


CODES = [UCode.DEADLINE_EXCEEDED, UCode.UNAVAILABLE, UCode.RESOURCE_EXHAUSTED, UCode.INTERNAL, UCode.UNKNOWN]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_a_subscribe_that_fails_early_is_repeated_later_and_later(desk: Desk, code: UCode) -> None:
    await desk.subscribe(REMOTE)
    pauses = []
    for _ in range(8):
        [command] = desk.commands()
        desk.forget()
        await desk.failed(command, code)
        at_ms = desk.clock.now_ms
        while not desk.commands():
            await desk.pass_ms(500)
        pauses.append(desk.clock.now_ms - at_ms)
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}


@pytest.mark.parametrize("code", CODES[:3], ids=lambda code: code.name)
async def test_an_unsubscribe_that_was_not_delivered_is_repeated(desk: Desk, code: UCode) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.failed(desk.commands(wire.UNSUBSCRIBE)[-1], code)
    standings = [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert desk.standings(APP) == standings  # whatever the answer (§4.2)
    await desk.restart()
    [again] = desk.commands(wire.UNSUBSCRIBE)
    await desk.failed(again, code)
    await desk.pass_ms(1000)
    [_, again] = desk.commands(wire.UNSUBSCRIBE)
    await desk.answered(again)
    desk.forget()
    await desk.pass_ms(DAY_MS)
    assert desk.commands() == []
    assert desk.standings(APP) == []


async def test_a_failure_at_the_end_of_the_ttl_is_repeated_at_once(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    desk.clock.now_ms += TIMEOUT_MS - 1
    await desk.failed(desk.commands()[0], UCode.DEADLINE_EXCEEDED)
    assert len(desk.commands()) == 2


async def test_an_answer_without_a_status_is_none(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0])  # an empty SubscriptionResponse
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    await desk.pass_ms(1000)
    assert len(desk.commands()) == 2


async def test_an_answer_of_somebody_else_is_none(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    elsewhere = command._replace(
        attributes=command.attributes.__class__(
            command.attributes.type,
            command.attributes.source,
            USUBSCRIPTION.at("dev3", wire.SUBSCRIBE),
            command.attributes.priority,
            5000,
        )
    )
    await desk.answered(elsewhere, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}


async def test_an_unsubscribe_that_a_late_subscribe_may_follow_is_sent_once_more(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    [subscribe, unsubscribe] = desk.commands()
    await desk.answered(unsubscribe)
    assert len(desk.commands()) == 2
    await desk.answered(subscribe, SUBSCRIBED)
    [_, _, again] = desk.commands()
    assert again.attributes.sink.resource == wire.UNSUBSCRIBE
    assert await desk.subscribers(REMOTE) == {}
    await desk.answered(again)
    await desk.pass_ms(DAY_MS)
    assert len(desk.commands()) == 3
    assert desk.standings(APP) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]


async def test_a_subscribe_that_a_late_unsubscribe_may_follow_is_sent_once_more(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    desk.forget()
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    [_, subscribe] = desk.commands()
    await desk.answered(subscribe, SUBSCRIBED)
    await desk.restart()
    await desk.pass_ms(TIMEOUT_MS)  # the Unsubscribe has never been answered
    [again] = desk.commands()
    assert again.attributes.sink.resource == wire.SUBSCRIBE
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.answered(again, SUBSCRIBED)
    await desk.pass_ms(DAY_MS)
    assert desk.commands() == [again]


async def test_a_late_answer_to_a_subscribe_does_not_bring_back_who_has_left(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE, APP2)
    [first, _, _] = desk.commands()
    await desk.answered(first, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP2: SUBSCRIBE_PENDING}


async def test_an_update_that_the_answer_has_overtaken_is_not_followed(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.answered(desk.commands()[-1])
    await desk.subscribe(REMOTE, APP2)
    await desk.answered(desk.commands()[-1], SUBSCRIBED)
    await desk.told(REMOTE, UNSUBSCRIBED)  # of the Unsubscribe, at the same millisecond
    assert await desk.subscribers(REMOTE) == {APP2: SUBSCRIBED}
    assert desk.standings(APP2) == [SUBSCRIBE_PENDING, SUBSCRIBED]


async def test_an_update_is_not_followed_while_an_unsubscribe_may_arrive(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[-1], SUBSCRIBED)
    await desk.pass_ms(10)
    await desk.told(REMOTE, UNSUBSCRIBED)  # the Unsubscribe has been overtaken; its answer will have us ask again
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.answered(desk.commands(wire.UNSUBSCRIBE)[0])
    assert len(desk.commands(wire.SUBSCRIBE)) == 3


async def test_an_update_is_not_followed_while_a_subscribe_is_open(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.pass_ms(TIMEOUT_MS)  # nothing of all this was answered
    command = desk.commands()[-1]
    await desk.told(REMOTE, UNSUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    assert desk.commands()[-1] == command


async def test_an_answer_that_a_later_update_has_overtaken_is_asked_for_again(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    command = desk.commands()[0]
    answered_ms = desk.clock.now_ms
    desk.clock.now_ms += 10
    await desk.told(REMOTE, UNSUBSCRIBED)  # it has subscribed us, and thought better of it
    desk.clock.now_ms = answered_ms
    await desk.answered(command, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    [_, again] = desk.commands(wire.SUBSCRIBE)
    await desk.answered(again, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    assert desk.commands(wire.SUBSCRIBE) == [command, again]


async def test_a_clock_that_goes_back_does_not_stop_the_repeats(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.pass_ms(-365 * DAY_MS)
    await desk.pass_ms(TIMEOUT_MS)
    assert len(desk.commands()) == 2
    desk.clock.now_ms -= DAY_MS
    await desk.restart()
    assert len(desk.commands()) == 1
    await desk.pass_ms(TIMEOUT_MS)
    assert len(desk.commands()) == 2


async def test_commands_on_their_way_are_bounded(desk: Desk) -> None:
    for _ in range(100):
        await desk.subscribe(REMOTE)
        await desk.unsubscribe(REMOTE)
    assert len(desk.commands()) == 32
    desk.forget()
    await desk.pass_ms(TIMEOUT_MS)
    [command] = desk.commands()
    assert command.attributes.sink.resource == wire.UNSUBSCRIBE
    await desk.answered(command)
    assert desk.service.gauges()["remote_topics"] == 0
