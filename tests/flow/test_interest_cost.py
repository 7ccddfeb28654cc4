"""What a change of subscriptions costs those who have nothing to do with it: nothing is found out anew for them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from streamer.delivery import resolve
from streamer.routing.interest import EVERY_MESSAGE
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.stage import GATEWAY, Stage, configuration

CONFIG = configuration(routes=[{"from": "cloud", "to": "vehicle"}])
TOPICS = [UUri("cloud", 0xC0, 1, 0x9000 + n) for n in range(20)]
CHANGED, OTHER, *_ = TOPICS


async def want(stage: Stage, interest: Mapping[UUri, Iterable[str]]) -> None:
    for topic, interested in interest.items():
        stage.router.want(topic, dict.fromkeys(interested, EVERY_MESSAGE), "test")
    await asyncio.sleep(0)  # the turn of the loop after which it holds
    await stage.router.subscriber.catch_up()


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Counter[UUri]:
    """How often it was decided where a topic goes."""
    counts: Counter[UUri] = Counter()
    decide = resolve.decide

    def counting(kind: UMessageType, source: UUri, *rest: Any) -> Any:
        counts[source] += 1
        return decide(kind, source, *rest)

    monkeypatch.setattr(resolve, "decide", counting)
    return counts


async def test_a_change_of_one_topic_keeps_what_was_resolved_for_others() -> None:
    async with Stage(CONFIG) as stage:
        known = stage.router.ingresses["cloud"]._resolver.known
        await want(stage, {topic: ["veh1"] for topic in TOPICS})
        messages = {topic: stage.speed(source=topic) for topic in TOPICS}
        stage.arrive("cloud", *messages.values())
        before = {topic: known[message.attributes] for topic, message in messages.items()}
        await want(stage, {CHANGED: []})
        assert messages[CHANGED].attributes not in known
        await want(stage, {CHANGED: ["veh1"]})
        stage.arrive("cloud", *(stage.speed(source=topic) for topic in TOPICS))
        after = {topic: known[message.attributes] for topic, message in messages.items()}
        assert [topic for topic in TOPICS if after[topic] is not before[topic]] == [CHANGED]


async def test_only_topics_that_changed_are_decided_anew(decided: Counter[UUri]) -> None:
    async with Stage(CONFIG) as stage:
        await want(stage, {topic: ["veh1"] for topic in TOPICS})
        stage.arrive("cloud", *(stage.speed(source=topic) for topic in TOPICS))
        assert decided == dict.fromkeys(TOPICS, 1)
        await want(stage, {CHANGED: ["veh1", "veh2"], OTHER: ["veh1", "veh2"]})
        stage.arrive("cloud", *(stage.speed(source=topic) for topic in TOPICS))
        assert decided == dict.fromkeys(TOPICS, 1) | {CHANGED: 2, OTHER: 2}


async def test_messages_that_are_all_different_are_decided_once_per_flow_and_change_of_their_topic(
    decided: Counter[UUri],
) -> None:
    async with Stage(CONFIG) as stage:
        await want(stage, {topic: ["veh1"] for topic in TOPICS})
        for n in range(1, 11):
            if n == 6:
                await want(stage, {CHANGED: ["veh1", "veh2"]})
            traced = Options(traceparent=f"00-{n:032x}-{n:016x}-01")
            stage.arrive("cloud", *(publish(stage.clock.ms, topic, b"", traced) for topic in TOPICS))
        assert len(stage.sent("vehicle")) == 10 * len(TOPICS)
        assert decided == dict.fromkeys(TOPICS, 1) | {CHANGED: 2}


async def test_copies_that_are_addressed_follow_a_change_of_their_topic_too() -> None:
    async with Stage(CONFIG) as stage:

        def copy(payload: bytes) -> UMessage:
            addressed = Attributes(UMessageType.PUBLISH, CHANGED, everything_at(GATEWAY))
            return UMessage(stage.speed().id, addressed, payload)

        await want(stage, {CHANGED: ["veh1"]})
        stage.arrive("cloud", stage.speed(b"1", source=CHANGED), copy(b"2"))
        await want(stage, {CHANGED: []})
        stage.arrive("cloud", stage.speed(b"3", source=CHANGED), copy(b"4"))
        await want(stage, {CHANGED: ["veh1"]})
        stage.arrive("cloud", stage.speed(b"5", source=CHANGED), copy(b"6"))
        assert [message.payload for message in stage.sent("vehicle")] == [b"1", b"2", b"5", b"6"]
