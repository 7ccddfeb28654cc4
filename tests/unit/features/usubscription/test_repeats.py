"""004 §8: remote commands have a long TTL, and are repeated as long as they are needed. Late ones do no harm."""

from dataclasses import replace

import pytest

from streamer.features.usubscription import v3
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    UsubscriptionHarness,
    method_of,
    version_of,
)

DAY_MS = 24 * 3_600_000


def test_the_timeout_is_at_least_five_minutes() -> None:
    assert UsubscriptionConfig().remote_timeout_s >= 300


@pytest.mark.parametrize("leaves", [False, True], ids=["subscribe", "unsubscribe"])
async def test_a_remote_command_has_the_timeout_as_ttl_and_is_repeated_after_it(
    harness: UsubscriptionHarness, leaves: bool
) -> None:
    await harness.subscribe(REMOTE)
    if leaves:
        await harness.answered(harness.commands()[0], SUBSCRIBED)
        harness.forget()
        await harness.unsubscribe(REMOTE)
    [command] = harness.commands()
    assert command.attributes.ttl == TIMEOUT_MS
    await harness.pass_ms(TIMEOUT_MS - 1)
    assert harness.commands() == [command]
    await harness.pass_ms(1)
    [_, again] = harness.commands()
    assert again.attributes.sink == command.attributes.sink
    assert again.id != command.id


@pytest.mark.parametrize("leaves", [False, True], ids=["subscribe", "unsubscribe"])
async def test_a_command_is_repeated_for_days_and_across_restarts(harness: UsubscriptionHarness, leaves: bool) -> None:
    await harness.subscribe(REMOTE)
    if leaves:
        await harness.answered(harness.commands()[0], SUBSCRIBED)
        await harness.unsubscribe(REMOTE)
    kind = v3.UNSUBSCRIBE if leaves else v3.SUBSCRIBE
    for _ in range(3 * DAY_MS // TIMEOUT_MS):
        harness.forget()
        await harness.pass_ms(TIMEOUT_MS)
        assert [version_of(each) for each in harness.commands(kind, any_version=True)] == [3]
    harness.clock.ms += 3 * DAY_MS
    await harness.restart()
    assert len(harness.commands(kind)) == 1
    await harness.answered(harness.commands(kind)[-1], None if leaves else SUBSCRIBED)
    assert harness.states(APP)[-1] is (UNSUBSCRIBED if leaves else SUBSCRIBED)
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert harness.commands() == []


async def test_a_subscribe_that_is_no_longer_needed_is_not_repeated(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS)
    assert harness.commands(v3.SUBSCRIBE) == []


CODES = [UCode.DEADLINE_EXCEEDED, UCode.UNAVAILABLE, UCode.RESOURCE_EXHAUSTED, UCode.INTERNAL, UCode.UNKNOWN]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_a_subscribe_that_fails_is_repeated_with_growing_waits(harness: UsubscriptionHarness, code: UCode) -> None:
    await harness.subscribe(REMOTE)
    pauses = []
    for _ in range(8):
        [command] = harness.commands()
        harness.forget()
        await harness.failed(command, code)
        at_ms = harness.clock.ms
        while not harness.commands():
            await harness.pass_ms(500)
        pauses.append(harness.clock.ms - at_ms)
    assert pauses == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}


@pytest.mark.parametrize("code", CODES[:3], ids=lambda code: code.name)
async def test_an_unsubscribe_that_was_not_delivered_is_repeated(harness: UsubscriptionHarness, code: UCode) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.failed(harness.commands(v3.UNSUBSCRIBE)[-1], code)
    states = [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert harness.states(APP) == states  # whatever the answer (§4.2)
    await harness.restart()
    [again] = harness.commands(v3.UNSUBSCRIBE)
    await harness.failed(again, code)
    await harness.pass_ms(1000)
    [_, again] = harness.commands(v3.UNSUBSCRIBE)
    await harness.answered(again)
    harness.forget()
    await harness.pass_ms(DAY_MS)
    assert harness.commands() == []
    assert harness.states(APP) == []


async def test_a_failure_at_the_end_of_the_ttl_is_repeated_at_once(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    harness.clock.ms += TIMEOUT_MS - 1
    await harness.failed(harness.commands()[0], UCode.DEADLINE_EXCEEDED)
    assert len(harness.commands()) == 2


async def test_a_response_without_a_status_does_not_count(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0])  # an empty SubscriptionResponse
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    await harness.pass_ms(1000)
    assert len(harness.commands()) == 2


async def test_a_response_from_another_authority_does_not_count(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    elsewhere = replace(
        command,
        attributes=command.attributes.__class__(
            command.attributes.type,
            command.attributes.source,
            USUBSCRIPTION.at("dev3", v3.SUBSCRIBE),
            command.attributes.priority,
            5000,
        ),
    )
    await harness.answered(elsewhere, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}


async def test_an_unsubscribe_that_a_late_subscribe_may_follow_is_sent_once_more(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    [subscribe, unsubscribe] = harness.commands()
    await harness.answered(unsubscribe)
    assert len(harness.commands()) == 2
    await harness.answered(subscribe, SUBSCRIBED)
    [_, _, again] = harness.commands()
    assert method_of(again) == v3.UNSUBSCRIBE
    assert await harness.subscribers(REMOTE) == {}
    await harness.answered(again)
    await harness.pass_ms(DAY_MS)
    assert len(harness.commands()) == 3
    assert harness.states(APP) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]


async def test_a_subscribe_that_a_late_unsubscribe_may_follow_is_sent_once_more(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    [_, subscribe] = harness.commands()
    await harness.answered(subscribe, SUBSCRIBED)
    await harness.restart()
    await harness.pass_ms(TIMEOUT_MS)  # the Unsubscribe has never been answered
    [again] = harness.commands()
    assert method_of(again) == v3.SUBSCRIBE
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.answered(again, SUBSCRIBED)
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert harness.commands() == [again]


async def test_a_late_response_to_a_subscribe_does_not_bring_back_a_subscriber_that_left(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    [first, _, _] = harness.commands()
    await harness.answered(first, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP2: SUBSCRIBE_PENDING}


async def test_an_update_that_is_older_than_the_response_is_ignored(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.answered(harness.commands()[-1])
    await harness.subscribe(REMOTE, APP2)
    await harness.answered(harness.commands()[-1], SUBSCRIBED)
    await harness.update_received(REMOTE, UNSUBSCRIBED)  # of the Unsubscribe, at the same millisecond
    assert await harness.subscribers(REMOTE) == {APP2: SUBSCRIBED}
    assert harness.states(APP2) == [SUBSCRIBE_PENDING, SUBSCRIBED]


async def test_an_update_is_ignored_while_an_unsubscribe_may_arrive(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[-1], SUBSCRIBED)
    await harness.pass_ms(10)
    # The Unsubscribe has been overtaken; its response makes us ask again.
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.answered(harness.commands(v3.UNSUBSCRIBE)[0])
    assert len(harness.commands(v3.SUBSCRIBE)) == 3


async def test_an_update_is_ignored_while_a_subscribe_is_open(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.pass_ms(TIMEOUT_MS)  # none of these commands was answered
    command = harness.commands()[-1]
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    assert harness.commands()[-1] == command


async def test_a_response_that_is_older_than_an_update_makes_us_ask_again(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    command = harness.commands()[0]
    answered_ms = harness.clock.ms
    harness.clock.ms += 10
    await harness.update_received(REMOTE, UNSUBSCRIBED)  # it has subscribed us, and then unsubscribed us
    harness.clock.ms = answered_ms
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    [_, again] = harness.commands(v3.SUBSCRIBE)
    await harness.answered(again, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    assert harness.commands(v3.SUBSCRIBE) == [command, again]


async def test_a_clock_that_is_set_back_does_not_stop_repetitions(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.pass_ms(-365 * DAY_MS)
    await harness.pass_ms(TIMEOUT_MS)
    assert len(harness.commands(any_version=True)) == 2
    harness.clock.ms -= DAY_MS
    await harness.restart()
    assert len(harness.commands()) == 1
    await harness.pass_ms(TIMEOUT_MS)
    assert len(harness.commands()) == 2


async def test_open_commands_are_bounded(harness: UsubscriptionHarness) -> None:
    for _ in range(100):
        await harness.subscribe(REMOTE)
        await harness.unsubscribe(REMOTE)
    assert len(harness.commands()) == 32
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS)
    [command] = harness.commands()
    assert method_of(command) == v3.UNSUBSCRIBE
    await harness.answered(command)
    assert harness.service.gauges()["remote_topics"] == 0


async def test_a_confirmed_subscription_is_asked_for_again_because_a_service_may_have_lost_it(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    for _ in range(3):
        harness.forget()
        await harness.pass_ms(TIMEOUT_MS // 2)
        assert harness.commands() == []
        await harness.pass_ms(TIMEOUT_MS // 2)
        [again] = harness.commands()
        assert method_of(again) == v3.SUBSCRIBE
        await harness.answered(again, SUBSCRIBED)
    assert harness.states(APP) == []
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS)
    await harness.failed(harness.commands()[0], UCode.PERMISSION_DENIED)  # it is another one by now
    assert await harness.subscribers(REMOTE) == {}
    ending = harness.commands()[-1]
    assert method_of(ending) == v3.UNSUBSCRIBE  # it may have set the subscription aside
    await harness.answered(ending)
    harness.forget()
    await harness.pass_ms(10 * TIMEOUT_MS)
    assert harness.commands() == []


async def test_while_a_service_is_away_its_subscriptions_stay_and_are_asked_for_until_it_is_back(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await harness.pass_ms(DAY_MS)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS)
    [latest] = harness.commands()[-1:]
    await harness.answered(latest, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_after_a_start_a_confirmed_subscription_is_asked_for_within_the_timeout(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.restart()
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS)
    assert [method_of(command) for command in harness.commands()] == [v3.SUBSCRIBE]


async def test_what_is_confirmed_for_many_topics_is_not_asked_for_at_once(harness: UsubscriptionHarness) -> None:
    topics = [replace_resource(number) for number in range(100)]
    for topic in topics:
        await harness.subscribe(topic)
    for command in harness.commands():
        await harness.answered(command, SUBSCRIBED)
    harness.forget()
    await harness.pass_ms(TIMEOUT_MS * 3 // 4)
    at_once = []
    for _ in range(25):
        await harness.pass_ms(TIMEOUT_MS // 100)
        at_once.append(len(harness.commands()))
        harness.forget()
    assert sum(at_once) == 100
    assert max(at_once) < 20


def replace_resource(number: int) -> UUri:
    return REMOTE._replace(resource=0x9000 + number)


async def test_a_subscription_that_the_service_has_ended_is_unsubscribed_so_that_it_does_not_come_back(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    harness.clock.advance(1)
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert harness.states(APP) == [UNSUBSCRIBED]
    [ending] = harness.commands()
    assert method_of(ending) == v3.UNSUBSCRIBE
    await harness.answered(ending)
    harness.forget()
    await harness.pass_ms(10 * TIMEOUT_MS)
    assert harness.commands() == []


async def test_a_refused_first_subscription_is_not_unsubscribed(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.failed(harness.commands()[0], UCode.PERMISSION_DENIED)
    assert [method_of(each) for each in harness.commands()] == [v3.SUBSCRIBE]
