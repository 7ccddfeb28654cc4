"""004 §4.2: Unsubscribe."""

import pytest

from streamer.features.usubscription import v3, wire
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.features.usubscription.harness import (
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
    UsubscriptionHarness,
)


async def _subscribed(harness: UsubscriptionHarness, *sources: UUri) -> None:
    for source in sources:
        await harness.subscribe(REMOTE, source)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()


async def test_a_subscriber_that_unsubscribes_is_no_longer_tracked(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    await harness.subscribe(LOCAL, APP2)
    await harness.unsubscribe(LOCAL)
    assert await harness.subscribers(LOCAL) == {APP2: SUBSCRIBED}
    assert harness.states(APP) == [SUBSCRIBED, UNSUBSCRIBED]
    await harness.restart()
    assert await harness.subscribers(LOCAL) == {APP2: SUBSCRIBED}


async def test_unsubscribing_without_a_subscription_succeeds_and_changes_nothing(harness: UsubscriptionHarness) -> None:
    answer = await harness.ask(harness.request(v3.UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri_to_proto(LOCAL))))
    assert answer.attributes.commstatus is UCode.OK
    assert pb.SubscriptionStatus.FromString(answer.payload or b"").state == UNSUBSCRIBED  # an empty message means that
    assert harness.updates(APP) == []
    await harness.unsubscribe(REMOTE)
    assert harness.commands() == []


async def test_the_last_one_to_leave_a_remote_topic_triggers_a_remote_unsubscribe(harness: UsubscriptionHarness) -> None:
    await _subscribed(harness, APP, APP2)
    await harness.unsubscribe(REMOTE)
    assert harness.commands() == []
    assert harness.states(APP) == [UNSUBSCRIBED]
    await harness.unsubscribe(REMOTE, APP2)
    [command] = harness.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/2"
    assert uri_from_proto(wire.read(command, pb.UnsubscribeRequest).topic) == REMOTE


async def test_a_remote_unsubscribe_names_ourselves_as_the_subscriber(harness: UsubscriptionHarness) -> None:
    await _subscribed(harness, APP)
    await harness.unsubscribe(REMOTE)
    [command] = harness.commands()
    assert command.attributes.source == US


@pytest.mark.parametrize("code", [None, UCode.INTERNAL, UCode.NOT_FOUND, UCode.PERMISSION_DENIED], ids=str)
async def test_a_left_remote_topic_is_unsubscribed_whatever_its_service_answers(
    harness: UsubscriptionHarness, code: UCode | None
) -> None:
    await _subscribed(harness, APP)
    await harness.unsubscribe(REMOTE)
    assert harness.states(APP) == [UNSUBSCRIBE_PENDING]
    [command] = harness.commands()
    await (harness.answered(command) if code is None else harness.failed(command, code))
    assert harness.states(APP) == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
    assert harness.service.gauges()["remote_topics"] == 0
    await harness.service.run_once()  # notes that the Updates are safe
    await harness.restart()
    await harness.pass_ms(1_000_000)
    assert harness.core.said == []


async def test_interest_ends_as_soon_as_the_last_subscriber_has_left(harness: UsubscriptionHarness) -> None:
    await _subscribed(harness, APP)
    assert harness.router.interest == {REMOTE: {"dev1": 0}}
    await harness.unsubscribe(REMOTE)
    assert harness.router.interest == {}


async def test_a_topic_that_is_being_left_is_not_listed(harness: UsubscriptionHarness) -> None:
    await _subscribed(harness, APP)
    await harness.unsubscribe(REMOTE)
    assert await harness.subscribers(REMOTE) == {}


async def test_unsubscribing_a_pending_topic_is_done_at_once_and_sent_to_the_remote_service(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    harness.forget()
    await harness.unsubscribe(REMOTE)
    assert harness.states(APP) == [UNSUBSCRIBED]
    [command] = harness.commands()
    assert str(command.attributes.sink) == "//dev2/0/3/2"


async def test_one_of_two_may_leave_a_pending_topic(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.subscribe(REMOTE, APP2)
    harness.forget()
    await harness.unsubscribe(REMOTE)
    assert harness.commands() == []
    assert await harness.subscribers(REMOTE) == {APP2: SUBSCRIBE_PENDING}


async def test_after_the_last_one_has_left_observers_are_no_longer_notified(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.subscribe(LOCAL)
    await harness.unsubscribe(LOCAL)
    harness.forget()
    await harness.unsubscribe(LOCAL)
    await harness.pass_ms(1_000_000)
    assert harness.updates(WATCHER) == []


async def test_the_last_one_to_expire_leaves_a_remote_topic(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE, expire_ms=harness.clock.ms + 1000)
    await harness.subscribe(REMOTE, APP2, expire_ms=harness.clock.ms + 1000)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    harness.forget()
    await harness.pass_ms(1000)
    assert (harness.states(APP), harness.states(APP2)) == ([UNSUBSCRIBED], [UNSUBSCRIBE_PENDING])
    [command] = harness.commands(v3.UNSUBSCRIBE)
    await harness.answered(command)
    assert harness.states(APP2) == [UNSUBSCRIBE_PENDING, UNSUBSCRIBED]
