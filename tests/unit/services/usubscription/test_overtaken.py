"""Commands, answers and Updates that overtake each other on their way to and from another device's service."""

import pytest

from streamer.services.usubscription import wire
from streamer.uprotocol.status import UCode
from tests.unit.services.usubscription.desk import APP, REMOTE, SUBSCRIBED, TIMEOUT_MS, UNSUBSCRIBED, Desk

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("is_pending", [False, True], ids=["subscribed", "pending"])
@pytest.mark.parametrize("order", ["US", "SU"], ids=["in-order", "answers-overtake"])
async def test_a_subscribe_that_was_carried_out_after_the_unsubscribe_is_not_sent_again(
    desk: Desk, order: str, is_pending: bool
) -> None:
    await desk.subscribe(REMOTE)
    if not is_pending:
        await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    [*_, unsubscribe, subscribe] = desk.commands()
    start_ms = desk.clock.now_ms
    for each in order:
        desk.clock.now_ms = start_ms + (1 if each == "U" else 2)  # when it was carried out
        await desk.answered(unsubscribe if each == "U" else subscribe, None if each == "U" else SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.pass_ms(DAY_MS)
    assert len(desk.commands()) == 3


@pytest.mark.parametrize("order", ["US", "SU"], ids=["answers-overtake", "in-order"])
@pytest.mark.parametrize("later_ms", [0, 1], ids=["as-old", "younger"])
async def test_a_subscribe_that_was_carried_out_before_the_unsubscribe_is_sent_again(
    desk: Desk, order: str, later_ms: int
) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    [_, unsubscribe, subscribe] = desk.commands()
    start_ms = desk.clock.now_ms
    for each in order:
        desk.clock.now_ms = start_ms + (1 + later_ms if each == "U" else 1)
        await desk.answered(unsubscribe if each == "U" else subscribe, None if each == "U" else SUBSCRIBED)
    [_, _, _, again] = desk.commands()
    assert again.attributes.sink.resource == wire.SUBSCRIBE
    desk.clock.now_ms = start_ms + 5
    await desk.answered(again, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.pass_ms(DAY_MS)
    assert len(desk.commands()) == 4


async def test_an_unsubscribe_that_was_carried_out_after_the_subscribe_is_not_sent_again(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    [subscribe, unsubscribe] = desk.commands()
    start_ms = desk.clock.now_ms
    desk.clock.now_ms = start_ms + 2
    await desk.answered(unsubscribe)
    desk.clock.now_ms = start_ms + 1
    await desk.answered(subscribe, SUBSCRIBED)
    assert desk.service.gauges()["remote_topics"] == 0
    assert len(desk.commands()) == 2


async def test_of_two_unsubscribes_the_one_that_was_carried_out_last_counts(desk: Desk) -> None:
    for _ in range(2):
        await desk.subscribe(REMOTE)
        await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    first, second = desk.commands(wire.UNSUBSCRIBE)
    start_ms = desk.clock.now_ms
    for command, ms in ((desk.commands()[-1], 2), (second, 3), (first, 1)):
        desk.clock.now_ms = start_ms + ms
        await desk.answered(command, None if ms != 2 else SUBSCRIBED)
    assert len(desk.commands(wire.SUBSCRIBE)) == 4


@pytest.mark.parametrize("code", [UCode.UNAVAILABLE, UCode.INTERNAL, UCode.NOT_FOUND], ids=lambda code: code.name)
async def test_an_error_does_not_tell_when_an_unsubscribe_was_carried_out(desk: Desk, code: UCode) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.failed(desk.commands(wire.UNSUBSCRIBE)[0], code)
    desk.clock.now_ms += 1
    await desk.answered(desk.commands()[2], SUBSCRIBED)
    assert len(desk.commands(wire.SUBSCRIBE)) == 3


async def test_after_a_restart_it_is_not_known_what_was_carried_out_when(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    [_, unsubscribe, subscribe] = desk.commands()
    start_ms = desk.clock.now_ms
    desk.clock.now_ms = start_ms + 2
    await desk.answered(subscribe, SUBSCRIBED)
    await desk.restart()
    desk.clock.now_ms = start_ms + 1
    await desk.answered(unsubscribe)
    assert len(desk.commands(wire.SUBSCRIBE)) == 1
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("later_ms", [-1, 0, 1], ids=["older", "as-old", "younger"])
async def test_an_update_is_followed_while_another_sample_period_is_asked_for(desk: Desk, later_ms: int) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.subscribe(REMOTE, sample_period_ms=20)
    command = desk.commands()[-1]
    desk.clock.now_ms += later_ms
    await desk.told(REMOTE, UNSUBSCRIBED)
    assert await desk.subscribers(REMOTE) == ({} if later_ms == 1 else {APP: SUBSCRIBED})
    desk.clock.now_ms += 10
    await desk.answered(command, SUBSCRIBED)  # after that, so nobody is to be subscribed there who is not here
    assert len(desk.commands(wire.UNSUBSCRIBE)) == (later_ms == 1)


async def test_nothing_is_sent_for_a_subscribe_that_was_open_when_another_one_was_refused_for_good(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.subscribe(REMOTE, sample_period_ms=20)
    [_, latest] = desk.commands()
    await desk.failed(latest, UCode.PERMISSION_DENIED)
    assert desk.service.gauges()["remote_topics"] == 0
    await desk.pass_ms(DAY_MS)
    await desk.restart()
    assert desk.commands() == []


async def test_an_unsubscribe_that_was_open_at_a_refusal_may_arrive_after_the_next_subscribe(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[-1], UNSUBSCRIBED)
    desk.forget()
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[-1], SUBSCRIBED)
    await desk.pass_ms(TIMEOUT_MS)
    assert len(desk.commands(wire.SUBSCRIBE)) == 2
    assert desk.commands(wire.UNSUBSCRIBE) == []


async def test_an_update_may_tell_late_of_an_unsubscribe_that_was_not_answered(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[-1], SUBSCRIBED)
    await desk.pass_ms(TIMEOUT_MS)
    assert len(desk.commands(wire.SUBSCRIBE)) == 3
    await desk.told(REMOTE, UNSUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
