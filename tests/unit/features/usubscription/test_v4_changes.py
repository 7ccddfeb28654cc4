"""Version 4 of the service: who is told of a change, how, and what Reset tells."""

import pytest

from streamer.features.usubscription import v3, v4
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.proto import usubscription_v3_pb2 as p3
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION, USUBSCRIPTION_4
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    CLOUD,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WATCHER,
    UsubscriptionHarness,
)
from tests.unit.features.usubscription.v4_harness import TOPIC_OF_CHANGES, V4, Told

HOUR_MS = 3_600_000


@pytest.fixture
def client(harness: UsubscriptionHarness) -> V4:
    return V4(harness)


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
