"""004 §4.2: Unsubscribe."""

import pytest

from streamer.services.usubscription import wire
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.status import UCode
from tests.unit.services.usubscription.desk import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBE_PENDING,
    UNSUBSCRIBED,
    US,
    WATCHER,
    Desk,
)


async def _subscribed(desk: Desk, *sources: object) -> None:
    for source in sources:
        await desk.subscribe(REMOTE, source)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    desk.forget()


async def test_who_unsubscribes_is_not_tracked_any_more(desk: Desk) -> None:
    await desk.subscribe(LOCAL)
    await desk.subscribe(LOCAL, APP2)
    await desk.unsubscribe(LOCAL)
    assert await desk.subscribers(LOCAL) == {APP2: SUBSCRIBED}
    assert desk.standings(APP) == [SUBSCRIBED, UNSUBSCRIBED]
    await desk.restart()
    assert await desk.subscribers(LOCAL) == {APP2: SUBSCRIBED}


async def test_unsubscribing_what_was_not_subscribed_succeeds_and_changes_nothing(desk: Desk) -> None:
    answer = await desk.send(desk.request(wire.UNSUBSCRIBE, pb.UnsubscribeRequest(topic=wire.uri_to_proto(LOCAL))))
    assert answer.attributes.commstatus is UCode.OK
    assert pb.SubscriptionStatus.FromString(answer.payload).state == UNSUBSCRIBED  # an empty message says just that
    assert desk.updates(APP) == []
    await desk.unsubscribe(REMOTE)
    assert desk.commands() == []


async def test_the_last_one_to_leave_a_remote_topic_triggers_a_remote_unsubscribe(desk: Desk) -> None:
    await _subscribed(desk, APP, APP2)
    await desk.unsubscribe(REMOTE)
    assert desk.commands() == []
    assert desk.standings(APP) == [UNSUBSCRIBED]
    await desk.unsubscribe(REMOTE, APP2)
    [command] = desk.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/2"
    assert uri_from_proto(wire.read(command, pb.UnsubscribeRequest).topic) == REMOTE


async def test_a_remote_unsubscribe_names_ourselves_as_the_subscriber(desk: Desk) -> None:
    await _subscribed(desk, APP)
    await desk.unsubscribe(REMOTE)
    [command] = desk.commands()
    assert command.attributes.source == US


@pytest.mark.parametrize("code", [None, UCode.INTERNAL, UCode.NOT_FOUND, UCode.PERMISSION_DENIED], ids=str)
async def test_a_left_remote_topic_is_unsubscribed_whatever_its_service_answers(desk: Desk, code: UCode | None) -> None:
    await _subscribed(desk, APP)
    await desk.unsubscribe(REMOTE)
    assert desk.standings(APP) == [UNSUBSCRIBE_PENDING]
    [command] = desk.commands()
    await (desk.answered(command) if code is None else desk.failed(command, code))
    assert desk.standings(APP) == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert desk.service.gauges()["remote_topics"] == 0
    await desk.service.turn()  # notes that the Updates are safe
    await desk.restart()
    await desk.pass_ms(1_000_000)
    assert desk.core.said == []


async def test_nobody_wants_a_topic_any_more_as_soon_as_the_last_one_has_left(desk: Desk) -> None:
    await _subscribed(desk, APP)
    assert desk.wanted == {REMOTE: {"dev1": 0}}
    await desk.unsubscribe(REMOTE)
    assert desk.wanted == {}


async def test_a_topic_that_is_being_left_is_not_listed(desk: Desk) -> None:
    await _subscribed(desk, APP)
    await desk.unsubscribe(REMOTE)
    assert await desk.subscribers(REMOTE) == {}


async def test_unsubscribing_a_pending_topic_is_done_at_once_and_told_to_the_remote_service(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    desk.forget()
    await desk.unsubscribe(REMOTE)
    assert desk.standings(APP) == [UNSUBSCRIBED]
    [command] = desk.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/2"


async def test_one_of_two_may_leave_a_pending_topic(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.subscribe(REMOTE, APP2)
    desk.forget()
    await desk.unsubscribe(REMOTE)
    assert desk.commands() == []
    assert await desk.subscribers(REMOTE) == {APP2: SUBSCRIBE_PENDING}


async def test_after_the_last_one_has_left_observers_hear_no_more_of_the_topic(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.subscribe(LOCAL)
    await desk.unsubscribe(LOCAL)
    desk.forget()
    await desk.unsubscribe(LOCAL)
    await desk.pass_ms(1_000_000)
    assert desk.updates(WATCHER) == []


async def test_the_last_one_to_expire_leaves_a_remote_topic(desk: Desk) -> None:
    await desk.subscribe(REMOTE, expire_ms=desk.clock.now_ms + 1000)
    await desk.subscribe(REMOTE, APP2, expire_ms=desk.clock.now_ms + 1000)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    desk.forget()
    await desk.pass_ms(1000)
    assert (desk.standings(APP), desk.standings(APP2)) == ([UNSUBSCRIBED], [UNSUBSCRIBE_PENDING])
    [command] = desk.commands(wire.UNSUBSCRIBE)
    await desk.answered(command)
    assert desk.standings(APP2) == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
