"""The part with I/O: nothing is sent before it is on disk, and nothing that was sent is forgotten."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from streamer.features.host.access import SubscribeRule
from streamer.features.host.state import StateError, Statement
from streamer.features.usubscription import service as module
from streamer.features.usubscription import v3, wire
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPriority
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.host.patterns import entities_at
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    REMOTE2,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UNSUBSCRIBED,
    US,
    WATCHER,
    UsubscriptionHarness,
)
from tests.waiting import until


def _subscribe(harness: UsubscriptionHarness, source: UUri = APP, topic: UUri = LOCAL) -> UMessage:
    return harness.request(v3.SUBSCRIBE, pb.SubscriptionRequest(topic=uri_to_proto(topic)), source)


@contextlib.asynccontextmanager
async def _running(harness: UsubscriptionHarness) -> AsyncIterator[None]:
    task = asyncio.create_task(harness.service.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class FailingWrites:
    """Writes of a `StateFile` that fail until they are let through."""

    def __init__(self, harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts: list[Sequence[Statement]] = []
        self.fails = True
        self._write = harness.state.write
        monkeypatch.setattr(harness.state, "write", self.write)
        monkeypatch.setattr(module, "RETRY_S", 0)

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        if not statements:
            return
        self.attempts.append(statements)
        if self.fails:
            raise StateError("the disk is full")
        await self._write(statements)


async def test_nothing_is_sent_or_done_before_it_is_on_disk(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = FailingWrites(harness, monkeypatch)
    async with _running(harness):
        first, second = _subscribe(harness), _subscribe(harness, APP2)
        harness.take(first)
        await until(lambda: len(failing.attempts) > 3 * module.LOG_EVERY)
        harness.take(second)  # it waits
        assert (harness.core.said, harness.done, harness.router.interest) == ([], [], {})
        assert all(each is failing.attempts[0] for each in failing.attempts)
        assert harness.service.gauges()["waiting"] == 1
        failing.fails = False
        await until(lambda: len(harness.done) == 2)
    assert harness.done == [first.id, second.id]
    assert harness.states(APP) == harness.states(APP2) == [SUBSCRIBED]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) <= 1 + len(failing.attempts) // module.LOG_EVERY
    assert "the disk is full" in told[0].getMessage()


async def test_messages_that_arrive_during_a_transaction_are_written_in_the_next_one(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = FailingWrites(harness, monkeypatch)
    failing.fails = False
    for number in range(50):
        harness.take(_subscribe(harness, UUri("dev1", number + 1, 1, 0)))
    await harness.service.run_once()
    assert len(failing.attempts) == 1
    assert len(harness.done) == 50
    assert len(await harness.subscribers(LOCAL)) == 50


async def test_a_list_ends_the_turn_and_what_came_after_it_keeps_its_order(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    harness.forget()
    lists = [harness.request(v3.FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest(), WATCHER) for _ in range(3)]
    harness.done.clear()
    asked = [lists[0], lists[1], _subscribe(harness, APP2), lists[2]]
    for each in asked:
        harness.take(each)
    await harness.service.run_once()
    assert harness.done == [lists[0].id]
    async with _running(harness):
        await until(lambda: len(harness.done) == len(asked))
    assert harness.done == [each.id for each in asked]
    answers = {each.attributes.reqid: each for each in harness.messages(UMessageType.RESPONSE)}
    listed = [wire.read(answers[each.id], pb.FetchSubscriptionsResponse, None).subscriptions for each in lists]
    assert [len(each) for each in listed] == [1, 1, 2]


async def test_a_request_is_done_once_its_response_is_safe(harness: UsubscriptionHarness) -> None:
    harness.core.is_safe = False
    message = _subscribe(harness)
    answer = await harness.ask(message)
    assert answer is not None
    assert harness.done == []
    harness.core.make_safe()
    assert harness.done == [message.id]


async def test_an_update_that_is_not_safe_is_sent_again_after_a_restart(harness: UsubscriptionHarness) -> None:
    harness.core.is_safe = False
    await harness.subscribe(LOCAL)
    [first] = harness.messages(UMessageType.NOTIFICATION)
    await harness.restart()
    assert harness.core.said == [first, *harness.messages(UMessageType.PUBLISH)]
    await harness.service.run_once()
    await harness.restart()
    assert harness.core.said == []


async def test_updates_that_are_not_safe_keep_their_order_across_restarts(harness: UsubscriptionHarness) -> None:
    harness.core.is_safe = False
    await harness.subscribe(LOCAL)
    await harness.unsubscribe(LOCAL)
    harness.state.close()
    harness.open()
    harness.core.is_safe = False
    await harness.service.begin()
    await harness.subscribe(LOCAL)
    await harness.restart()
    assert harness.states(APP) == [SUBSCRIBED, UNSUBSCRIBED, SUBSCRIBED]


async def test_a_message_that_expired_while_it_waited_has_no_effect(harness: UsubscriptionHarness) -> None:
    message = _subscribe(harness)
    harness.take(message)
    await harness.pass_ms(5001)
    assert (harness.core.said, harness.done) == ([], [message.id])
    assert await harness.subscribers(LOCAL) == {}


async def test_a_message_that_the_service_does_not_expect_is_done_without_effect(harness: UsubscriptionHarness) -> None:
    unexpected = Attributes(
        UMessageType.RESPONSE, USUBSCRIPTION.at("dev2", 1), US, UPriority.CS4, 5000, reqid=_subscribe(harness).id
    )
    message = UMessage(_subscribe(harness).id, unexpected, b"")
    assert await harness.send(message) is None
    await harness.update_received(REMOTE, SUBSCRIBED)
    assert harness.core.said == []
    assert len(harness.done) == 2


async def test_a_fault_in_one_message_does_not_affect_the_next(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = v3.subscribe_attributes
    monkeypatch.setattr(v3, "subscribe_attributes", lambda attributes: real(attributes) if not attributes.details else 1 / 0)
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
    proto.attributes.details.add(type_url="x")
    bad, good = harness.request(v3.SUBSCRIBE, proto), _subscribe(harness, APP2)
    harness.take(bad)
    assert await harness.send(good) is not None
    assert harness.done == [bad.id, good.id]
    assert [each.attributes.commstatus for each in harness.messages(UMessageType.RESPONSE)] == [UCode.INTERNAL, UCode.OK]


async def test_the_service_runs_by_itself(harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)
    async with _running(harness):
        message = _subscribe(harness)
        harness.take(message)
        await until(lambda: harness.done == [message.id])
        proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
        proto.attributes.expire.FromMilliseconds(harness.clock.ms + 10)
        harness.take(harness.request(v3.SUBSCRIBE, proto, APP2))
        await until(lambda: len(harness.done) == 2)
        harness.clock.ms += 10
        await until(lambda: harness.states(APP2) == [SUBSCRIBED, UNSUBSCRIBED])


async def test_interest_has_the_shortest_period_of_each_authority(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, APP, sample_period_ms=100)
    await harness.subscribe(LOCAL, APP2, sample_period_ms=20)
    await harness.subscribe(LOCAL, UUri("cloud", 1, 1, 0), sample_period_ms=500)
    await harness.subscribe(LOCAL, UUri("gw1", 1, 1, 0))  # our own authority
    assert harness.router.interest == {LOCAL: {"dev1": 20, "cloud": 500}}
    await harness.unsubscribe(LOCAL, APP2)
    assert harness.router.interest == {LOCAL: {"dev1": 100, "cloud": 500}}
    await harness.subscribe(LOCAL, APP)
    assert harness.router.interest == {LOCAL: {"dev1": 0, "cloud": 500}}
    await harness.unsubscribe(LOCAL, APP)
    assert harness.router.interest == {LOCAL: {"cloud": 500}}


async def test_there_is_interest_in_a_topic_while_it_is_pending(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    assert harness.router.interest == {REMOTE: {"dev1": 0}}
    await harness.restart()
    assert harness.router.interest == {REMOTE: {"dev1": 0}}


async def test_a_topic_that_has_become_local_is_subscribed(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    harness.access = replace(harness.access, local=harness.access.local | {"dev2"})
    await harness.restart()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBED}
    assert harness.commands() == []
    assert harness.service.gauges()["remote_topics"] == 0


async def test_a_topic_that_has_become_remote_is_subscribed_to_at_its_service(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL, APP2, at="gw1")
    permitted = entities_at("dev1")
    rules = (SubscribeRule(permitted, (LOCAL,)),)
    harness.access = replace(harness.access, local=frozenset({"gw1"}), fetch=(permitted,), subscribe=rules)
    await harness.restart()
    assert await harness.subscribers(LOCAL) == {APP2: SUBSCRIBE_PENDING}
    [command] = harness.commands(any_version=True)
    assert str(command.attributes.sink) == "//dev1/0/3/1"


async def test_a_remote_topic_whose_subscriptions_are_lost_is_left(harness: UsubscriptionHarness) -> None:
    """As after damage to the file."""
    await harness.subscribe(REMOTE)
    await harness.answered(harness.commands(v3.SUBSCRIBE)[0], SUBSCRIBED)
    await harness.state.write([("DELETE FROM usubscription_subscriptions", ())])
    await harness.restart()
    [command] = harness.commands(v3.UNSUBSCRIBE)
    assert str(command.attributes.sink) == "//dev2/0/3/2"
    await harness.answered(command)
    assert harness.service.gauges()["remote_topics"] == 0


async def test_a_lost_remote_topic_is_subscribed_to_again_for_its_subscribers_only(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE)
    await harness.subscribe(REMOTE2, APP2)
    for command in harness.commands(v3.SUBSCRIBE):
        await harness.answered(command, SUBSCRIBED)
    await harness.unsubscribe(REMOTE2, APP2)
    await harness.state.write([("DELETE FROM usubscription_remotes", ())])
    await harness.restart()
    assert await harness.subscribers(REMOTE) == {APP: SUBSCRIBE_PENDING}
    [command] = harness.commands()
    assert uri_from_proto(wire.read(command, pb.SubscriptionRequest).topic) == REMOTE
    assert harness.router.interest == {REMOTE: {"dev1": 0}}


async def test_ten_thousand_subscriptions_are_restored(harness: UsubscriptionHarness) -> None:
    for number in range(10_000):
        subscriber = UUri("dev1", number % 1000 + 1, 1, 0)
        harness.take(_subscribe(harness, subscriber, UUri("dev1", 0xB0, number % 2000 // 1000 + 1, 0x8000 + number // 10)))
        if number % 500 == 499:
            await harness.service.run_once()
    assert harness.service.gauges()["subscriptions"] == 10_000
    before = [(each.topic, each.subscriber) for each in harness.service._registry.subscriptions]
    await harness.restart()
    assert [(each.topic, each.subscriber) for each in harness.service._registry.subscriptions] == before


@pytest.mark.parametrize("turns", range(6))
async def test_it_ends_when_cancelled_even_if_a_message_arrives_at_the_same_moment(
    harness: UsubscriptionHarness, turns: int
) -> None:
    task = asyncio.create_task(harness.service.run())
    for _ in range(3):
        await asyncio.sleep(0)
    harness.take(_subscribe(harness))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait((task,), timeout=10)
    assert task in done
    assert task.cancelled()
