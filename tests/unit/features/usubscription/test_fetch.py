"""004 §4.3 and §4.4: FetchSubscribers and FetchSubscriptions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.features.usubscription import v3
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.uri import UUri
from tests.unit.features.usubscription.harness import (
    APP,
    APP2,
    LOCAL,
    REMOTE,
    SUBSCRIBE_PENDING,
    SUBSCRIBED,
    UsubscriptionHarness,
)

APPS = [UUri("dev1", number, 1, 0) for number in (7, 3, 9, 1, 5, 2, 8)]
TOPICS = [UUri("dev1", 0xB5, 1, 0x8000 + number) for number in (7, 3, 9, 1, 5, 2, 8)]


async def _subscribers(harness: UsubscriptionHarness, offset: int | None = None) -> tuple[list[UUri], bool]:
    answer = await harness.call(v3.FETCH_SUBSCRIBERS, pb.FetchSubscribersRequest(topic=uri_to_proto(LOCAL), offset=offset))
    assert answer.HasField("has_more_records")
    return [uri_from_proto(each.uri) for each in answer.subscribers], answer.has_more_records


async def _subscriptions(harness: UsubscriptionHarness, offset: int | None = None) -> tuple[list[UUri], bool]:
    asked = pb.FetchSubscriptionsRequest(subscriber=pb.SubscriberInfo(uri=uri_to_proto(APP)), offset=offset)
    answer = await harness.call(v3.FETCH_SUBSCRIPTIONS, asked)
    assert {uri_from_proto(each.subscriber.uri) for each in answer.subscriptions} <= {APP}
    return [uri_from_proto(each.topic) for each in answer.subscriptions], answer.has_more_records


@pytest.fixture
async def paged(tmp_path: Path) -> AsyncIterator[UsubscriptionHarness]:
    harness = UsubscriptionHarness(tmp_path / "paged.db", page=3)
    for app in APPS:
        await harness.subscribe(LOCAL, app)
    for topic in TOPICS:
        await harness.subscribe(topic, APP)
    yield harness
    harness.state.close()


async def test_the_subscribers_of_a_topic_are_returned(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    await harness.subscribe(LOCAL, APP2)
    await harness.subscribe(REMOTE)
    assert await _subscribers(harness) == ([APP, APP2], False)


async def test_the_topics_of_a_subscriber_are_returned(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(LOCAL)
    await harness.subscribe(REMOTE)
    await harness.subscribe(LOCAL, APP2)
    assert await _subscriptions(harness) == ([LOCAL, REMOTE], False)


async def test_the_subscriptions_of_a_topic_are_returned_with_state_and_attributes(harness: UsubscriptionHarness) -> None:
    await harness.subscribe(REMOTE, sample_period_ms=40)
    await harness.subscribe(LOCAL)
    answer = await harness.call(v3.FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest(topic=uri_to_proto(REMOTE)))
    [entry] = answer.subscriptions
    assert (uri_from_proto(entry.topic), uri_from_proto(entry.subscriber.uri)) == (REMOTE, APP)
    assert entry.status.state == SUBSCRIBE_PENDING
    assert entry.attributes.sample_period_ms == 40


async def test_without_entries_the_list_is_empty(harness: UsubscriptionHarness) -> None:
    assert await _subscribers(harness) == ([], False)
    assert await _subscriptions(harness) == ([], False)


async def test_subscribers_have_the_same_order_page_by_page(paged: UsubscriptionHarness) -> None:
    for _ in range(2):
        assert await _subscribers(paged, 0) == (APPS[:3], True)
        assert await _subscribers(paged, 3) == (APPS[3:6], True)
        assert await _subscribers(paged, 6) == (APPS[6:], False)
        await paged.restart()


async def test_subscriptions_have_the_same_order_page_by_page(paged: UsubscriptionHarness) -> None:
    for _ in range(2):
        assert await _subscriptions(paged, 0) == (TOPICS[:3], True)
        assert await _subscriptions(paged, 3) == (TOPICS[3:6], True)
        assert await _subscriptions(paged, 6) == (TOPICS[6:], False)
        await paged.restart()


async def test_more_records_are_announced_while_there_are_more(paged: UsubscriptionHarness) -> None:
    assert await _subscribers(paged, 4) == (APPS[4:], False)
    assert await _subscriptions(paged, 4) == (TOPICS[4:], False)


@pytest.mark.parametrize("offset", [7, 8, 0xFFFF_FFFF])
async def test_an_offset_beyond_the_end_returns_nothing(paged: UsubscriptionHarness, offset: int) -> None:
    assert await _subscribers(paged, offset) == ([], False)
    assert await _subscriptions(paged, offset) == ([], False)


async def test_an_offset_omits_the_entries_up_to_it(paged: UsubscriptionHarness) -> None:
    assert await _subscribers(paged, 1) == (APPS[1:4], True)
    assert await _subscriptions(paged, 1) == (TOPICS[1:4], True)


async def test_the_order_stays_when_a_subscriber_leaves(paged: UsubscriptionHarness) -> None:
    await paged.unsubscribe(LOCAL, APPS[1])
    assert await _subscribers(paged, 0) == ([APPS[0], *APPS[2:4]], True)
    assert await paged.subscribe(LOCAL, APPS[1]) is SUBSCRIBED
    assert await _subscribers(paged, 6) == ([APPS[1]], False)


async def test_neither_topic_nor_subscriber_returns_all_subscriptions_page_by_page(paged: UsubscriptionHarness) -> None:
    every = [(LOCAL, app) for app in APPS] + [(topic, APP) for topic in TOPICS]
    for _ in range(2):
        for offset in range(0, len(every), 3):
            asked = pb.FetchSubscriptionsRequest(offset=offset)
            answer = await paged.call(v3.FETCH_SUBSCRIPTIONS, asked)
            found = [(uri_from_proto(each.topic), uri_from_proto(each.subscriber.uri)) for each in answer.subscriptions]
            assert found == every[offset : offset + 3]
            assert answer.has_more_records is (offset + 3 < len(every))
        await paged.restart()


async def test_without_an_offset_everything_is_returned_at_once(paged: UsubscriptionHarness) -> None:
    assert await _subscribers(paged) == (APPS, False)
    assert await _subscriptions(paged) == (TOPICS, False)
    answer = await paged.call(v3.FETCH_SUBSCRIPTIONS, None)
    assert (len(answer.subscriptions), answer.has_more_records) == (len(APPS) + len(TOPICS), False)


async def test_without_an_offset_as_much_is_returned_as_a_message_may_carry(tmp_path: Path) -> None:
    harness = UsubscriptionHarness(tmp_path / "small.db", page=100, max_answer_bytes=64)
    for app in APPS:
        await harness.subscribe(LOCAL, app)
    first, has_more = await _subscribers(harness)
    assert has_more
    assert 0 < len(first) < len(APPS)
    found = list(first)
    while has_more:
        entries, has_more = await _subscribers(harness, len(found))
        found += entries
    assert found == APPS
    harness.state.close()
