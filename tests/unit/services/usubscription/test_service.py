"""The service around the rules: nothing is said before it is on disk, and nothing that was said is forgotten."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import pytest

from streamer.services.state import StateError, Statement
from streamer.services.usubscription import service as module
from streamer.services.usubscription import wire
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPriority
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.services.usubscription.desk import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    US,
    Desk,
)


def _subscribe(desk: Desk, source: UUri = APP, topic: UUri = LOCAL) -> UMessage:
    return desk.request(wire.SUBSCRIBE, pb.SubscriptionRequest(topic=uri_to_proto(topic)), source)


@contextlib.asynccontextmanager
async def _running(desk: Desk) -> None:
    task = asyncio.create_task(desk.service.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


class Failing:
    """Writes of a `State` that fail until they are let through."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts: list[Sequence[Statement]] = []
        self.fails = True
        self._write = desk.state.write
        monkeypatch.setattr(desk.state, "write", self.write)
        monkeypatch.setattr(module, "AGAIN_S", 0)

    async def write(self, statements: Sequence[Statement]) -> None:
        if not statements:
            return
        self.attempts.append(statements)
        if self.fails:
            raise StateError("the disk is full")
        await self._write(statements)


async def test_nothing_is_said_or_done_before_it_is_on_disk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(desk, monkeypatch)
    async with _running(desk):
        first, second = _subscribe(desk), _subscribe(desk, APP2)
        desk.take(first)
        await _until(lambda: len(failing.attempts) > 3 * module.LOG_EVERY)
        desk.take(second)  # it waits
        assert (desk.core.said, desk.done, desk.wanted) == ([], [], {})
        assert all(each is failing.attempts[0] for each in failing.attempts)
        assert desk.service.gauges()["waiting"] == 1
        failing.fails = False
        await _until(lambda: len(desk.done) == 2)
    assert desk.done == [first.id, second.id]
    assert desk.standings(APP) == desk.standings(APP2) == [SUBSCRIBED]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) <= 1 + len(failing.attempts) // module.LOG_EVERY
    assert "the disk is full" in told[0].getMessage()


async def test_what_came_while_one_transaction_was_written_is_written_in_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(desk, monkeypatch)
    failing.fails = False
    for number in range(50):
        desk.take(_subscribe(desk, UUri("dev1", number + 1, 1, 0)))
    await desk.service.turn()
    assert len(failing.attempts) == 1
    assert len(desk.done) == 50
    assert len(await desk.subscribers(LOCAL)) == 50


async def test_a_request_is_done_when_its_answer_is_safe(desk: Desk) -> None:
    desk.core.holds = True
    message = _subscribe(desk)
    answer = await desk.send(message)
    assert answer is not None
    assert desk.done == []
    desk.core.release()
    assert desk.done == [message.id]


async def test_an_update_that_is_not_safe_is_said_again_after_a_restart(desk: Desk) -> None:
    desk.core.holds = True
    await desk.subscribe(LOCAL)
    [first] = desk.messages(UMessageType.NOTIFICATION)
    await desk.restart()
    assert desk.core.said == [first]
    await desk.service.turn()
    await desk.restart()
    assert desk.core.said == []


async def test_updates_that_are_not_safe_keep_their_order_over_restarts(desk: Desk) -> None:
    desk.core.holds = True
    await desk.subscribe(LOCAL)
    await desk.unsubscribe(LOCAL)
    desk.state.close()
    desk.open()
    desk.core.holds = True
    await desk.service.begin()
    await desk.subscribe(LOCAL)
    await desk.restart()
    assert desk.standings(APP) == [SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBED]


async def test_a_message_that_has_expired_while_it_waited_is_not_followed(desk: Desk) -> None:
    message = _subscribe(desk)
    desk.take(message)
    await desk.pass_ms(5001)
    assert (desk.core.said, desk.done) == ([], [message.id])
    assert await desk.subscribers(LOCAL) == {}


async def test_what_is_no_business_of_the_service_is_done_with(desk: Desk) -> None:
    stray = Attributes(
        UMessageType.RESPONSE, USUBSCRIPTION.at("dev2", 1), US, UPriority.CS4, 5000, reqid=_subscribe(desk).id
    )
    message = UMessage(_subscribe(desk).id, stray, b"")
    assert await desk.send(message) is None
    await desk.told(REMOTE, SUBSCRIBED)
    assert desk.core.said == []
    assert len(desk.done) == 2


async def test_a_fault_in_one_message_costs_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = wire.wish
    monkeypatch.setattr(wire, "wish", lambda attributes: real(attributes) if not attributes.details else 1 / 0)
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
    proto.attributes.details.add(type_url="x")
    bad, good = desk.request(wire.SUBSCRIBE, proto), _subscribe(desk, APP2)
    desk.take(bad)
    assert await desk.send(good) is not None
    assert desk.done == [bad.id, good.id]
    assert [each.attributes.commstatus.name for each in desk.messages(UMessageType.RESPONSE)] == ["INTERNAL", "OK"]


async def test_the_service_runs_by_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)
    async with _running(desk):
        message = _subscribe(desk)
        desk.take(message)
        await _until(lambda: desk.done == [message.id])
        proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
        proto.attributes.expire.FromMilliseconds(desk.clock.now_ms + 10)
        desk.take(desk.request(wire.SUBSCRIBE, proto, APP2))
        await _until(lambda: len(desk.done) == 2)
        desk.clock.now_ms += 10
        await _until(lambda: desk.standings(APP2) == [SUBSCRIBED, UNSUBSCRIBED])


async def test_askers_have_the_fastest_period_of_their_authority(desk: Desk) -> None:
    await desk.subscribe(LOCAL, APP, sample_period_ms=100)
    await desk.subscribe(LOCAL, APP2, sample_period_ms=20)
    await desk.subscribe(LOCAL, UUri("cloud", 1, 1, 0), sample_period_ms=500)
    await desk.subscribe(LOCAL, UUri("gw1", 1, 1, 0))  # our own: it is here already
    assert desk.wanted == {LOCAL: {"dev1": 20, "cloud": 500}}
    await desk.unsubscribe(LOCAL, APP2)
    assert desk.wanted == {LOCAL: {"dev1": 100, "cloud": 500}}
    await desk.subscribe(LOCAL, APP)
    assert desk.wanted == {LOCAL: {"dev1": 0, "cloud": 500}}
    await desk.unsubscribe(LOCAL, APP)
    assert desk.wanted == {LOCAL: {"cloud": 500}}


async def test_a_topic_is_wanted_while_it_is_pending(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    assert desk.wanted == {REMOTE: {"dev1": 0}}
    await desk.restart()
    assert desk.wanted == {REMOTE: {"dev1": 0}}


async def test_a_topic_that_has_become_local_is_subscribed(desk: Desk) -> None:
    await desk.subscribe(REMOTE)
    desk.options = desk.options.model_copy(update={"local": ["dev1", "dev2"]})
    await desk.restart()
    assert await desk.subscribers(REMOTE) == {APP: SUBSCRIBED}
    assert desk.commands() == []
    assert desk.service.gauges()["remote_topics"] == 0


async def test_a_topic_that_has_become_remote_is_asked_for(desk: Desk) -> None:
    await desk.subscribe(LOCAL, APP2, at="gw1")
    desk.options = desk.options.model_copy(update={"local": []})
    await desk.restart()
    assert await desk.subscribers(LOCAL) == {APP2: SUBSCRIBE_PENDING}
    [command] = desk.commands()
    assert str(command.attributes.sink) == "//dev1/0/3/1"


async def test_ten_thousand_subscriptions_are_restored(desk: Desk) -> None:
    for number in range(10_000):
        subscriber = UUri("dev1", number % 1000 + 1, 1, 0)
        desk.take(_subscribe(desk, subscriber, UUri("dev1", 0xB0, number % 2000 // 1000 + 1, 0x8000 + number // 10)))
        if number % 500 == 499:
            await desk.service.turn()
    assert desk.service.gauges()["subscriptions"] == 10_000
    before = [(each.topic, each.subscriber) for each in desk.service._book.subscriptions]
    await desk.restart()
    assert [(each.topic, each.subscriber) for each in desk.service._book.subscriptions] == before
