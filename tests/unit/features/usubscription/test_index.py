"""Subscriptions by topic and subscriber: counted in and out exactly, and listed in pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.usubscription.entries import Observer, SubscribeAttributes, Subscription, SubscriptionState
from streamer.features.usubscription.index import Index, listed
from streamer.uprotocol.uri import UUri

SPEED, DOORS = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xA, 1, 0x8001)
APP, OTHER_APP, PHONE = UUri("cloud", 0xC, 1, 0), UUri("cloud", 0xD, 1, 0), UUri("phone1", 0xC, 1, 0)
SUBSCRIBED, LEAVING = SubscriptionState.SUBSCRIBED, SubscriptionState.UNSUBSCRIBE_PENDING


def subscription(
    number: int, topic: UUri = SPEED, subscriber: UUri = APP, period_ms: int = 0, state: SubscriptionState = SUBSCRIBED
) -> Subscription:
    return Subscription(number, topic, subscriber, "veh1", state, SubscribeAttributes(sample_period_ms=period_ms))


def test_an_entry_is_found_by_topic_subscriber_and_number() -> None:
    index, entry = Index(), subscription(7)
    index.add(entry)
    assert index.topic(SPEED).subscriptions == {APP: entry}
    assert index.subscribers == {APP: {SPEED: entry}}
    assert list(index.all()) == [entry]
    index.remove(entry)
    assert (index.topics, index.subscribers, index.by_number) == ({}, {}, {})


def test_the_shortest_period_of_an_authority_counts_while_it_has_a_subscriber_with_it() -> None:
    index = Index()
    slow, fast = subscription(1, subscriber=APP, period_ms=500), subscription(2, subscriber=OTHER_APP, period_ms=100)
    for entry in (slow, fast, subscription(3, subscriber=PHONE)):
        index.add(entry)
    assert index.interested(SPEED) == {"cloud": 100, "phone1": 0}
    index.remove(fast)
    assert index.interested(SPEED) == {"cloud": 500, "phone1": 0}
    assert index.interested(DOORS) == {}


def test_a_subscriber_that_is_leaving_is_interested_no_more() -> None:
    index, entry = Index(), subscription(1)
    index.add(entry)
    index.count(entry, -1)
    entry.state = LEAVING
    index.count(entry, 1)
    assert index.interested(SPEED) == {}
    index.remove(entry)
    assert index.topics == {}


def test_a_topic_stays_while_it_has_a_subscription_or_an_observer() -> None:
    index, entry = Index(), subscription(1)
    observer = Observer(2, SPEED, PHONE, "veh1")
    index.add(entry)
    index.add_observer(observer)
    assert (index.observers, index.topic(SPEED).observers) == (1, {PHONE: observer})
    index.remove(entry)
    assert SPEED in index.topics
    index.remove_observer(observer)
    assert (index.observers, index.topics) == (0, {})


entries = st.lists(
    st.tuples(st.sampled_from((SPEED, DOORS)), st.sampled_from((APP, OTHER_APP, PHONE)), st.integers(0, 2)),
    unique_by=lambda entry: entry[:2],
)


@given(entries, st.data())
def test_whatever_is_added_and_removed_the_interest_is_that_of_the_rest(
    described: list[tuple[UUri, UUri, int]], data: st.DataObject
) -> None:
    index = Index()
    added = [subscription(number, *each) for number, each in enumerate(described)]
    for entry in added:
        index.add(entry)
    removed = data.draw(st.lists(st.sampled_from(added), unique_by=id)) if added else []
    for entry in removed:
        index.remove(entry)
    left = [entry for entry in added if entry not in removed]
    assert list(index.all()) == left
    for topic in (SPEED, DOORS):
        expected: dict[str, int] = {}
        for entry in left:
            if entry.topic == topic:
                authority = entry.subscriber.authority
                period_ms = entry.attributes.period_ms
                expected[authority] = min(period_ms, expected.get(authority, period_ms))
        assert index.interested(topic) == expected


def test_what_is_leaving_is_not_listed() -> None:
    entries = [subscription(1), subscription(2, state=LEAVING), subscription(3)]
    assert [entry.number for entry in listed(entries)] == [1, 3]


@pytest.mark.parametrize(
    ("topic", "subscriber", "numbers"),
    [
        (None, None, [1, 2, 3, 4]),
        (SPEED, None, [1, 2, 4]),
        (DOORS, APP, [3]),
        (None, PHONE, [4]),
        (SPEED._replace(resource=0xFFFF), None, [1, 2, 3, 4]),
        (SPEED._replace(resource=0xFFFF), APP, [1, 3]),
        (None, APP._replace(ue_id=0xFFFFFFFF), [1, 2, 3]),
        (SPEED._replace(authority="*"), APP._replace(authority="*"), [1, 4]),
        (SPEED._replace(version=0xFF, ue_id=0xFFFF000A), PHONE, [4]),
        (SPEED._replace(authority="veh2"), None, []),
        (None, APP._replace(version=9), []),
    ],
)
def test_both_patterns_choose(topic: UUri | None, subscriber: UUri | None, numbers: list[int]) -> None:
    index = Index()
    for number, (name, app) in enumerate([(SPEED, APP), (SPEED, OTHER_APP), (DOORS, APP), (SPEED, PHONE)], start=1):
        index.add(subscription(number, name, app))
    assert [entry.number for entry in index.matching(topic, subscriber)] == numbers
