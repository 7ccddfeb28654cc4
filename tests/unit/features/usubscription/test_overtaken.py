"""Commands, responses and Updates that overtake each other between here and another device's service."""

import pytest

from streamer.features.usubscription import v3
from streamer.uprotocol.status import UCode
from tests.unit.features.usubscription.harness import (
    APP,
    REMOTE,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBED,
    UsubscriptionHarness,
    method_of,
)

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("is_pending", [False, True], ids=["subscribed", "pending"])
@pytest.mark.parametrize("order", ["US", "SU"], ids=["in-order", "answers-overtake"])
async def test_a_subscribe_that_was_carried_out_after_the_unsubscribe_is_not_sent_again(
    harness: UsubscriptionHarness, order: str, is_pending: bool
) -> None:
    await harness.subscribe(REMOTE)
    if not is_pending:
        await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    [*_, unsubscribe, subscribe] = harness.commands()
    start_ms = harness.clock.ms
    for each in order:
        harness.clock.ms = start_ms + (1 if each == "U" else 2)  # when it was carried out
        await harness.answered(unsubscribe if each == "U" else subscribe, None if each == "U" else SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert len(harness.commands()) == 3


@pytest.mark.parametrize("order", ["US", "SU"], ids=["answers-overtake", "in-order"])
@pytest.mark.parametrize("later_ms", [0, 1], ids=["as-old", "younger"])
async def test_a_subscribe_that_was_carried_out_before_the_unsubscribe_is_sent_again(
    harness: UsubscriptionHarness, order: str, later_ms: int
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    [_, unsubscribe, subscribe] = harness.commands()
    start_ms = harness.clock.ms
    for each in order:
        harness.clock.ms = start_ms + (1 + later_ms if each == "U" else 1)
        await harness.answered(unsubscribe if each == "U" else subscribe, None if each == "U" else SUBSCRIBED)
    [_, _, _, again] = harness.commands()
    assert method_of(again) == v3.SUBSCRIBE
    harness.clock.ms = start_ms + 5
    await harness.answered(again, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert len(harness.commands()) == 4


async def test_an_unsubscribe_that_was_carried_out_after_the_subscribe_is_not_sent_again(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    [subscribe, unsubscribe] = harness.commands()
    start_ms = harness.clock.ms
    harness.clock.ms = start_ms + 2
    await harness.answered(unsubscribe)
    harness.clock.ms = start_ms + 1
    await harness.answered(subscribe, SUBSCRIBED)
    assert harness.service.gauges()["remote_topics"] == 0
    assert len(harness.commands()) == 2


async def test_the_unsubscribe_that_was_carried_out_last_counts(harness: UsubscriptionHarness) -> None:
    for _ in range(2):
        await harness.subscribe(REMOTE)
        await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    first, second = harness.commands(v3.UNSUBSCRIBE)
    start_ms = harness.clock.ms
    for command, ms in ((harness.commands()[-1], 2), (second, 3), (first, 1)):
        harness.clock.ms = start_ms + ms
        await harness.answered(command, None if ms != 2 else SUBSCRIBED)
    assert len(harness.commands(v3.SUBSCRIBE)) == 4


@pytest.mark.parametrize("code", [UCode.UNAVAILABLE, UCode.INTERNAL, UCode.NOT_FOUND], ids=lambda code: code.name)
async def test_an_error_does_not_tell_when_an_unsubscribe_was_carried_out(
    harness: UsubscriptionHarness, code: UCode
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.failed(harness.commands(v3.UNSUBSCRIBE)[0], code)
    harness.clock.ms += 1
    await harness.answered(harness.commands()[2], SUBSCRIBED)
    assert len(harness.commands(v3.SUBSCRIBE)) == 3


async def test_after_a_restart_it_is_unknown_when_commands_were_carried_out(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    [_, unsubscribe, subscribe] = harness.commands()
    start_ms = harness.clock.ms
    harness.clock.ms = start_ms + 2
    await harness.answered(subscribe, SUBSCRIBED)
    await harness.restart()
    harness.clock.ms = start_ms + 1
    await harness.answered(unsubscribe)
    assert len(harness.commands(v3.SUBSCRIBE)) == 1
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("later_ms", [-1, 0, 1], ids=["older", "as-old", "younger"])
async def test_an_update_is_followed_while_another_sample_period_is_asked_for(
    harness: UsubscriptionHarness, later_ms: int
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.subscribe(REMOTE, sample_period_ms=20)
    command = harness.commands()[-1]
    harness.clock.ms += later_ms
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == ({} if later_ms == 1 else {APP: SUBSCRIBED})
    harness.clock.ms += 10
    await harness.answered(command, SUBSCRIBED)  # after that, so this subscription has to be undone there
    assert len(harness.commands(v3.UNSUBSCRIBE)) == (later_ms == 1)


async def test_nothing_is_sent_for_a_subscribe_that_was_open_when_another_one_was_refused_for_good(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.subscribe(REMOTE, sample_period_ms=20)
    [_, latest] = harness.commands()
    await harness.failed(latest, UCode.PERMISSION_DENIED)
    assert harness.service.gauges()["remote_topics"] == 0
    await harness.pass_ms(DAY_MS)
    await harness.restart()
    assert harness.commands() == []


async def test_an_unsubscribe_that_was_open_at_a_refusal_may_arrive_after_the_next_subscribe(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[-1], UNSUBSCRIBED)
    harness.forget()
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[-1], SUBSCRIBED)
    await harness.pass_ms(TIMEOUT_MS)
    assert len(harness.commands(v3.SUBSCRIBE)) == 2
    assert harness.commands(v3.UNSUBSCRIBE) == []


async def test_a_late_update_may_report_an_unsubscribe_that_was_not_answered(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[-1], SUBSCRIBED)
    await harness.pass_ms(TIMEOUT_MS)
    assert len(harness.commands(v3.SUBSCRIBE)) == 3
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("answer", [SUBSCRIBED, None], ids=["answered", "lost"])
async def test_late_updates_of_an_earlier_subscription_do_not_end_the_next_one(
    harness: UsubscriptionHarness, answer: int | None
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    start_ms = harness.clock.ms
    harness.clock.ms += 10
    await harness.unsubscribe(REMOTE)
    await harness.answered(harness.commands()[-1])
    assert harness.service.gauges()["remote_topics"] == 0
    harness.clock.ms += 10
    await harness.subscribe(REMOTE)
    command = harness.commands()[-1]
    now_ms = harness.clock.ms
    for standing, made_ms in ((SUBSCRIBED, start_ms), (UNSUBSCRIBED, start_ms + 10)):
        harness.clock.ms = made_ms
        await harness.update_received(REMOTE, standing)
    harness.clock.ms = now_ms
    assert list(await harness.subscribers(REMOTE)) == [APP]
    if answer is None:
        await harness.pass_ms(TIMEOUT_MS)
        [*_, command] = harness.commands(v3.SUBSCRIBE)
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_an_update_that_ends_a_subscription_before_its_answer_is_asked_about(harness: UsubscriptionHarness) -> None:
    """Here it was the answer that was late: the service has set the subscription up, and ended it since."""
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    start_ms = harness.clock.ms
    for standing in (SUBSCRIBED, UNSUBSCRIBED):
        harness.clock.ms += 1
        await harness.update_received(REMOTE, standing)
    harness.clock.ms = start_ms + 1
    await harness.answered(command, SUBSCRIBED)
    [_, again] = harness.commands()
    harness.clock.ms = start_ms + 5
    await harness.answered(again, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {}
