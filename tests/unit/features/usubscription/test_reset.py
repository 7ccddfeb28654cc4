"""004 §9: Reset."""

import pytest

from streamer.features.usubscription import v3, wire
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    REMOTE2,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBED,
    WATCHER,
    UsubscriptionHarness,
)

OTHER_SERVICE = UUri.parse("//dev1/0/3/0")


async def _reset(harness: UsubscriptionHarness) -> None:
    reason = pb.ResetRequest.Reason(code=pb.ResetRequest.Reason.FACTORY_RESET)
    await harness.call(v3.RESET, pb.ResetRequest(reason=reason), OTHER_SERVICE, "gw1")


async def _filled(harness: UsubscriptionHarness) -> None:
    await harness.register(LOCAL)
    await harness.subscribe(LOCAL)
    await harness.subscribe(LOCAL, APP2)
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await harness.subscribe(REMOTE2)
    harness.forget()


async def test_reset_flushes_everything_on_disk_too(harness: UsubscriptionHarness) -> None:
    await _filled(harness)
    await _reset(harness)
    gauges = harness.service.gauges()
    assert [gauges[name] for name in ("subscriptions", "observers", "topics", "remote_topics")] == [0, 0, 0, 0]
    assert harness.router.interest == {}
    await harness.service.run_once()
    for table in ("subscriptions", "observers", "remotes", "outbox"):
        assert harness.state.read(f"SELECT * FROM usubscription_{table}", lambda row: row) == []
    await harness.restart()
    assert await harness.subscribers(LOCAL) == {}


async def test_reset_without_a_payload_is_an_empty_request(harness: UsubscriptionHarness) -> None:
    await _filled(harness)
    await harness.call(v3.RESET, None, OTHER_SERVICE, "gw1")
    assert await harness.subscribers(LOCAL) == {}


async def test_reset_is_notified_to_subscribers_and_observers(harness: UsubscriptionHarness) -> None:
    await _filled(harness)
    await _reset(harness)
    assert harness.updates(APP) == [(topic, APP, UNSUBSCRIBED) for topic in (LOCAL, REMOTE, REMOTE2)]
    assert harness.updates(APP2) == [(LOCAL, APP2, UNSUBSCRIBED)]
    assert harness.updates(WATCHER) == [(LOCAL, APP, UNSUBSCRIBED), (LOCAL, APP2, UNSUBSCRIBED)]


async def test_reset_unsubscribes_each_remote_topic_once(harness: UsubscriptionHarness) -> None:
    await _filled(harness)
    await _reset(harness)
    asked = [uri_from_proto(wire.read(each, pb.UnsubscribeRequest).topic) for each in harness.commands(v3.UNSUBSCRIBE)]
    assert sorted(asked) == [REMOTE, REMOTE2]
    assert harness.commands(v3.SUBSCRIBE) == []
    harness.forget()
    await harness.pass_ms(10_000_000)
    assert harness.commands() == []


async def test_the_unsubscribe_of_a_reset_may_arrive_after_the_subscribe_that_follows_it(
    harness: UsubscriptionHarness,
) -> None:
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands()[0], SUBSCRIBED)
    await _reset(harness)
    harness.forget()
    await harness.subscribe(REMOTE)
    [command] = harness.commands()
    await harness.answered(command, SUBSCRIBED)
    await harness.pass_ms(TIMEOUT_MS)  # until now, the Unsubscribe might have been carried out
    [_, again] = harness.commands(v3.SUBSCRIBE)
    await harness.answered(again, SUBSCRIBED)
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await harness.pass_ms(TIMEOUT_MS // 2)
    assert harness.commands() == [command, again]


async def test_the_service_goes_on_after_reset(harness: UsubscriptionHarness) -> None:
    await _filled(harness)
    await _reset(harness)
    assert await harness.subscribe(LOCAL) is SUBSCRIBED
    harness.forget()
    await harness.restart()
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("source", ["//dev1/A1/1/0", "//dev2/10000/3/0", "//dev1/FFFE/3/0"], ids=["app", "some", "other"])
async def test_reset_is_for_other_usubscription_services_only(harness: UsubscriptionHarness, source: str) -> None:
    await _filled(harness)
    assert await harness.refused(v3.RESET, pb.ResetRequest(), UUri.parse(source)) is UCode.PERMISSION_DENIED
    assert await harness.subscribers(LOCAL) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}
