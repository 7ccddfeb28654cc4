"""004 §7: change notifications to subscribers and observers."""

from pathlib import Path

from streamer.features.usubscription import v3, wire
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    REMOTE2,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WATCHER,
    UsubscriptionHarness,
)


async def test_a_notification_is_an_update_of_resource_8000(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, sample_period_ms=30)
    [message] = harness.messages(UMessageType.NOTIFICATION)
    assert (str(message.attributes.source), message.attributes.sink) == ("//dev1/0/3/8000", APP)
    assert message.attributes.ttl is None
    update = wire.read(message, pb.Update)
    assert (uri_from_proto(update.topic), uri_from_proto(update.subscriber.uri)) == (LOCAL, APP)
    assert update.status.state == SUBSCRIBED
    assert update.attributes.sample_period_ms == 30


async def test_the_subscriber_is_notified_of_every_change(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.subscribe(LOCAL)
    await harness.unsubscribe(LOCAL)
    assert harness.updates(APP) == [
        (REMOTE, APP, SUBSCRIBE_PENDING),
        (REMOTE, APP, SUBSCRIBED),
        (LOCAL, APP, SUBSCRIBED),
        (LOCAL, APP, UNSUBSCRIBED),
    ]


async def test_updates_come_from_the_authority_that_was_called(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, APP, at="dev1")
    await harness.subscribe(LOCAL, APP2, at="gw1")
    await harness.register(LOCAL, WATCHER, at="gw1")
    harness.forget()
    await harness.restart()
    await harness.unsubscribe(LOCAL, APP)
    await harness.unsubscribe(LOCAL, APP2)
    found = [
        (str(each.attributes.sink), each.attributes.source.authority) for each in harness.messages(UMessageType.NOTIFICATION)
    ]
    assert found[-4:] == [(str(APP), "dev1"), (str(WATCHER), "gw1"), (str(APP2), "gw1"), (str(WATCHER), "gw1")]


async def test_an_observer_is_notified_of_the_changes_of_its_topic_only(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.subscribe(LOCAL)
    await harness.subscribe(REMOTE)
    await harness.unsubscribe(LOCAL)
    assert harness.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED), (LOCAL, APP, UNSUBSCRIBED)]


async def test_a_registration_is_kept_across_restarts(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.restart()
    await harness.subscribe(LOCAL)
    assert harness.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED)]


async def test_a_new_registration_is_not_notified_of_existing_subscriptions(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    await harness.register(LOCAL)
    assert harness.updates(WATCHER) == []


async def test_an_observer_that_is_the_subscriber_is_notified_once(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL, APP)
    await harness.subscribe(LOCAL)
    assert harness.updates(APP) == [(LOCAL, APP, SUBSCRIBED)]


async def test_registering_twice_is_registering_once(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.register(LOCAL)
    await harness.subscribe(LOCAL)
    assert harness.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED)]
    assert harness.service.gauges()["observers"] == 1


async def test_an_observer_that_has_unregistered_is_no_longer_notified(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.register(REMOTE)
    await harness.unregister(LOCAL)
    await harness.subscribe(LOCAL)
    assert harness.updates(WATCHER) == []
    await harness.restart()
    await harness.unsubscribe(LOCAL)
    assert harness.updates(WATCHER) == []
    await harness.subscribe(REMOTE2)
    await harness.subscribe(REMOTE)
    assert harness.updates(WATCHER) == [(REMOTE, APP, SUBSCRIBE_PENDING)]


async def test_unregistering_without_a_registration_succeeds(harness: UsubscriptionHarness) -> None:
    await harness.unregister(LOCAL)
    await harness.unregister(REMOTE)


async def test_too_many_registrations_are_refused(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "state.db", max_observers=1)
    await harness.register(LOCAL)
    proto = pb.NotificationsRequest(topic=uri_to_proto(REMOTE))
    assert await harness.refused(v3.REGISTER, proto, WATCHER) is UCode.RESOURCE_EXHAUSTED
    await harness.unregister(LOCAL)
    await harness.register(REMOTE)
    harness.state.close()
