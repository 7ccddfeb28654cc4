"""004 §4.1: Subscribe."""

import pytest

from streamer.services.usubscription import wire
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.services.usubscription.desk import (
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
    Desk,
)

HOUR_MS = 3_600_000


async def test_a_subscriber_of_a_local_topic_is_subscribed_at_once(desk: Desk) -> None:
    assert await desk.subscribe(LOCAL) is SUBSCRIBED
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}
    assert desk.commands() == []


async def test_the_answer_comes_before_the_update(desk: Desk) -> None:
    await desk.subscribe(LOCAL)
    assert [message.attributes.type.name for message in desk.core.said] == ["RESPONSE", "NOTIFICATION"]


async def test_a_subscription_is_kept_across_restarts(desk: Desk) -> None:
    await desk.subscribe(LOCAL, expire_ms=desk.clock.now_ms + HOUR_MS, sample_period_ms=20)
    await desk.restart()
    [entry] = (await desk.call(wire.FETCH_SUBSCRIPTIONS, _of(APP))).subscriptions
    assert uri_from_proto(entry.topic) == LOCAL
    assert entry.attributes.expire.ToMilliseconds() == desk.clock.now_ms + HOUR_MS
    assert entry.attributes.sample_period_ms == 20
    assert desk.wanted == {LOCAL: {"dev1": 20}}


async def test_a_subscription_ends_when_its_time_is_exceeded(desk: Desk) -> None:
    await desk.subscribe(LOCAL, expire_ms=desk.clock.now_ms + HOUR_MS)
    await desk.pass_ms(HOUR_MS - 1)
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await desk.pass_ms(1)
    assert await desk.subscribers(LOCAL) == {}
    assert desk.standings(APP) == [SUBSCRIBED, UNSUBSCRIBED]
    assert desk.wanted == {}


async def test_a_subscription_ends_if_its_time_was_exceeded_during_a_restart(desk: Desk) -> None:
    await desk.subscribe(LOCAL, expire_ms=desk.clock.now_ms + HOUR_MS)
    await desk.service.turn()  # notes that the Update is safe
    desk.clock.now_ms += HOUR_MS
    await desk.restart()
    await desk.service.turn()
    assert await desk.subscribers(LOCAL) == {}
    assert desk.standings(APP) == [UNSUBSCRIBED]


async def test_a_subscription_without_expiration_lasts_indefinitely_and_across_restarts(desk: Desk) -> None:
    await desk.subscribe(LOCAL)
    await desk.pass_ms(100 * 365 * 24 * HOUR_MS)
    await desk.restart()
    await desk.service.turn()
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("is_late", [0, 1])
async def test_a_first_expiration_in_the_past_is_refused(desk: Desk, is_late: int) -> None:
    proto = pb.SubscriptionRequest(topic=_uri(LOCAL))
    proto.attributes.expire.FromMilliseconds(desk.clock.now_ms - is_late)
    assert await desk.refused(wire.SUBSCRIBE, proto) is UCode.INVALID_ARGUMENT


async def test_a_repeated_subscribe_returns_the_current_standing(desk: Desk) -> None:
    assert [await desk.subscribe(LOCAL), await desk.subscribe(LOCAL)] == [SUBSCRIBED, SUBSCRIBED]
    assert [await desk.subscribe(REMOTE), await desk.subscribe(REMOTE)] == [SUBSCRIBE_PENDING, SUBSCRIBE_PENDING]
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBED)
    assert await desk.subscribe(REMOTE) is SUBSCRIBED


async def test_a_repeated_subscribe_tells_nobody_anything(desk: Desk) -> None:
    await desk.subscribe(LOCAL)
    desk.forget()
    await desk.subscribe(LOCAL)
    assert desk.updates(APP) == []


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "lasts_ms"),
    [(1000, 5000, 5000), (5000, 1000, 5000), (5000, -1, 5000), (1000, None, None), (None, 1000, None), (None, -1, None)],
    ids=["later", "earlier", "past", "for-ever", "was-for-ever", "was-for-ever-past"],
)
async def test_a_repeated_subscribe_updates_the_expiration_only_if_it_exceeds_the_current_one(
    desk: Desk, first_ms: int | None, second_ms: int | None, lasts_ms: int | None
) -> None:
    for each in (first_ms, second_ms):
        await desk.subscribe(LOCAL, **({} if each is None else {"expire_ms": desk.clock.now_ms + each}))
    [entry] = (await desk.call(wire.FETCH_SUBSCRIPTIONS, _of(APP))).subscriptions
    expire_ms = entry.attributes.expire.ToMilliseconds() if entry.attributes.HasField("expire") else None
    assert expire_ms == (None if lasts_ms is None else desk.clock.now_ms + lasts_ms)
    await desk.pass_ms((lasts_ms or 100_000) - 1)
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await desk.pass_ms(1)
    assert await desk.subscribers(LOCAL) == ({APP: SUBSCRIBED} if lasts_ms is None else {})


async def test_an_updated_expiration_holds_across_restarts(desk: Desk) -> None:
    await desk.subscribe(LOCAL, expire_ms=desk.clock.now_ms + 1000)
    await desk.subscribe(LOCAL, expire_ms=desk.clock.now_ms + 5000)
    await desk.restart()
    await desk.pass_ms(4999)
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}
    await desk.pass_ms(1)
    assert await desk.subscribers(LOCAL) == {}


async def test_the_first_subscriber_of_a_remote_topic_triggers_a_request_to_the_service_at_its_authority(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/1"
    assert uri_from_proto(wire.read(command, pb.SubscriptionRequest).topic) == REMOTE
    await desk.subscribe(REMOTE, APP2)
    assert desk.commands() == [command]


async def test_a_remote_subscribe_names_ourselves_as_the_subscriber(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    assert command.attributes.source == US


async def test_a_remote_subscribe_does_not_expire(desk: Desk) -> None:
    await desk.subscribe(REMOTE, expire_ms=desk.clock.now_ms + HOUR_MS)
    [command] = desk.commands()
    assert not wire.read(command, pb.SubscriptionRequest).attributes.HasField("expire")


async def test_while_a_remote_subscribe_is_open_all_subscribers_are_pending(desk: Desk) -> None:
    assert [await desk.subscribe(REMOTE), await desk.subscribe(REMOTE, APP2)] == [SUBSCRIBE_PENDING, SUBSCRIBE_PENDING]
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING, APP2: SUBSCRIBE_PENDING}
    assert desk.standings(APP) == desk.standings(APP2) == [SUBSCRIBE_PENDING]


async def test_all_subscribers_follow_a_positive_remote_answer(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.subscribe(REMOTE, APP2)
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}
    assert desk.standings(APP) == desk.standings(APP2) == [SUBSCRIBE_PENDING, SUBSCRIBED]
    assert await desk.subscribe(REMOTE, CLOUD) is SUBSCRIBED


async def test_all_subscribers_follow_a_negative_remote_answer(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.subscribe(REMOTE, APP2)
    [command] = desk.commands()
    await desk.answered(command, UNSUBSCRIBED, "not here")
    assert await desk.subscribers(REMOTE) == {}
    assert desk.standings(APP) == desk.standings(APP2) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert desk.wanted == {}


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
async def test_a_definite_refusal_is_followed_with_its_message(desk: Desk, code: UCode) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    await desk.failed(command, code, "never")
    assert await desk.subscribers(REMOTE) == {}
    last = desk.core.said[-2]  # the answer to what was just asked came after it
    update = wire.read(last, pb.Update)
    assert (update.status.state, update.status.message) == (UNSUBSCRIBED, "never")
    await desk.pass_ms(TIMEOUT_MS)
    assert desk.commands() == [command]


async def test_a_pending_remote_answer_stays_pending_until_the_remote_update(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBE_PENDING)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    await desk.told(REMOTE, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.pass_ms(10 * TIMEOUT_MS)
    assert desk.commands() == [command]


async def test_a_later_remote_update_is_followed(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBED)
    await desk.pass_ms(1)
    await desk.told(REMOTE, UNSUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {}
    assert desk.standings(APP) == [SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBED]


async def test_updates_of_others_and_about_others_are_not_followed(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBED)
    await desk.pass_ms(1)
    await desk.told(REMOTE, UNSUBSCRIBED, source=USUBSCRIPTION.at("dev3", 0x8000))
    await desk.told(REMOTE, UNSUBSCRIBED, about=CLOUD)
    await desk.told(REMOTE, UNSUBSCRIBED, sink=USUBSCRIPTION.at("dev1"))
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_subscribing_a_remote_topic_that_is_being_left_starts_over(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    desk.forget()
    assert await desk.subscribe(REMOTE) is SUBSCRIBE_PENDING
    [command] = desk.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/1"
    assert desk.standings(APP) == [SUBSCRIBE_PENDING]
    await desk.answered(command, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}


async def test_another_one_who_subscribes_a_topic_that_is_being_left_releases_the_one_who_left(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.unsubscribe(REMOTE)
    await desk.subscribe(REMOTE, APP2)
    assert desk.standings(APP)[-2:] == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    await desk.answered(desk.commands(wire.SUBSCRIBE)[-1], SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP2: SUBSCRIBED}


async def test_every_change_is_told_to_observers(desk: Desk) -> None:
    await desk.register(REMOTE)
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    assert desk.updates(WATCHER) == [(REMOTE, APP, SUBSCRIBE_PENDING), (REMOTE, APP, SUBSCRIBED)]


async def test_the_remote_service_is_asked_for_the_fastest_period(desk: Desk) -> None:
    await desk.subscribe(REMOTE, sample_period_ms=100)
    await desk.subscribe(REMOTE, APP2, sample_period_ms=20)
    await desk.subscribe(REMOTE, CLOUD)
    await desk.unsubscribe(REMOTE, CLOUD)
    await desk.unsubscribe(REMOTE, APP2)
    asked = [wire.read(command, pb.SubscriptionRequest).attributes for command in desk.commands()]
    assert [each.sample_period_ms if each.HasField("sample_period_ms") else None for each in asked] == [
        100,
        20,
        None,
        20,
        100,
    ]
    assert desk.standings(APP) == [SUBSCRIBE_PENDING]


async def test_too_many_subscriptions_are_refused_and_the_others_stand(tmp_path: object) -> None:
    desk = Desk(tmp_path / "state.db", max_subscriptions=2)
    await desk.subscribe(LOCAL)
    await desk.subscribe(REMOTE)
    proto = pb.SubscriptionRequest(topic=_uri(LOCAL))
    assert await desk.refused(wire.SUBSCRIBE, proto, APP2) is UCode.RESOURCE_EXHAUSTED
    assert await desk.subscribe(LOCAL) is SUBSCRIBED
    await desk.unsubscribe(LOCAL)
    assert await desk.subscribe(LOCAL, APP2) is SUBSCRIBED
    desk.state.close()


async def test_remote_topics_that_are_left_without_an_answer_are_bounded(tmp_path: object) -> None:
    desk = Desk(tmp_path / "state.db", max_subscriptions=2)
    for name in ("x", "y"):
        await desk.subscribe(REMOTE._replace(authority=name))
        await desk.unsubscribe(REMOTE._replace(authority=name))
    proto = pb.SubscriptionRequest(topic=_uri(REMOTE._replace(authority="z")))
    assert await desk.refused(wire.SUBSCRIBE, proto) is UCode.RESOURCE_EXHAUSTED
    assert await desk.subscribe(LOCAL) is SUBSCRIBED
    desk.state.close()


def _uri(uri: object) -> object:
    return wire.uri_to_proto(uri)


def _of(subscriber: object) -> pb.FetchSubscriptionsRequest:
    return pb.FetchSubscriptionsRequest(subscriber=pb.SubscriberInfo(uri=_uri(subscriber)))
