"""Indexes subscriptions and observers by topic and by subscriber, and the interest in each topic. Pure; no rules."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamer.features.usubscription.entries import Observer, Subscription, SubscriptionState
from streamer.uprotocol.uri import UUri


@dataclass(slots=True)
class Topic:
    """The subscriptions and observers of one topic, both in the order of their numbers."""

    subscriptions: dict[UUri, Subscription] = field(default_factory=dict)
    observers: dict[UUri, Observer] = field(default_factory=dict)
    periods: dict[str, dict[int, int]] = field(default_factory=dict)
    """Authority → sample period (ms) → number of its subscribers with that period, except those that are leaving."""


_NOTHING = Topic()


class Index:
    """`add` and `remove` count an entry's period. To change an entry, `count` it out before, and in afterwards."""

    def __init__(self) -> None:
        self.topics: dict[UUri, Topic] = {}
        self.subscribers: dict[UUri, dict[UUri, Subscription]] = {}
        self.by_number: dict[int, Subscription] = {}
        self.of_all: dict[UUri, Observer] = {}
        """The observers of every topic."""
        self.observers = 0
        self.subscriptions_at: Counter[str] = Counter()
        self.observers_at: Counter[str] = Counter()
        """Authority → number of registrations of its uEntities; never 0."""

    def topic(self, topic: UUri) -> Topic:
        """Return the entries of ``topic``, only to read."""
        return self.topics.get(topic, _NOTHING)

    def observers_of(self, topic: UUri | None) -> Mapping[UUri, Observer]:
        """Return the observers of a topic, or (None) of all topics, by uEntity."""
        return self.of_all if topic is None else self.topic(topic).observers

    def all(self) -> Iterator[Subscription]:
        """Yield every subscription in the order of the numbers."""
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
        """Count the period of ``entry`` in (``by`` 1) or out (-1), unless the entry is leaving."""
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
        if observer.topic is None:
            self.of_all[observer.uri] = observer
        else:
            self.topics.setdefault(observer.topic, Topic()).observers[observer.uri] = observer
        self.observers += 1
        self.observers_at[observer.uri.authority] += 1

    def remove_observer(self, observer: Observer) -> None:
        self.observers -= 1
        _count_out(self.observers_at, observer.uri.authority)
        if observer.topic is None:
            del self.of_all[observer.uri]
            return
        topic = self.topics[observer.topic]
        del topic.observers[observer.uri]
        self._forget_if_empty(observer.topic, topic)

    def matching(self, topic: UUri | None, subscriber: UUri | None) -> Iterator[Subscription]:
        """Yield the subscriptions that match both patterns (None: all) in the order of their numbers."""
        found: Iterable[Subscription] = self.by_number.values()
        if topic is not None and not topic.has_wildcard:
            found = self.topic(topic).subscriptions.values()
        elif subscriber is not None and not subscriber.has_wildcard:
            found = self.subscribers.get(subscriber, {}).values()
        return (
            entry
            for entry in found
            if (topic is None or topic.matches(entry.topic)) and (subscriber is None or subscriber.matches(entry.subscriber))
        )

    def interested(self, topic: UUri) -> dict[str, int]:
        """Return authority → the shortest sample period (ms) of its subscribers; 0: every message."""
        return {authority: min(counts) for authority, counts in self.topic(topic).periods.items()}

    def _forget_if_empty(self, name: UUri, topic: Topic) -> None:
        if not topic.subscriptions and not topic.observers:
            del self.topics[name]


def _count_out(counts: Counter[str], authority: str) -> None:
    counts[authority] -= 1
    if not counts[authority]:
        del counts[authority]


def listed(entries: Iterable[Subscription]) -> Iterator[Subscription]:
    """Yield the entries except those that are leaving."""
    return (entry for entry in entries if entry.state is not SubscriptionState.UNSUBSCRIBE_PENDING)
