"""Two hours without a link, 100 topics that are published once a second: what is sent when the link is back.

`queue_policy.topics` decides for each topic; topics without an entry are as if there were none.
"""

from collections import Counter
from typing import Any

import pytest

from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness, configuration
from tests.flow.pausing import UP
from tests.flow.witnesses import WITNESSES

TOPICS = [UUri("veh1", 0x100 + number, 1, 0x8001) for number in range(100)]
KEEPING = TOPICS[:50]
BATCH_S = 60

LATEST = [{"topic": "//veh1/FFFFFFFF/FF/FFFF", "keep": "latest"}]
HALF = [{"topic": str(topic), "keep": "all"} for topic in KEEPING] + LATEST


async def sent_after(seconds: int, topics: list[dict[str, Any]]) -> tuple[dict[UUri, list[int]], Counter[str]]:
    """What leaves once the link is back, of each topic in order: the seconds in which it was published. And the outcomes.

    Before the outage, each topic is sent often enough that its window is wide.
    """
    room = {"messages": 100 * seconds, "bytes": "4GiB", "stalled_factor": 0}
    policy = {"queue_policy": {"queue": room, "topics": topics}, "remember": {"ids": 200 * seconds + 20_000}}
    async with RouterHarness(configuration(**policy), witnesses=WITNESSES if seconds < 1000 else ()) as harness:

        def publish(begin_s: int, end_s: int) -> None:
            made = [harness.speed(b"%d" % second, topic) for second in range(begin_s, end_s) for topic in TOPICS]
            harness.arrive("vehicle", *made)

        cloud = harness.transports["cloud"]
        for second in range(-30, 0):
            publish(second, second + 1)
        before = len(cloud.sent)
        cloud.lose_link()
        for begin_s in range(0, seconds, BATCH_S):
            publish(begin_s, min(begin_s + BATCH_S, seconds))
            harness.pass_time(BATCH_S * 1000)
        cloud.restore_link()
        harness.pass_time(50)
        sent = cloud.sent[before:]
        assert all(int(message.payload or b"") == seconds - 1 for message in sent[:100]) is (topics is LATEST)
        outcomes = Counter(harness.outcomes(UP))
        outcomes["delivered"] -= before
        assert harness.queued(UP) == 0
        assert len(cloud.sent) == before + len(sent) == len({message.id for message in cloud.sent})
        found: dict[UUri, list[int]] = {topic: [] for topic in TOPICS}
        for message in sent:
            found[message.attributes.source].append(int(message.payload or b""))
        return found, outcomes


def each(topics: list[UUri], seconds: list[int]) -> dict[UUri, list[int]]:
    return dict.fromkeys(topics, seconds)


@pytest.mark.parametrize("seconds", [30, pytest.param(7200, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_of_a_topic_that_keeps_the_latest_only_the_present_value_is_sent(seconds: int) -> None:
    found, outcomes = await sent_after(seconds, LATEST)
    assert found == each(TOPICS, [seconds - 1])
    assert outcomes == {"delivered": 100, "superseded": 100 * seconds - 100}


@pytest.mark.parametrize("seconds", [30, pytest.param(720, marks=pytest.mark.long)])
@pytest.mark.parametrize("topics", [[], [{"topic": "//veh2/FFFFFFFF/FF/FFFF", "keep": "latest"}]], ids=["none", "another"])
async def test_without_an_entry_everything_is_sent_in_order(seconds: int, topics: list[dict[str, Any]]) -> None:
    found, outcomes = await sent_after(seconds, topics)
    assert found == each(TOPICS, list(range(seconds)))
    assert outcomes == {"delivered": 100 * seconds}


@pytest.mark.parametrize("seconds", [30, pytest.param(720, marks=pytest.mark.long)])
async def test_topics_with_and_without_an_entry_do_not_affect_each_other(seconds: int) -> None:
    found, outcomes = await sent_after(seconds, HALF)
    assert found == each(KEEPING, list(range(seconds))) | each(TOPICS[50:], [seconds - 1])
    assert outcomes == {"delivered": 50 * seconds + 50, "superseded": 50 * (seconds - 1)}
