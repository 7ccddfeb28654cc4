"""What another uSubscription service has told us: who is subscribed to what, as far as we asked. Pure.

A query replaces what was known in its scope when its last page has come. What Updates said meanwhile is newer than its
pages, and is laid over them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from streamer.uprotocol.uri import UUri

Relation = tuple[UUri, UUri]
"""Topic and subscriber."""

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000


@dataclass(slots=True)
class Query:
    """All subscriptions of one topic, or of one subscriber, or (neither) of everybody; page by page."""

    topic: UUri | None = None
    subscriber: UUri | None = None
    is_bare: bool = False
    """Everybody is asked for with neither a topic nor a subscriber: a wildcard was refused."""
    request: bytes | None = None
    """The open request."""
    due_ms: int = 0
    failures: int = 0
    pages: dict[Relation, int] = field(default_factory=dict)
    told: dict[Relation, int | None] = field(default_factory=dict)
    offset: int = 0

    def begin(self) -> None:
        """From the first page."""
        self.pages.clear()
        self.told.clear()
        self.offset = 0

    def failed(self, now_ms: int, refresh_ms: int) -> None:
        """The service was not reached: again after a while."""
        self.request = None
        pause_ms = min(FIRST_PAUSE_MS << min(self.failures, 16), LONGEST_PAUSE_MS)
        self.failures += 1
        self.due_ms = now_ms + min(pause_ms, max(refresh_ms, FIRST_PAUSE_MS))


class Followed:
    """Subscriptions with their sample period (ms; 0: every message); at most ``most``."""

    def __init__(self, topics: Collection[UUri], subscribers: Collection[UUri], most: int) -> None:
        self._asked_topics = frozenset(topics)
        self._asked_subscribers = frozenset(subscribers)
        self.most = most
        self._topics: dict[UUri, dict[UUri, int]] = {}
        self._subscribers: dict[UUri, set[UUri]] = {}
        self.count = 0
        self.left_out = 0
        self.follows_all = True
        """Until the service refuses to tell about everybody."""

    @property
    def topics(self) -> Collection[UUri]:
        """Every topic that was asked for, or that somebody is known to be subscribed to."""
        return self._asked_topics | self._topics.keys()

    def covers(self, relation: Relation) -> bool:
        """Whether a query keeps track of it."""
        return self.follows_all or relation[0] in self._asked_topics or relation[1] in self._asked_subscribers

    def interested(self, topic: UUri) -> dict[str, int]:
        """Authority → the shortest period that one of its subscribers asks for."""
        found: dict[str, int] = {}
        for subscriber, period_ms in self._topics.get(topic, {}).items():
            found[subscriber.authority] = min(period_ms, found.get(subscriber.authority, period_ms))
        return found

    def set(self, relation: Relation, period_ms: int | None) -> bool:
        """Have it so; None: not subscribed. Returns whether it was otherwise."""
        topic, subscriber = relation
        before = self._topics.get(topic, {}).get(subscriber)
        if before == period_ms:
            return False
        if period_ms is None:
            self._remove(topic, subscriber)
        elif before is None and self.count >= self.most:
            self.left_out += 1
            return False
        else:
            self.count += before is None
            self._topics.setdefault(topic, {})[subscriber] = period_ms
            self._subscribers.setdefault(subscriber, set()).add(topic)
        return True

    def finish(self, query: Query) -> Iterator[tuple[Relation, int | None]]:
        """The changes, still to be `set`, that a query with all its pages brings."""
        found: dict[Relation, int | None] = {**query.pages, **query.told}
        for relation in self._scope(query):
            found.setdefault(relation, None)
        return iter(found.items())

    def refused_all(self) -> list[Relation]:
        """The service does not tell about everybody. Returns what nobody keeps track of then, still to be removed."""
        self.follows_all = False
        return [relation for relation in self._scope(Query()) if not self.covers(relation)]

    def _scope(self, query: Query) -> list[Relation]:
        if query.topic is not None:
            return [(query.topic, subscriber) for subscriber in self._topics.get(query.topic, ())]
        if query.subscriber is not None:
            return [(topic, query.subscriber) for topic in self._subscribers.get(query.subscriber, ())]
        return [(topic, subscriber) for topic, subscribers in self._topics.items() for subscriber in subscribers]

    def _remove(self, topic: UUri, subscriber: UUri) -> None:
        self.count -= 1
        del self._topics[topic][subscriber]
        if not self._topics[topic]:
            del self._topics[topic]
        self._subscribers[subscriber].discard(topic)
        if not self._subscribers[subscriber]:
            del self._subscribers[subscriber]
