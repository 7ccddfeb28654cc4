"""The subscriptions and observers by topic and by subscriber, and who asks for a topic how often. Pure; no rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from streamer.services.usubscription.entries import Observer, Standing, Subscription
from streamer.uprotocol.uri import UUri


@dataclass(slots=True)
class Topic:
    """What there is of one topic. Both mappings are in the order of their numbers."""

    subscriptions: dict[UUri, Subscription] = field(default_factory=dict)
    observers: dict[UUri, Observer] = field(default_factory=dict)
    periods: dict[str, dict[int, int]] = field(default_factory=dict)
    """Per authority: sample period (ms) → how many subscribers have it. Without those that are about to leave."""


_NOTHING = Topic()


class Index:
    """Each entry is added and removed with its counts; to change one that is counted, remove and add it, or `recount`."""

    def __init__(self) -> None:
        self.topics: dict[UUri, Topic] = {}
        self.subscribers: dict[UUri, dict[UUri, Subscription]] = {}
        self.by_number: dict[int, Subscription] = {}
        self.observers = 0

    def topic(self, topic: UUri) -> Topic:
        """What there is of ``topic``, to read."""
        return self.topics.get(topic, _NOTHING)

    def all(self) -> Iterator[Subscription]:
        """Every subscription, in the order of their numbers."""
        return iter(self.by_number.values())

    def add(self, entry: Subscription) -> None:
        topic = self.topics.setdefault(entry.topic, Topic())
        topic.subscriptions[entry.subscriber] = entry
        self.subscribers.setdefault(entry.subscriber, {})[entry.topic] = entry
        self.by_number[entry.number] = entry
        self.count(entry, 1)

    def remove(self, entry: Subscription) -> None:
        self.count(entry, -1)
        del self.by_number[entry.number]
        topic = self.topics[entry.topic]
        del topic.subscriptions[entry.subscriber]
        self._forget_if_empty(entry.topic, topic)
        topics = self.subscribers[entry.subscriber]
        del topics[entry.topic]
        if not topics:
            del self.subscribers[entry.subscriber]

    def count(self, entry: Subscription, by: int) -> None:
        """Count the period of ``entry`` in (1) or out (-1); nothing if it is about to leave."""
        if entry.standing is Standing.UNSUBSCRIBE_PENDING:
            return
        periods = self.topics[entry.topic].periods
        counts = periods.setdefault(entry.subscriber.authority, {})
        period_ms = entry.wish.period_ms
        counts[period_ms] = counts.get(period_ms, 0) + by
        if not counts[period_ms]:
            del counts[period_ms]
        if not counts:
            del periods[entry.subscriber.authority]

    def observe(self, observer: Observer) -> None:
        self.topics.setdefault(observer.topic, Topic()).observers[observer.uri] = observer
        self.observers += 1

    def ignore(self, observer: Observer) -> None:
        topic = self.topics[observer.topic]
        del topic.observers[observer.uri]
        self.observers -= 1
        self._forget_if_empty(observer.topic, topic)

    def interested(self, topic: UUri) -> dict[str, int]:
        """Authority → the shortest period (ms) that one of its subscribers asks for; 0: every message."""
        return {authority: min(counts) for authority, counts in self.topic(topic).periods.items()}

    def _forget_if_empty(self, name: UUri, topic: Topic) -> None:
        if not topic.subscriptions and not topic.observers:
            del self.topics[name]
