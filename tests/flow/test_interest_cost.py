"""A change of subscriptions costs other topics nothing: nothing is resolved again for them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from streamer.delivery.inbound import resolve
from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.lanes.queue import RouteQueue
from streamer.routing.decide import decide
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.base import Received
from streamer.uprotocol.form import IS_COMPILED
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.harness import GATEWAY, RouterHarness, configuration

CONFIG = configuration(routes=[{"from": "cloud", "to": "vehicle"}])
TOPICS = [UUri("cloud", 0xC0, 1, 0x9000 + n) for n in range(20)]
CHANGED, OTHER, *_ = TOPICS


async def want(harness: RouterHarness, interest: Mapping[UUri, Iterable[str]]) -> None:
    for topic, interested in interest.items():
        harness.router.set_interest(topic, dict.fromkeys(interested, EVERY_MESSAGE), "test")
    await asyncio.sleep(0)  # the turn of the loop after which it holds
    await harness.router.listening.catch_up()


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Counter[UUri]:
    """How often it was decided where a topic goes."""
    counts: Counter[UUri] = Counter()

    def counting(kind: UMessageType, source: UUri, *rest: Any) -> Any:
        counts[source] += 1
        return decide(kind, source, *rest)

    monkeypatch.setattr(resolve, "decide", counting)
    return counts


async def test_a_change_of_one_topic_keeps_what_was_resolved_for_others() -> None:
    async with RouterHarness(CONFIG) as harness:
        flows = harness.transports["cloud"].context.flows
        await want(harness, {topic: ["veh1"] for topic in TOPICS})
        messages = {topic: harness.speed(source=topic) for topic in TOPICS}
        harness.arrive("cloud", *messages.values())
        before = {topic: flows.of(message.attributes).resolved for topic, message in messages.items()}
        await want(harness, {CHANGED: []})
        assert flows.of(messages[CHANGED].attributes).resolved is None
        await want(harness, {CHANGED: ["veh1"]})
        harness.arrive("cloud", *(harness.speed(source=topic) for topic in TOPICS))
        after = {topic: flows.of(message.attributes).resolved for topic, message in messages.items()}
        assert [topic for topic in TOPICS if after[topic] is not before[topic]] == [CHANGED]


async def test_only_topics_that_changed_are_decided_anew(decided: Counter[UUri]) -> None:
    async with RouterHarness(CONFIG) as harness:
        await want(harness, {topic: ["veh1"] for topic in TOPICS})
        harness.arrive("cloud", *(harness.speed(source=topic) for topic in TOPICS))
        assert decided == dict.fromkeys(TOPICS, 1)
        await want(harness, {CHANGED: ["veh1", "veh2"], OTHER: ["veh1", "veh2"]})
        harness.arrive("cloud", *(harness.speed(source=topic) for topic in TOPICS))
        assert decided == dict.fromkeys(TOPICS, 1) | {CHANGED: 2, OTHER: 2}


async def test_messages_that_are_all_different_are_decided_once_per_flow_and_change_of_their_topic(
    decided: Counter[UUri],
) -> None:
    async with RouterHarness(CONFIG) as harness:
        await want(harness, {topic: ["veh1"] for topic in TOPICS})
        for n in range(1, 11):
            if n == 6:
                await want(harness, {CHANGED: ["veh1", "veh2"]})
            traced = Options(traceparent=f"00-{n:032x}-{n:016x}-01")
            harness.arrive("cloud", *(publish(harness.clock.ms, topic, b"", traced) for topic in TOPICS))
        assert len(harness.sent("vehicle")) == 10 * len(TOPICS)
        assert decided == dict.fromkeys(TOPICS, 1) | {CHANGED: 2}


async def test_copies_that_are_addressed_follow_a_change_of_their_topic_too() -> None:
    async with RouterHarness(CONFIG) as harness:

        def copy(payload: bytes) -> UMessage:
            addressed = Attributes(UMessageType.PUBLISH, CHANGED, everything_at(GATEWAY))
            return UMessage(harness.speed().id, addressed, payload)

        await want(harness, {CHANGED: ["veh1"]})
        harness.arrive("cloud", harness.speed(b"1", source=CHANGED), copy(b"2"))
        await want(harness, {CHANGED: []})
        harness.arrive("cloud", harness.speed(b"3", source=CHANGED), copy(b"4"))
        await want(harness, {CHANGED: ["veh1"]})
        harness.arrive("cloud", harness.speed(b"5", source=CHANGED), copy(b"6"))
        assert [message.payload for message in harness.sent("vehicle")] == [b"1", b"2", b"5", b"6"]


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The payloads of what was put into a backlog, each time that it was."""
    payloads: list[bytes | None] = []
    add = Backlog.add

    def noting(backlog: Backlog, key: bytes, received: Received, queue: RouteQueue) -> Received | None:
        payloads.append(received.message.payload)
        return add(backlog, key, received, queue)

    monkeypatch.setattr(Backlog, "add", noting)
    return payloads


@pytest.mark.skipif(IS_COMPILED, reason="compiled code calls only its own methods")
@pytest.mark.parametrize("changed", [OTHER, CHANGED], ids=["another topic", "how often it is sent"])
async def test_a_change_does_not_touch_what_goes_on_waiting_for_the_same_queue(
    held_back: list[bytes | None], changed: UUri
) -> None:
    """Whoever has much waiting outside a full queue could have all of it decided anew as often as it likes."""
    config = configuration(routes=[{"from": "cloud", "to": "vehicle", "queue": {"messages": 1, "stalled_factor": 0}}])
    async with RouterHarness(config) as harness:
        await want(harness, {CHANGED: ["veh1"]})
        harness.transports["vehicle"].lose_link()
        sent = [harness.speed(b"%d" % number, source=CHANGED, ttl=60_000 + number) for number in range(4)]
        harness.arrive("cloud", *sent)
        assert held_back == [b"1", b"2", b"3"]
        for period_ms in (100, EVERY_MESSAGE):
            harness.router.set_interest(changed, {"veh1": period_ms}, "test")
            await asyncio.sleep(0)
        assert held_back == [b"1", b"2", b"3"]
        harness.transports["vehicle"].restore_link()
        harness.pass_time(50)
        assert harness.sent("vehicle") == sent


@pytest.mark.parametrize("asked", [CHANGED, CHANGED._replace(version=0xFF)], ids=["one version", "any version"])
async def test_what_waits_outside_a_queue_ends_when_nobody_is_interested_any_more(asked: UUri) -> None:
    config = configuration(routes=[{"from": "cloud", "to": "vehicle", "queue": {"messages": 1, "stalled_factor": 0}}])
    async with RouterHarness(config) as harness:
        await want(harness, {asked: ["veh1"]})
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.speed(b"%d" % number, source=CHANGED) for number in range(4)))
        assert len(harness.router.ingresses["cloud"].backlog) == 3
        await want(harness, {asked: []})
        assert len(harness.router.ingresses["cloud"].backlog) == 0
