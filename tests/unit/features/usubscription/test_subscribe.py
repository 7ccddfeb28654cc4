"""004 §4.1: Subscribe."""

from pathlib import Path
from typing import Any

import pytest

from streamer.features.usubscription import v3, wire
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    US,
    WATCHER,
    UsubscriptionHarness,
)

HOUR_MS = 3_600_000


async def test_a_subscriber_of_a_local_topic_is_subscribed_at_once(harness: UsubscriptionHarness) -> None:
    assert await harness.subscribe(LOCAL) is SUBSCRIBED
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    assert harness.commands() == []


async def test_the_answer_comes_before_the_update(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    assert [message.attributes.type.name for message in harness.core.said] == ["RESPONSE", "NOTIFICATION", "PUBLISH"]


async def test_a_subscription_is_kept_across_restarts(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, expire_ms=harness.clock.ms + HOUR_MS, sample_period_ms=20)
    assert harness.router.news == [LOCAL]
    await harness.restart()
    assert harness.router.news == []
    [entry] = (await harness.call(v3.FETCH_SUBSCRIPTIONS, _of(APP))).subscriptions
    assert uri_from_proto(entry.topic) == LOCAL
    assert entry.attributes.expire.ToMilliseconds() == harness.clock.ms + HOUR_MS
    assert entry.attributes.sample_period_ms == 20
    assert harness.router.interest == {LOCAL: {"dev1": 20}}


async def test_a_subscription_ends_when_its_time_is_exceeded(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, expire_ms=harness.clock.ms + HOUR_MS)
    await harness.pass_ms(HOUR_MS - 1)
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await harness.pass_ms(1)
    assert await harness.subscribers(LOCAL) == {}
    assert harness.states(APP) == [SUBSCRIBED, UNSUBSCRIBED]
    assert harness.router.interest == {}


async def test_a_subscription_ends_if_its_time_was_exceeded_during_a_restart(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, expire_ms=harness.clock.ms + HOUR_MS)
    await harness.service.run_once()  # notes that the Update is safe
    harness.clock.ms += HOUR_MS
    await harness.restart()
    await harness.service.run_once()
    assert await harness.subscribers(LOCAL) == {}
    assert harness.states(APP) == [UNSUBSCRIBED]


async def test_a_subscription_without_expiration_lasts_indefinitely_and_across_restarts(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(LOCAL)
    await harness.pass_ms(100 * 365 * 24 * HOUR_MS)
    await harness.restart()
    await harness.service.run_once()
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("is_late", [0, 1])
async def test_a_first_expiration_in_the_past_subscribes_nobody(harness: UsubscriptionHarness, is_late: int) -> None:
    for topic in (LOCAL, REMOTE):
        assert await harness.subscribe(topic, expire_ms=harness.clock.ms - is_late) is UNSUBSCRIBED
        assert await harness.subscribers(topic) == {}
    assert harness.updates(APP) == []
    assert harness.commands(any_version=True) == []


async def test_a_repeated_subscribe_returns_the_current_state(harness: UsubscriptionHarness) -> None:
    assert [await harness.subscribe(LOCAL), await harness.subscribe(LOCAL)] == [SUBSCRIBED, SUBSCRIBED]
    assert [await harness.subscribe(REMOTE), await harness.subscribe(REMOTE)] == [SUBSCRIBE_PENDING, SUBSCRIBE_PENDING]
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribe(REMOTE) is SUBSCRIBED


async def test_a_repeated_subscribe_notifies_nobody(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    harness.forget()
    await harness.subscribe(LOCAL)
    assert harness.updates(APP) == []


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "lasts_ms"),
    [(1000, 5000, 5000), (5000, 1000, 1000), (1000, None, None), (None, 1000, 1000)],
    ids=["later", "earlier", "for-ever", "was-for-ever"],
)
async def test_a_repeated_subscribe_replaces_the_expiration(
    harness: UsubscriptionHarness, first_ms: int | None, second_ms: int | None, lasts_ms: int | None
) -> None:
    for each in (first_ms, second_ms):
        attributes: dict[str, Any] = {} if each is None else {"expire_ms": harness.clock.ms + each}
        await harness.subscribe(LOCAL, **attributes)
    [entry] = (await harness.call(v3.FETCH_SUBSCRIPTIONS, _of(APP))).subscriptions
    expire_ms = entry.attributes.expire.ToMilliseconds() if entry.attributes.HasField("expire") else None
    assert expire_ms == (None if lasts_ms is None else harness.clock.ms + lasts_ms)
    await harness.pass_ms((lasts_ms or 100_000) - 1)
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await harness.pass_ms(1)
    assert await harness.subscribers(LOCAL) == ({APP: SUBSCRIBED} if lasts_ms is None else {})


@pytest.mark.parametrize("first_ms", [None, 5000])
async def test_a_repeated_subscribe_with_an_expiration_in_the_past_ends_the_subscription(
    harness: UsubscriptionHarness, first_ms: int | None
) -> None:
    attributes: dict[str, Any] = {} if first_ms is None else {"expire_ms": harness.clock.ms + first_ms}
    await harness.subscribe(LOCAL, **attributes)
    assert await harness.subscribe(LOCAL, expire_ms=harness.clock.ms - 1) is UNSUBSCRIBED
    assert await harness.subscribers(LOCAL) == {}
    assert harness.states(APP) == [SUBSCRIBED, UNSUBSCRIBED]
    assert harness.router.interest == {}


async def test_an_updated_expiration_is_kept_across_restarts(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, expire_ms=harness.clock.ms + 1000)
    await harness.subscribe(LOCAL, expire_ms=harness.clock.ms + 5000)
    await harness.restart()
    await harness.pass_ms(4999)
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await harness.pass_ms(1)
    assert await harness.subscribers(LOCAL) == {}


async def test_the_first_subscriber_of_a_remote_topic_triggers_a_request_to_the_service_at_its_authority(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/1"
    assert uri_from_proto(wire.read(command, pb.SubscriptionRequest).topic) == REMOTE
    await harness.subscribe(REMOTE, APP2)
    assert harness.commands() == [command]


async def test_a_remote_subscribe_names_ourselves_as_the_subscriber(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    assert command.attributes.source == US


async def test_a_remote_subscribe_does_not_expire(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE, expire_ms=harness.clock.ms + HOUR_MS)
    [command] = harness.commands()
    assert not wire.read(command, pb.SubscriptionRequest).attributes.HasField("expire")


async def test_while_a_remote_subscribe_is_open_all_subscribers_are_pending(harness: UsubscriptionHarness) -> None:
    assert [await harness.subscribe(REMOTE), await harness.subscribe(REMOTE, APP2)] == [SUBSCRIBE_PENDING, SUBSCRIBE_PENDING]
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING, APP2: SUBSCRIBE_PENDING}
    assert harness.states(APP) == harness.states(APP2) == [SUBSCRIBE_PENDING]


async def test_all_subscribers_follow_a_positive_remote_answer(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}
    assert harness.states(APP) == harness.states(APP2) == [SUBSCRIBE_PENDING, SUBSCRIBED]
    assert await harness.subscribe(REMOTE, CLOUD) is SUBSCRIBED


async def test_all_subscribers_follow_a_negative_remote_answer(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    [command] = harness.commands()
    await harness.answered(command, UNSUBSCRIBED, "not here")
    assert await harness.subscribers(REMOTE) == {}
    assert harness.states(APP) == harness.states(APP2) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert harness.router.interest == {}


REFUSALS = [
    UCode.INVALID_ARGUMENT,
    UCode.NOT_FOUND,
    UCode.ALREADY_EXISTS,
    UCode.PERMISSION_DENIED,
    UCode.UNAUTHENTICATED,
    UCode.FAILED_PRECONDITION,
    UCode.OUT_OF_RANGE,
    UCode.UNIMPLEMENTED,
    UCode.DATA_LOSS,
]


@pytest.mark.parametrize("code", REFUSALS, ids=lambda code: code.name)
async def test_a_definite_refusal_is_followed_with_its_message(harness: UsubscriptionHarness, code: UCode) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    await harness.failed(command, code, "never")
    assert await harness.subscribers(REMOTE) == {}
    last = harness.messages(UMessageType.NOTIFICATION)[-1]
    update = wire.read(last, pb.Update)
    assert (update.status.state, update.status.message) == (UNSUBSCRIBED, "never")
    await harness.pass_ms(TIMEOUT_MS)
    assert harness.commands() == [command]


async def test_a_pending_remote_answer_stays_pending_until_the_remote_update(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBE_PENDING)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    await harness.update_received(REMOTE, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert harness.commands() == [command]


async def test_a_later_remote_update_is_followed(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBED)
    await harness.pass_ms(1)
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {}
    assert harness.states(APP) == [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED]


async def test_updates_from_others_and_about_others_are_ignored(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBED)
    await harness.pass_ms(1)
    await harness.update_received(REMOTE, UNSUBSCRIBED, source=USUBSCRIPTION.at("dev3", 0x8000))
    await harness.update_received(REMOTE, UNSUBSCRIBED, about=CLOUD)
    await harness.update_received(REMOTE, UNSUBSCRIBED, sink=USUBSCRIPTION.at("dev1"))
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_subscribing_a_remote_topic_that_is_being_left_starts_over(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    harness.forget()
    assert await harness.subscribe(REMOTE) is SUBSCRIBE_PENDING
    [command] = harness.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/1"
    assert harness.states(APP) == [SUBSCRIBE_PENDING]
    await harness.answered(command, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_another_subscriber_of_a_topic_that_is_being_left_ends_the_subscription_of_the_one_that_left(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.unsubscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    assert harness.states(APP)[-2:] == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    await harness.answered(harness.commands(v3.SUBSCRIBE)[-1], SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP2: SUBSCRIBED}


async def test_observers_are_notified_of_every_change(harness: UsubscriptionHarness) -> None:
    await harness.register(REMOTE)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    assert harness.updates(WATCHER) == [(REMOTE, APP, SUBSCRIBE_PENDING), (REMOTE, APP, SUBSCRIBED)]


async def test_the_remote_service_is_asked_for_the_shortest_period(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE, sample_period_ms=100)
    await harness.subscribe(REMOTE, APP2, sample_period_ms=20)
    await harness.subscribe(REMOTE, CLOUD)
    await harness.unsubscribe(REMOTE, CLOUD)
    await harness.unsubscribe(REMOTE, APP2)
    asked = [wire.read(command, pb.SubscriptionRequest).attributes for command in harness.commands()]
    assert [each.sample_period_ms if each.HasField("sample_period_ms") else None for each in asked] == [
        100,
        20,
        None,
        20,
        100,
    ]
    assert harness.states(APP) == [SUBSCRIBE_PENDING]


async def test_too_many_subscriptions_are_refused_and_the_others_stay(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", max_subscriptions=2)
    await harness.subscribe(LOCAL)
    await harness.subscribe(REMOTE)
    proto = pb.SubscriptionRequest(topic=_uri(LOCAL))
    assert await harness.refused(v3.SUBSCRIBE, proto, APP2) is UCode.RESOURCE_EXHAUSTED
    assert await harness.subscribe(LOCAL) is SUBSCRIBED
    await harness.unsubscribe(LOCAL)
    assert await harness.subscribe(LOCAL, APP2) is SUBSCRIBED
    harness.state.close()


async def test_remote_topics_that_wait_for_the_response_to_unsubscribe_are_bounded(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", max_subscriptions=2)
    for name in ("x", "y"):
        await harness.subscribe(REMOTE._replace(authority=name))
        await harness.unsubscribe(REMOTE._replace(authority=name))
    proto = pb.SubscriptionRequest(topic=_uri(REMOTE._replace(authority="z")))
    assert await harness.refused(v3.SUBSCRIBE, proto) is UCode.RESOURCE_EXHAUSTED
    assert await harness.subscribe(LOCAL) is SUBSCRIBED
    harness.state.close()


def _uri(uri: UUri) -> v1.UUri:
    return uri_to_proto(uri)


def _of(subscriber: UUri) -> pb.FetchSubscriptionsRequest:
    return pb.FetchSubscriptionsRequest(subscriber=pb.SubscriberInfo(uri=_uri(subscriber)))
