"""004 §7: change notifications, to subscribers and to those who registered."""

from pathlib import Path

from streamer.services.usubscription import wire
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from tests.unit.services.usubscription.desk import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    REMOTE2,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WATCHER,
    Desk,
)


async def test_a_notification_is_an_update_of_resource_8000(desk: Desk) -> None:
    await desk.subscribe(LOCAL, sample_period_ms=30)
    [message] = desk.messages(UMessageType.NOTIFICATION)
    assert (str(message.attributes.source), message.attributes.sink) == ("//dev1/0/3/8000", APP)
    assert message.attributes.ttl is None
    update = wire.read(message, pb.Update)
    assert (uri_from_proto(update.topic), uri_from_proto(update.subscriber.uri)) == (LOCAL, APP)
    assert update.status.state == SUBSCRIBED
    assert update.attributes.sample_period_ms == 30


async def test_the_subscriber_is_told_every_change(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.subscribe(LOCAL)
    await desk.unsubscribe(LOCAL)
    assert desk.updates(APP) == [
        (REMOTE, APP, SUBSCRIBE_PENDING),
        (REMOTE, APP, SUBSCRIBED),
        (LOCAL, APP, SUBSCRIBED),
        (LOCAL, APP, UNSUBSCRIBED),
    ]


async def test_updates_come_from_the_authority_that_was_asked(desk: Desk) -> None:
    await desk.subscribe(LOCAL, APP, at="dev1")
    await desk.subscribe(LOCAL, APP2, at="gw1")
    await desk.register(LOCAL, WATCHER, at="gw1")
    desk.forget()
    await desk.restart()
    await desk.unsubscribe(LOCAL, APP)
    await desk.unsubscribe(LOCAL, APP2)
    found = [
        (str(each.attributes.sink), each.attributes.source.authority) for each in desk.messages(UMessageType.NOTIFICATION)
    ]
    assert found[-4:] == [(str(APP), "dev1"), (str(WATCHER), "gw1"), (str(APP2), "gw1"), (str(WATCHER), "gw1")]


async def test_who_has_registered_for_a_topic_is_told_its_changes_only(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.subscribe(LOCAL)
    await desk.subscribe(REMOTE)
    await desk.unsubscribe(LOCAL)
    assert desk.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED), (LOCAL, APP, UNSUBSCRIBED)]


async def test_a_registration_holds_across_restarts(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.restart()
    await desk.subscribe(LOCAL)
    assert desk.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED)]


async def test_a_registration_says_nothing_of_what_is_already_so(desk: Desk) -> None:
    await desk.subscribe(LOCAL)
    await desk.register(LOCAL)
    assert desk.updates(WATCHER) == []


async def test_an_observer_that_is_the_subscriber_is_told_once(desk: Desk) -> None:
    await desk.register(LOCAL, APP)
    await desk.subscribe(LOCAL)
    assert desk.updates(APP) == [(LOCAL, APP, SUBSCRIBED)]


async def test_registering_twice_is_registering_once(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.register(LOCAL)
    await desk.subscribe(LOCAL)
    assert desk.updates(WATCHER) == [(LOCAL, APP, SUBSCRIBED)]
    assert desk.service.gauges()["observers"] == 1


async def test_who_has_unregistered_is_told_nothing_any_more(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.register(REMOTE)
    await desk.unregister(LOCAL)
    await desk.subscribe(LOCAL)
    assert desk.updates(WATCHER) == []
    await desk.restart()
    await desk.unsubscribe(LOCAL)
    assert desk.updates(WATCHER) == []
    await desk.subscribe(REMOTE2)
    await desk.subscribe(REMOTE)
    assert desk.updates(WATCHER) == [(REMOTE, APP, SUBSCRIBE_PENDING)]


async def test_unregistering_what_was_not_registered_succeeds(desk: Desk) -> None:
    await desk.unregister(LOCAL)
    await desk.unregister(REMOTE)


async def test_too_many_registrations_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "state.db", max_observers=1)
    await desk.register(LOCAL)
    proto = pb.NotificationsRequest(topic=uri_to_proto(REMOTE))
    assert await desk.refused(wire.REGISTER, proto, WATCHER) is UCode.RESOURCE_EXHAUSTED
    await desk.unregister(LOCAL)
    await desk.register(REMOTE)
    desk.state.close()
