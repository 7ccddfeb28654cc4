"""The known subscriptions of another uSubscription service, from queries and notifications. Pure.

The last page of a query replaces everything that was known in its scope. Updates that were received meanwhile are newer than
its pages, and override them. A configured topic or subscriber is only in the scope of its own query: a service may list less
to a query for everybody, or take a wildcard for a literal name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streamer.features.usubscription.remote_topic import wait_ms
from streamer.uprotocol.uri import UUri

_DOUBLINGS = 20

MAX_LEFT_OUT = 1000
"""The most subscriptions without room that are remembered, for a count of them."""

Relation = tuple[UUri, UUri]
"""Topic and subscriber."""


class Page(NamedTuple):
    """A page of a Response: the subscriptions in effect with their periods, and the number of all its entries."""

    found: Mapping[Relation, int]
    entries: int
    has_more: bool


@dataclass(slots=True)
class Query:
    """A query for all subscriptions of one topic, of one subscriber, or (neither) of everybody; page by page."""

    topic: UUri | None = None
    subscriber: UUri | None = None
    is_bare: bool = False
    """Whether the Request for everybody leaves topic and subscriber out, because the service refuses a wildcard."""
    request: bytes | None = None
    """The id of the Request without a response; None: there is none."""
    due_ms: int = 0
    failures: int = 0
    unanswered: int = 0
    """How often the Request was repeated for want of a response since the last complete query."""
    pages: dict[Relation, int] = field(default_factory=dict)
    updates: dict[Relation, int | None] = field(default_factory=dict)
    offset: int = 0

    def patience_ms(self, refresh_ms: int, longest_ms: int) -> int:
        """Return the ms to wait for a response: doubled after each repetition, so that a slow service is heard, too."""
        return max(refresh_ms, min(refresh_ms << min(self.unanswered, _DOUBLINGS), longest_ms))

    def begin(self) -> None:
        """Start over with the first page."""
        self.pages.clear()
        self.updates.clear()
        self.offset = 0

    def failed(self, now_ms: int, refresh_ms: int) -> None:
        """Schedule the query again: the service could not be reached."""
        self.request = None
        self.failures += 1
        self.due_ms = now_ms + min(wait_ms(self.failures), max(refresh_ms, wait_ms(1)))


class Followed:
    """Subscriptions with their sample periods (ms; 0: every message), at most ``most`` of them."""

    def __init__(self, topics: Collection[UUri], subscribers: Collection[UUri], most: int) -> None:
        self._configured_topics = frozenset(topics)
        self._configured_subscribers = frozenset(subscribers)
        self.most = most
        self._topics: dict[UUri, dict[UUri, int]] = {}
        self._subscribers: dict[UUri, set[UUri]] = {}
        self.count = 0
        self._left_out: dict[Relation, None] = {}
        self.follows_all = True
        """False while the service refuses to list everybody's subscriptions."""

    @property
    def left_out(self) -> int:
        """Return the number of subscriptions without room: `MAX_LEFT_OUT` at most."""
        return len(self._left_out)

    @property
    def topics(self) -> Collection[UUri]:
        """Return every configured topic, and every topic with a known subscription."""
        return self._configured_topics | self._topics.keys()

    def all(self) -> Iterator[tuple[Relation, int]]:
        """Yield every known subscription with its sample period in ms."""
        return iter([((topic, subscriber), ms) for topic, found in self._topics.items() for subscriber, ms in found.items()])

    def covers(self, relation: Relation) -> bool:
        """Whether a query keeps this subscription up to date."""
        return self.follows_all or self._is_configured(relation)

    def _is_configured(self, relation: Relation) -> bool:
        return relation[0] in self._configured_topics or relation[1] in self._configured_subscribers

    def interested(self, topic: UUri, is_permitted: Callable[[UUri, UUri], bool]) -> dict[str, int]:
        """Return authority → the shortest sample period (ms) of those subscribers that ``is_permitted``."""
        found: dict[str, int] = {}
        for subscriber, period_ms in self._topics.get(topic, {}).items():
            if not is_permitted(subscriber, topic):
                continue
            found[subscriber.authority] = min(period_ms, found.get(subscriber.authority, period_ms))
        return found

    def set(self, relation: Relation, period_ms: int | None) -> bool:
        """Set the period (ms) of a subscription; None removes the subscription. Return whether that changed anything."""
        topic, subscriber = relation
        before = self._topics.get(topic, {}).get(subscriber)
        self._left_out.pop(relation, None)
        if before == period_ms:
            return False
        if period_ms is None:
            self._remove(topic, subscriber)
        elif before is None and self.count >= self.most:
            if len(self._left_out) < MAX_LEFT_OUT:
                self._left_out[relation] = None
            return False
        else:
            self.count += before is None
            self._topics.setdefault(topic, {})[subscriber] = period_ms
            self._subscribers.setdefault(subscriber, set()).add(topic)
        return True

    def finish(self, query: Query) -> Iterator[tuple[Relation, int | None]]:
        """Yield the changes that a complete query implies, for the caller to `set`. Removals come first: they make room."""
        self.follows_all |= query.topic is None and query.subscriber is None
        found: dict[Relation, int | None] = {**query.pages, **query.updates}
        for relation in self._scope(query):
            found.setdefault(relation, None)
        return iter(sorted(found.items(), key=lambda change: change[1] is not None))

    def refused_all(self) -> list[Relation]:
        """Note that the service refuses to list everybody. Return the subscriptions to remove: no query covers them."""
        self.follows_all = False
        return self._scope(Query())

    def _scope(self, query: Query) -> list[Relation]:
        if query.topic is not None:
            known = [(query.topic, subscriber) for subscriber in self._topics.get(query.topic, ())]
            return known + [relation for relation in self._left_out if relation[0] == query.topic]
        if query.subscriber is not None:
            known = [(topic, query.subscriber) for topic in self._subscribers.get(query.subscriber, ())]
            return known + [relation for relation in self._left_out if relation[1] == query.subscriber]
        return [relation for relation in [*dict(self.all()), *self._left_out] if not self._is_configured(relation)]

    def _remove(self, topic: UUri, subscriber: UUri) -> None:
        self.count -= 1
        del self._topics[topic][subscriber]
        if not self._topics[topic]:
            del self._topics[topic]
        self._subscribers[subscriber].discard(topic)
        if not self._subscribers[subscriber]:
            del self._subscribers[subscriber]
