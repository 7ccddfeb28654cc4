"""Peers whose headers differ in every message: it costs neither them nor others more than messages that do not."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from streamer.delivery.inbound import resolve
from streamer.routing.decide import decide
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol import cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.flow.harness import RouterHarness

STRANGER = UUri("stranger", 0xC0, 1, 0)
FLOOD = 2000


class Work:
    """What was done for messages that could be done for flows."""

    def __init__(self) -> None:
        self.decided: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.compared = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    remember, equal = Flows.remember, Attributes.__eq__

    def decided(kind: Any, source: UUri, *rest: Any) -> Any:
        done.decided[source.authority] += 1
        return decide(kind, source, *rest)

    def held(flows: Flows, key: Attributes, value: Attributes) -> None:
        done.held[key.source.authority] += 1
        remember(flows, key, value)

    def compared(one: Attributes, other: object) -> bool:
        done.compared += 1
        return equal(one, other)

    monkeypatch.setattr(resolve, "decide", decided)
    monkeypatch.setattr(Flows, "remember", held)
    monkeypatch.setattr(Attributes, "__eq__", compared)
    return done


def flood(harness: RouterHarness, **changes: Any) -> list[UMessage]:
    """Requests of a stranger; each change is a function of the message's number."""
    like = harness.ask(source=STRANGER, ttl=60_000)
    return [
        UMessage(
            new_id(harness.clock.ms),
            replace(
                like.attributes, **{name: change(n) if callable(change) else change for name, change in changes.items()}
            ),
            b"",
        )
        for n in range(FLOOD)
    ]


async def test_tokens_traceparents_and_request_ids_are_no_part_of_a_flow(work: Work) -> None:
    async with RouterHarness(is_observed=False) as harness:
        batch = flood(harness, token=lambda n: f"token {n}", traceparent=lambda n: f"00-{n + 1:032x}-{n + 1:016x}-01")
        work.compared = 0
        harness.transports["cloud"].inject(*map(MemoryReceived, batch))
        assert [message.attributes.token for message in harness.transports["vehicle"].sent] == [
            f"token {n}" for n in range(FLOOD)
        ]
    assert work.decided["stranger"] == 1
    assert work.held["stranger"] == 1
    assert work.compared <= 10 * FLOOD


async def test_flow_stays_known_whatever_a_stranger_varies(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 50)
    async with RouterHarness(is_observed=False) as harness:
        for n, hostile in enumerate(flood(harness, ttl=lambda n: 60_000 + n, permission_level=lambda n: n)):
            harness.transports["cloud"].inject(MemoryReceived(hostile))
            harness.transports["cloud"].inject(MemoryReceived(harness.ask(payload=str(n).encode())))
        assert len(harness.transports["vehicle"].sent) == 2 * FLOOD
        flows = harness.transports["cloud"].context.flows
        assert len(flows) + len(flows._old) <= 100
    assert work.held["cloud"] == 1
    assert work.decided["cloud"] == 1
