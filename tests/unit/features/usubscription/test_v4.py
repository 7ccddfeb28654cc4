"""Version 4 of the service, over the same book as version 3: its methods, and who is told of a change."""

from pathlib import Path

import pytest

from streamer.features.usubscription import v3, v4, wire
from streamer.uprotocol.message import UMessageType, UPayloadFormat, notification, response
from streamer.uprotocol.proto import usubscription_v3_pb2 as p3
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION, USUBSCRIPTION_4
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    PLAIN,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    US,
    WATCHER,
    UsubscriptionHarness,
    version_of,
)
from tests.unit.features.usubscription.v4_harness import TOPIC_OF_CHANGES, V4, Told

HOUR_MS = 3_600_000
OTHER = LOCAL._replace(resource=0x8002)


@pytest.fixture
def client(harness: UsubscriptionHarness) -> V4:
    return V4(harness)


# Subscribe


async def test_subscriptions_are_the_same_in_both_versions(harness: UsubscriptionHarness, client: V4) -> None:
    assert await client.subscribe(LOCAL) is SUBSCRIBED
    assert await harness.subscribe(LOCAL, APP2) is SUBSCRIBED
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}
    assert await client.fetch() == [Told(LOCAL, APP, SUBSCRIBED), Told(LOCAL, APP2, SUBSCRIBED)]
    await harness.unsubscribe(LOCAL)
    await client.unsubscribe(LOCAL, APP2)
    assert await client.fetch() == []
    assert harness.router.interest == {}


async def test_a_repeated_subscribe_returns_the_current_state(harness: UsubscriptionHarness, client: V4) -> None:
    assert [await client.subscribe(LOCAL), await client.subscribe(LOCAL)] == [SUBSCRIBED, SUBSCRIBED]
    assert [await client.subscribe(REMOTE), await client.subscribe(REMOTE)] == [SUBSCRIBE_PENDING, SUBSCRIBE_PENDING]


async def test_a_subscription_is_kept_with_its_terms_across_restarts(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL, expire_ms=harness.clock.ms + HOUR_MS, period_ms=20)
    await harness.restart()
    assert await client.fetch() == [Told(LOCAL, APP, SUBSCRIBED, harness.clock.ms + HOUR_MS, 20)]
    assert harness.router.interest == {LOCAL: {"dev1": 20}}


async def test_without_expiration_it_lasts_until_the_client_leaves(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL)
    await harness.pass_ms(100 * 365 * 24 * HOUR_MS)
    await harness.restart()
    assert await client.fetch() == [Told(LOCAL, APP, SUBSCRIBED)]


async def test_it_ends_to_the_millisecond_when_its_time_is_exceeded(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL, expire_ms=harness.clock.ms + HOUR_MS + 1)
    await harness.pass_ms(HOUR_MS)
    assert len(await client.fetch()) == 1
    await harness.pass_ms(1)
    assert await client.fetch() == []


async def test_an_expiration_in_the_past_subscribes_nobody(harness: UsubscriptionHarness, client: V4) -> None:
    for topic in (LOCAL, REMOTE):
        assert await client.subscribe(topic, expire_ms=harness.clock.ms - 1) is UNSUBSCRIBED
    assert await client.fetch() == []
    assert harness.commands(any_version=True) == []


@pytest.mark.parametrize("second_ms", [None, 1000, 5000])
async def test_another_expiration_replaces_the_first(
    harness: UsubscriptionHarness, client: V4, second_ms: int | None
) -> None:
    await client.subscribe(LOCAL, expire_ms=harness.clock.ms + 2000)
    expire_ms = None if second_ms is None else harness.clock.ms + second_ms
    assert await client.subscribe(LOCAL, expire_ms=expire_ms) is SUBSCRIBED
    assert await client.fetch() == [Told(LOCAL, APP, SUBSCRIBED, expire_ms)]
    await harness.pass_ms(second_ms or 100_000)
    assert bool(await client.fetch()) is (second_ms is None)


async def test_another_expiration_in_the_past_ends_the_subscription(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL)
    assert await client.subscribe(LOCAL, expire_ms=harness.clock.ms) is UNSUBSCRIBED
    assert await client.fetch() == []
    assert client.notified(APP)[-1].state is UNSUBSCRIBED


async def test_another_expiration_in_the_past_leaves_a_remote_topic(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    assert await client.subscribe(REMOTE, expire_ms=harness.clock.ms - 1) is UNSUBSCRIBED
    await harness.answered(harness.commands()[-1])
    assert [each.state for each in client.notified(APP)] == [
        SUBSCRIBE_PENDING,
        SUBSCRIBED,
        UNSUBSCRIBE_PENDING,
        UNSUBSCRIBED,
    ]


BAD_TOPICS = {
    "method": LOCAL._replace(resource=1),
    "entity": LOCAL._replace(resource=0),
    "wildcard-resource": LOCAL._replace(resource=0xFFFF),
    "no-authority": LOCAL._replace(authority=""),
    "wildcard-authority": LOCAL._replace(authority="*"),
    "wildcard-service": LOCAL._replace(ue_id=0xFFFF),
    "invalid-authority": LOCAL._replace(authority="Dev1"),
    "invalid-version": LOCAL._replace(version=0x100),
    "invalid-resource": LOCAL._replace(resource=0x18001),
}


@pytest.mark.parametrize("topic", BAD_TOPICS)
async def test_a_bad_topic_is_refused(client: V4, topic: str) -> None:
    uri = uri_to_proto(BAD_TOPICS[topic])
    assert await client.refused(v4.SUBSCRIBE, pb.SubscribeRequest(topic=uri)) is UCode.INVALID_ARGUMENT
    assert await client.refused(v4.UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri)) is UCode.INVALID_ARGUMENT


async def test_an_absent_topic_is_refused(client: V4) -> None:
    assert await client.refused(v4.SUBSCRIBE, pb.SubscribeRequest()) is UCode.INVALID_ARGUMENT
    assert await client.refused(v4.UNSUBSCRIBE, pb.UnsubscribeRequest()) is UCode.INVALID_ARGUMENT


async def test_a_topic_may_stand_for_any_instance_of_its_service(harness: UsubscriptionHarness, client: V4) -> None:
    doors = LOCAL._replace(ue_id=0xFFFF_0000 | LOCAL.ue_id)
    assert await client.subscribe(doors) is SUBSCRIBED
    assert harness.router.interest == {doors: {"dev1": 0}}
    await harness.restart()
    assert await client.fetch(doors) == [Told(doors, APP, SUBSCRIBED)]


async def test_an_unknown_method_is_unimplemented(client: V4) -> None:
    assert await client.refused(7, pb.ResetRequest()) is UCode.UNIMPLEMENTED


# Remote topics


async def test_a_remote_topic_is_subscribed_to_once_and_its_answer_counts_for_all(
    harness: UsubscriptionHarness, client: V4
) -> None:
    assert [await client.subscribe(REMOTE), await harness.subscribe(REMOTE, APP2)] == [SUBSCRIBE_PENDING] * 2
    [command] = harness.commands(any_version=True)
    await harness.answered(command, SUBSCRIBED)
    assert [each.state for each in await client.fetch(REMOTE)] == [SUBSCRIBED, SUBSCRIBED]
    assert [each.state for each in client.notified(APP)] == [SUBSCRIBE_PENDING, SUBSCRIBED]
    assert harness.states(APP2) == [SUBSCRIBE_PENDING, SUBSCRIBED]


async def test_the_last_one_to_leave_unsubscribes_there_and_is_told_nothing(
    harness: UsubscriptionHarness, client: V4
) -> None:
    await client.subscribe(REMOTE, expire_ms=harness.clock.ms + HOUR_MS)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await client.unsubscribe(REMOTE)
    [command] = harness.commands()
    await harness.failed(command, UCode.PERMISSION_DENIED)
    assert client.notified(APP) == []
    assert [each.state for each in client.published()] == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    harness.forget()
    await harness.pass_ms(10 * HOUR_MS)
    assert client.published() == []


async def test_leaving_a_pending_topic_unsubscribes_there(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(REMOTE)
    await client.unsubscribe(REMOTE)
    [_, command] = harness.commands()
    assert command.attributes.sink == USUBSCRIPTION.at("dev2", 2)
    assert client.published()[-1].state is UNSUBSCRIBED


async def test_subscribing_a_topic_that_is_being_left_starts_over(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await client.unsubscribe(REMOTE)
    harness.forget()
    assert await client.subscribe(REMOTE) is SUBSCRIBE_PENDING
    assert [str(each.attributes.sink) for each in harness.commands()] == ["//dev2/0/3/1"]


async def test_a_remote_command_in_version_4_has_its_messages_and_five_minutes(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", remote_version=4)
    topic = REMOTE._replace(authority="new")
    await V4(harness).subscribe(topic, period_ms=50)
    [command] = harness.commands(any_version=True)
    asked = wire.read(command, pb.SubscribeRequest)
    assert (command.attributes.source, command.attributes.sink) == (USUBSCRIPTION.at("gw1"), USUBSCRIPTION_4.at("new", 1))
    assert (command.attributes.ttl, uri_from_proto(asked.topic), asked.sample_period) == (300_000, topic, 50)
    harness.state.close()


@pytest.mark.parametrize("version", [3, 4])
async def test_a_remote_service_is_asked_in_the_configured_version_and_followed_in_either(
    tmp_path: Path, version: int
) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", remote_version=version)
    await harness.subscribe(REMOTE)
    [command] = harness.commands(any_version=True)
    assert version_of(command) == version
    await harness.grant(command)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(1)
    if version == 4:
        await harness.update_received(REMOTE, UNSUBSCRIBED)
    else:
        proto = pb.Subscription(topic=uri_to_proto(REMOTE), subscriber=uri_to_proto(US), status=pb.STATUS_UNSUBSCRIBED)
        source = USUBSCRIPTION_4.at("dev2", 0x8000)
        await harness.send(notification(harness.clock.ms, source, US, proto.SerializeToString(), PLAIN))
    assert harness.states(APP)[-1] is UNSUBSCRIBED
    harness.state.close()


async def test_a_service_that_does_not_know_the_configured_version_refuses_for_good(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", remote_version=4)
    await harness.subscribe(REMOTE)
    [command] = harness.commands(any_version=True)
    await harness.failed(command, UCode.UNIMPLEMENTED)
    assert harness.states(APP) == [SUBSCRIBE_PENDING, UNSUBSCRIBED]
    await harness.pass_ms(HOUR_MS)
    assert harness.commands(any_version=True) == [command]
    harness.state.close()


async def test_another_version_holds_after_a_reload_also_for_what_waits_for_an_answer(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", remote_version=4)
    await harness.subscribe(REMOTE)
    harness.service.use(harness.options.model_copy(update={"remote_version": 3}), harness.access)
    await harness.pass_ms(1)
    await harness.pass_ms(HOUR_MS)
    assert [version_of(each) for each in harness.commands(any_version=True)] == [4, 3]
    harness.state.close()


async def test_an_answer_that_is_not_understood_is_no_answer(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", remote_version=4)
    await harness.subscribe(REMOTE)
    [command] = harness.commands(any_version=True)
    await harness.send(response(harness.clock.ms, command, b"\xff", None, UPayloadFormat.PROTOBUF))
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    await harness.pass_ms(HOUR_MS)
    [_, again] = harness.commands(any_version=True)
    await harness.grant(again)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    harness.state.close()


# FetchSubscriptions


@pytest.fixture
async def filled(harness: UsubscriptionHarness, client: V4) -> V4:
    for topic, app in ((LOCAL, APP), (LOCAL, APP2), (OTHER, APP), (REMOTE, CLOUD)):
        await client.subscribe(topic, app)
    return client


@pytest.mark.parametrize(
    ("topic", "subscriber", "expected"),
    [
        (None, None, [(LOCAL, APP), (LOCAL, APP2), (OTHER, APP), (REMOTE, CLOUD)]),
        (LOCAL, None, [(LOCAL, APP), (LOCAL, APP2)]),
        (None, APP, [(LOCAL, APP), (OTHER, APP)]),
        (OTHER, APP2, []),
        (LOCAL._replace(resource=0xFFFF), None, [(LOCAL, APP), (LOCAL, APP2), (OTHER, APP)]),
        (LOCAL._replace(authority="*"), None, [(LOCAL, APP), (LOCAL, APP2), (REMOTE, CLOUD)]),
        (None, UUri("dev1", 0xFFFFFFFF, 0xFF, 0xFFFF), [(LOCAL, APP), (LOCAL, APP2), (OTHER, APP)]),
        (OTHER._replace(version=0xFF), APP._replace(ue_id=0xFFFFFFFF), [(OTHER, APP)]),
        (LOCAL._replace(authority=""), None, [(LOCAL, APP), (LOCAL, APP2)]),
        (None, APP._replace(authority=""), [(LOCAL, APP), (OTHER, APP)]),
        (LOCAL._replace(resource=0), None, []),
    ],
)
async def test_filters_choose_what_is_listed(
    filled: V4, topic: UUri | None, subscriber: UUri | None, expected: list[tuple[UUri, UUri]]
) -> None:
    assert [(each.topic, each.subscriber) for each in await filled.fetch(topic, subscriber)] == expected


@pytest.mark.parametrize("uri", [LOCAL._replace(authority="Dev1"), LOCAL._replace(version=0x100)])
async def test_an_invalid_filter_is_refused(client: V4, uri: UUri) -> None:
    for name in ("topic_filter", "subscriber_filter"):
        proto = pb.FetchSubscriptionsRequest(**{name: uri_to_proto(uri)})
        assert await client.refused(v4.FETCH_SUBSCRIPTIONS, proto) is UCode.INVALID_ARGUMENT


async def test_a_list_that_is_too_large_for_a_message_is_refused_and_a_narrower_one_is_not(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", max_answer_bytes=100, page=1)
    client = V4(harness)
    for number in range(10):
        await client.subscribe(LOCAL._replace(resource=0x8000 + number))
    asked = pb.FetchSubscriptionsRequest()
    assert await client.refused(v4.FETCH_SUBSCRIPTIONS, asked) is UCode.RESOURCE_EXHAUSTED
    assert len(await client.fetch(LOCAL)) == 1
    harness.state.close()


async def test_one_may_always_list_what_one_has_subscribed_oneself(filled: V4) -> None:
    assert [each.topic for each in await filled.fetch(None, CLOUD, CLOUD)] == [REMOTE]
    for asked in (
        pb.FetchSubscriptionsRequest(),
        pb.FetchSubscriptionsRequest(subscriber_filter=uri_to_proto(CLOUD._replace(resource=0xFFFF))),
    ):
        assert await filled.refused(v4.FETCH_SUBSCRIPTIONS, asked, CLOUD) is UCode.PERMISSION_DENIED


async def test_a_subscriber_is_notified_of_state_expiration_and_period(harness: UsubscriptionHarness, client: V4) -> None:
    end_ms = harness.clock.ms + HOUR_MS
    await client.subscribe(LOCAL)
    await client.subscribe(LOCAL, expire_ms=end_ms)
    await client.subscribe(LOCAL, expire_ms=end_ms, period_ms=50)
    await client.subscribe(LOCAL, expire_ms=end_ms, period_ms=50)
    await harness.pass_ms(HOUR_MS)
    changes = [
        Told(LOCAL, APP, SUBSCRIBED),
        Told(LOCAL, APP, SUBSCRIBED, end_ms),
        Told(LOCAL, APP, SUBSCRIBED, end_ms, 50),
        Told(LOCAL, APP, UNSUBSCRIBED, end_ms, 50),
    ]
    assert client.notified(APP) == changes
    assert client.published() == changes


async def test_a_subscriber_that_leaves_is_not_notified_any_more(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL)
    await client.subscribe(LOCAL, APP2)
    harness.forget()
    await client.unsubscribe(LOCAL)
    await client.unsubscribe(LOCAL, APP2)
    assert client.notified(APP) == client.notified(APP2) == []
    assert client.published() == [Told(LOCAL, APP, UNSUBSCRIBED), Told(LOCAL, APP2, UNSUBSCRIBED)]


async def test_each_subscriber_is_notified_in_the_version_in_which_it_asked_last(
    harness: UsubscriptionHarness, client: V4
) -> None:
    await client.subscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    harness.forget()
    await harness.restart()
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    sources = {each.attributes.sink: each.attributes.source for each in harness.messages(UMessageType.NOTIFICATION)}
    assert sources == {APP: USUBSCRIPTION_4.at("dev1", 0x8000), APP2: USUBSCRIPTION.at("dev1", 0x8000)}
    await client.subscribe(REMOTE, APP2)
    await harness.subscribe(REMOTE)
    await harness.pass_ms(1)
    harness.forget()
    await harness.update_received(REMOTE, UNSUBSCRIBED)
    sources = {each.attributes.sink: each.attributes.source for each in harness.messages(UMessageType.NOTIFICATION)}
    assert sources == {APP: USUBSCRIPTION.at("dev1", 0x8000), APP2: USUBSCRIPTION_4.at("dev1", 0x8000)}


async def test_version_3_tells_no_change_of_terms(harness: UsubscriptionHarness, client: V4) -> None:
    await harness.register(LOCAL)
    await harness.subscribe(LOCAL)
    await harness.subscribe(LOCAL, sample_period_ms=50)
    assert harness.states(APP) == harness.states(WATCHER) == [SUBSCRIBED]
    assert client.published() == [Told(LOCAL, APP, SUBSCRIBED), Told(LOCAL, APP, SUBSCRIBED, None, 50)]


async def test_who_registers_is_notified_of_every_subscription_until_it_unregisters(
    harness: UsubscriptionHarness, client: V4
) -> None:
    await client.register()
    await client.subscribe(LOCAL)
    await harness.restart()
    await harness.subscribe(REMOTE, APP2)
    await client.unsubscribe(LOCAL)
    changes = [Told(LOCAL, APP, SUBSCRIBED), Told(REMOTE, APP2, SUBSCRIBE_PENDING), Told(LOCAL, APP, UNSUBSCRIBED)]
    assert client.notified(WATCHER)[-2:] == client.published()[-2:] == changes[-2:]
    harness.forget()
    await client.unregister()
    await client.subscribe(LOCAL)
    assert client.notified(WATCHER) == []
    assert client.published() == [Told(LOCAL, APP, SUBSCRIBED)]


async def test_who_observes_its_own_subscription_is_notified_once(harness: UsubscriptionHarness, client: V4) -> None:
    await client.register(APP)
    await client.subscribe(LOCAL)
    await client.unsubscribe(LOCAL)
    assert client.notified(APP) == [Told(LOCAL, APP, SUBSCRIBED), Told(LOCAL, APP, UNSUBSCRIBED)]


async def test_observers_of_both_versions_are_told_each_in_its_own(harness: UsubscriptionHarness, client: V4) -> None:
    await harness.register(LOCAL, APP2)
    await client.register(WATCHER)
    await client.subscribe(LOCAL)
    assert harness.updates(APP2) == [(LOCAL, APP, SUBSCRIBED)]
    assert client.notified(WATCHER) == [Told(LOCAL, APP, SUBSCRIBED)]


async def test_only_who_may_list_subscriptions_may_observe_all(harness: UsubscriptionHarness, client: V4) -> None:
    assert await client.refused(v4.REGISTER, pb.NotificationsRequest(), CLOUD) is UCode.PERMISSION_DENIED
    asked = pb.SubscribeRequest(topic=uri_to_proto(TOPIC_OF_CHANGES))
    assert await client.refused(v4.SUBSCRIBE, asked, CLOUD) is UCode.PERMISSION_DENIED
    any_instance = TOPIC_OF_CHANGES._replace(ue_id=0xFFFF_0000, version=0xFF)
    asked = pb.SubscribeRequest(topic=uri_to_proto(any_instance))
    assert await client.refused(v4.SUBSCRIBE, asked, CLOUD) is UCode.PERMISSION_DENIED
    assert await client.subscribe(TOPIC_OF_CHANGES, WATCHER) is SUBSCRIBED


# Reset


async def test_reset_deletes_everything_and_tells_all_who_subscribed_or_observe(
    harness: UsubscriptionHarness, client: V4
) -> None:
    await client.register()
    await harness.register(LOCAL, APP2)
    await harness.register(REMOTE, WATCHER)
    await client.subscribe(LOCAL)
    harness.forget()
    await client.call(v4.RESET, pb.ResetRequest(), USUBSCRIPTION_4.at("dev1"))
    assert client.notified(APP) == [Told(LOCAL, APP, UNSUBSCRIBED)]
    assert client.published() == [Told(LOCAL, APP, UNSUBSCRIBED)]
    assert client.notified(WATCHER) == [Told(TOPIC_OF_CHANGES, WATCHER, UNSUBSCRIBED), Told(LOCAL, APP, UNSUBSCRIBED)]
    assert harness.updates(APP2) == [(LOCAL, APP, UNSUBSCRIBED)]
    v3_told = [each for each in harness.messages(UMessageType.NOTIFICATION) if each.attributes.source.version == 3]
    assert {each.attributes.sink for each in v3_told} == {APP2, WATCHER}
    await harness.service.run_once()
    for table in ("subscriptions", "versions", "observers", "remotes", "outbox"):
        assert harness.state.read(f"SELECT * FROM usubscription_{table}", lambda row: row) == []
    await harness.restart()
    harness.forget()
    await client.subscribe(LOCAL)
    assert client.notified(WATCHER) == []
    assert await client.fetch() == [Told(LOCAL, APP, SUBSCRIBED)]


@pytest.mark.parametrize("source", ["//dev1/A1/1/0", "//dev1/100A1/4/0", "//dev2/A1/4/0"])
async def test_reset_is_for_other_services_only(harness: UsubscriptionHarness, client: V4, source: str) -> None:
    await client.subscribe(LOCAL)
    assert await client.refused(v4.RESET, pb.ResetRequest(), UUri.parse(source)) is UCode.PERMISSION_DENIED
    assert len(await client.fetch()) == 1


async def test_any_instance_of_another_service_may_reset(harness: UsubscriptionHarness, client: V4) -> None:
    await client.subscribe(LOCAL)
    await client.call(v4.RESET, pb.ResetRequest(), UUri.parse("//dev1/10000/4/0"))
    assert await client.fetch() == []


async def test_reset_in_version_3_tells_observers_of_topics_without_subscribers(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.register(REMOTE)
    await harness.subscribe(LOCAL)
    harness.forget()
    await harness.call(v3.RESET, None, UUri.parse("//dev1/0/3/0"), "gw1")
    assert sorted(harness.updates(WATCHER)) == [(LOCAL, APP, UNSUBSCRIBED), (REMOTE, WATCHER, UNSUBSCRIBED)]


async def test_who_observes_in_both_versions_is_told_in_both(harness: UsubscriptionHarness, client: V4) -> None:
    await client.register()
    await harness.call(v3.REGISTER, p3.NotificationsRequest(topic=uri_to_proto(LOCAL)), WATCHER)
    await client.subscribe(LOCAL)
    told = [each.attributes for each in harness.messages(UMessageType.NOTIFICATION)]
    assert {each.source for each in told if each.sink == WATCHER} == {
        USUBSCRIPTION.at("dev1", 0x8000),
        USUBSCRIPTION_4.at("dev1", 0x8000),
    }


async def test_who_asks_in_version_3_and_observes_in_version_4_hears_of_its_own_terms(
    harness: UsubscriptionHarness, client: V4
) -> None:
    await harness.subscribe(LOCAL)
    await client.register(APP)
    harness.forget()
    await harness.subscribe(LOCAL, sample_period_ms=50)
    assert client.notified(APP) == [Told(LOCAL, APP, SUBSCRIBED, None, 50)]
