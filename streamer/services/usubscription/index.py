"""The subscriptions and observers by topic and by subscriber, and the interest in each topic. Pure; no rules."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from streamer.services.usubscription.entries import Observer, Subscription, SubscriptionState
from streamer.uprotocol.uri import UUri


@dataclass(slots=True)
class Topic:
    """The subscriptions and observers of one topic, both in the order of their numbers."""

    subscriptions: dict[UUri, Subscription] = field(default_factory=dict)
    observers: dict[UUri, Observer] = field(default_factory=dict)
    periods: dict[str, dict[int, int]] = field(default_factory=dict)
    """Authority → sample period (ms) → number of its subscribers with that period, without those that are leaving."""


_NOTHING = Topic()


class Index:
    """`add` and `remove` count an entry in and out. To change one, `count` it out before and in afterwards."""

    def __init__(self) -> None:
        self.topics: dict[UUri, Topic] = {}
        self.subscribers: dict[UUri, dict[UUri, Subscription]] = {}
        self.by_number: dict[int, Subscription] = {}
        self.observers = 0
        self.subscriptions_at: Counter[str] = Counter()
        self.observers_at: Counter[str] = Counter()
        """How many the uEntities of an authority have; never 0."""

    def topic(self, topic: UUri) -> Topic:
        """The entries of ``topic``, to read."""
        return self.topics.get(topic, _NOTHING)

    def all(self) -> Iterator[Subscription]:
        """Every subscription, in the order of their numbers."""
        return iter(self.by_number.values())

    def add(self, entry: Subscription) -> None:
        topic = self.topics.setdefault(entry.topic, Topic())
        topic.subscriptions[entry.subscriber] = entry
        self.subscribers.setdefault(entry.subscriber, {})[entry.topic] = entry
        self.by_number[entry.number] = entry
        self.subscriptions_at[entry.subscriber.authority] += 1
        self.count(entry, 1)

    def remove(self, entry: Subscription) -> None:
        self.count(entry, -1)
        del self.by_number[entry.number]
        _count_out(self.subscriptions_at, entry.subscriber.authority)
        topic = self.topics[entry.topic]
        del topic.subscriptions[entry.subscriber]
        self._forget_if_empty(entry.topic, topic)
        topics = self.subscribers[entry.subscriber]
        del topics[entry.topic]
        if not topics:
            del self.subscribers[entry.subscriber]

    def count(self, entry: Subscription, by: int) -> None:
        """Count the period of ``entry`` in (1) or out (-1); nothing if it is leaving."""
        if entry.state is SubscriptionState.UNSUBSCRIBE_PENDING:
            return
        periods = self.topics[entry.topic].periods
        counts = periods.setdefault(entry.subscriber.authority, {})
        period_ms = entry.attributes.period_ms
        counts[period_ms] = counts.get(period_ms, 0) + by
        if not counts[period_ms]:
            del counts[period_ms]
        if not counts:
            del periods[entry.subscriber.authority]

    def add_observer(self, observer: Observer) -> None:
        self.topics.setdefault(observer.topic, Topic()).observers[observer.uri] = observer
        self.observers += 1
        self.observers_at[observer.uri.authority] += 1

    def remove_observer(self, observer: Observer) -> None:
        topic = self.topics[observer.topic]
        del topic.observers[observer.uri]
        self.observers -= 1
        _count_out(self.observers_at, observer.uri.authority)
        self._forget_if_empty(observer.topic, topic)

    def interested(self, topic: UUri) -> dict[str, int]:
        """Authority → the shortest sample period (ms) of its subscribers; 0: every message."""
        return {authority: min(counts) for authority, counts in self.topic(topic).periods.items()}

    def _forget_if_empty(self, name: UUri, topic: Topic) -> None:
        if not topic.subscriptions and not topic.observers:
            del self.topics[name]


def _count_out(counts: Counter[str], authority: str) -> None:
    counts[authority] -= 1
    if not counts[authority]:
        del counts[authority]


def page_of(entries: Iterable[Subscription], offset: int, most: int) -> tuple[list[Subscription], bool]:
    """At most ``most`` of the entries after ``offset``, without those that are leaving, and whether there are more."""
    listed = (entry for entry in entries if entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING)
    found = list(islice(listed, offset, offset + most + 1))
    return found[:most], len(found) > most
