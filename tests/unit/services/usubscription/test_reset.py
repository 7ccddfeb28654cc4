"""004 §9: Reset."""

import pytest

from streamer.services.usubscription import wire
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.services.usubscription.desk import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    REMOTE2,
    SUBSCRIBED,
    TIMEOUT_MS,
    UNSUBSCRIBED,
    WATCHER,
    Desk,
)

OTHER_SERVICE = UUri.parse("//dev2/0/3/0")


async def _reset(desk: Desk) -> None:
    reason = pb.ResetRequest.Reason(code=pb.ResetRequest.Reason.FACTORY_RESET)
    await desk.call(wire.RESET, pb.ResetRequest(reason=reason), OTHER_SERVICE, "gw1")


async def _filled(desk: Desk) -> None:
    await desk.register(LOCAL)
    await desk.subscribe(LOCAL)
    await desk.subscribe(LOCAL, APP2)
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await desk.subscribe(REMOTE2)
    desk.forget()


async def test_reset_flushes_everything_on_disk_too(desk: Desk) -> None:
    await _filled(desk)
    await _reset(desk)
    gauges = desk.service.gauges()
    assert [gauges[name] for name in ("subscriptions", "observers", "topics", "remote_topics")] == [0, 0, 0, 0]
    assert desk.wanted == {}
    await desk.service.turn()
    for table in ("subscriptions", "observers", "remotes", "outbox"):
        assert desk.state.rows(f"SELECT * FROM usubscription_{table}") == []
    await desk.restart()
    assert await desk.subscribers(LOCAL) == {}


async def test_reset_without_a_payload_is_an_empty_request(desk: Desk) -> None:
    await _filled(desk)
    await desk.call(wire.RESET, None, OTHER_SERVICE, "gw1")
    assert await desk.subscribers(LOCAL) == {}


async def test_reset_is_told_to_subscribers_and_observers(desk: Desk) -> None:
    await _filled(desk)
    await _reset(desk)
    assert desk.updates(APP) == [(topic, APP, UNSUBSCRIBED) for topic in (LOCAL, REMOTE, REMOTE2)]
    assert desk.updates(APP2) == [(LOCAL, APP2, UNSUBSCRIBED)]
    assert desk.updates(WATCHER) == [(LOCAL, APP, UNSUBSCRIBED), (LOCAL, APP2, UNSUBSCRIBED)]


async def test_reset_unsubscribes_each_remote_topic_once(desk: Desk) -> None:
    await _filled(desk)
    await _reset(desk)
    asked = [uri_from_proto(wire.read(each, pb.UnsubscribeRequest).topic) for each in desk.commands(wire.UNSUBSCRIBE)]
    assert sorted(asked) == [REMOTE, REMOTE2]
    assert desk.commands(wire.SUBSCRIBE) == []
    desk.forget()
    await desk.pass_ms(10_000_000)
    assert desk.commands() == []


async def test_the_unsubscribe_of_a_reset_may_arrive_after_the_subscribe_that_follows_it(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    await desk.answered(desk.commands()[0], SUBSCRIBED)
    await _reset(desk)
    desk.forget()
    await desk.subscribe(REMOTE)
    [command] = desk.commands()
    await desk.answered(command, SUBSCRIBED)
    await desk.pass_ms(TIMEOUT_MS)  # until now, the Unsubscribe might have been carried out
    [_, again] = desk.commands(wire.SUBSCRIBE)
    await desk.answered(again, SUBSCRIBED)
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    await desk.pass_ms(2 * TIMEOUT_MS)
    assert desk.commands() == [command, again]


async def test_the_service_works_on_after_reset(desk: Desk) -> None:
    await _filled(desk)
    await _reset(desk)
    assert await desk.subscribe(LOCAL) is SUBSCRIBED
    desk.forget()
    await desk.restart()
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED}


@pytest.mark.parametrize("source", ["//dev1/A1/1/0", "//dev2/10000/3/0"], ids=["app", "instance"])
async def test_reset_is_for_other_usubscription_services_only(desk: Desk, source: str) -> None:
    await _filled(desk)
    assert await desk.refused(wire.RESET, pb.ResetRequest(), UUri.parse(source)) is UCode.PERMISSION_DENIED
    assert await desk.subscribers(LOCAL) == {APP: SUBSCRIBED, APP2: SUBSCRIBED}
