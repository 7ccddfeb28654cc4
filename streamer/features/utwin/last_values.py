"""The last Publish of each topic that a route has taken: what uTwin answers with. No event loop, no clock.

The law of this file:
- Beyond the bounds, that authority forgets a topic which has the most, the one that was published longest ago; of several
  with as much, the one with the oldest. So nobody forgets because of an authority that has more than itself.
- Authorities that no endpoint lists (strangers) count as one, because anybody can invent more of them. Among themselves the
  same rule holds.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from typing import NamedTuple, Protocol

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri

_SPARE_PART = 100
"""A full store makes room for this part of its bound at once."""


class LastValue(NamedTuple):
    """A message, when it arrived (Unix milliseconds, and monotonic), and how many had arrived then, with it.

    ``number`` is 0 for messages of an earlier process.
    """

    message: UMessage
    at_ms: int
    at_s: float
    number: int


class Signal(Protocol):
    """Wakes whoever waits for it, as `asyncio.Event` does."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    async def wait(self) -> object: ...


class _Share:
    """The share of one authority: its topics, the one that was published longest ago first, and their bytes."""

    __slots__ = ("bytes", "topics")

    def __init__(self) -> None:
        self.bytes = 0
        self.topics: dict[UUri, None] = {}


_Size = Callable[[_Share], int]


class LastValues:
    """Topics with their last messages, the one that was published longest ago first.

    ``bytes`` is the size of all messages, which count as in a queue; ``count`` is how many have arrived so far, and
    ``forgotten`` those for which there was no room any more. ``saved`` are the topics that the owner has on disk, and
    ``changed`` those that it has to write again, or to delete there if they are no longer known. A topic that was forgotten
    before it was saved is in neither. ``outdated`` are the saved topics that were published again: what is on disk is not
    the last message. ``has_outdated`` is set whenever there is one more.
    """

    def __init__(self, max_topics: int, max_bytes: int, listed: Set[str], has_outdated: Signal) -> None:
        """``listed``: the authorities that an endpoint lists."""
        self.bytes = 0
        self.outdated: dict[UUri, None] = {}
        self.has_outdated = has_outdated
        self._listed = listed
        self._shares: dict[str, _Share] = {}
        self.forgotten = 0
        self.count = 0
        self.changed: dict[UUri, None] = {}
        self.saved: set[UUri] = set()
        self._max_topics = max_topics
        self._max_bytes = max_bytes
        self._values: dict[UUri, LastValue] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, topic: UUri) -> LastValue | None:
        """Return the last value of a topic, whether or not it has expired."""
        return self._values.get(topic)

    def listed(self) -> list[tuple[UUri, LastValue]]:
        """Return all topics with their last values, the one that was published longest ago first."""
        return list(self._values.items())

    def since(self, number: int) -> Iterator[tuple[UUri, LastValue]]:
        """Yield the topics whose last message came after so many had arrived, the one that was published last first."""
        for topic, value in reversed(self._values.items()):
            if value.number <= number:
                return
            yield topic, value

    def restore(self, found: Iterable[tuple[UMessage, int]], now_ms: int, now_s: float) -> None:
        """Take messages of an earlier process, with their times of arrival, the one that was published longest ago first.

        They are on disk, and older than all that have arrived since. A time of arrival in the future was written by a clock
        that has been set back since: such a message counts as arrived now, also after the next restart.
        """
        earlier: dict[UUri, LastValue] = {}
        for message, at_ms in found:
            topic = message.attributes.source
            self.saved.add(topic)
            if message.size > self._max_bytes:
                self.forgotten += 1
                self._forgot(topic)
            elif topic not in self._values:
                if at_ms > now_ms:
                    at_ms = now_ms
                    self.changed[topic] = None
                earlier[topic] = LastValue(message, at_ms, now_s - (now_ms - at_ms) / 1000, 0)
            else:
                self._outdate(topic)
        arrived, self._values = self._values, {}
        self.bytes = 0
        self._shares.clear()
        for topic, value in (earlier | arrived).items():
            self._add(topic, value)
        self._shrink()

    def put(self, message: UMessage, at_ms: int, at_s: float) -> None:
        """Remember a Publish as the last one of its topic, and forget the oldest ones beyond the bounds."""
        topic = message.attributes.source
        self.count += 1
        if topic in self._values:
            self._remove(topic)
        if topic in self.saved:
            self._outdate(topic)
        if message.size > self._max_bytes:  # else it would displace all others
            self.forgotten += 1
            self._forgot(topic)
            return
        self.changed[topic] = None
        self._add(topic, LastValue(message, at_ms, at_s, self.count))
        if self.bytes > self._max_bytes or len(self._values) > self._max_topics:
            self._shrink()

    def limit(self, max_topics: int, max_bytes: int, listed: Set[str]) -> None:
        """Use other bounds, and other listed authorities, from now on."""
        self._max_topics, self._max_bytes, self._listed = max_topics, max_bytes, listed
        self._shrink()

    def was_saved(self, topic: UUri, value: LastValue | None) -> None:
        """Record that this value of a topic is on disk now; None: nothing of the topic is."""
        if value is None:
            self.saved.discard(topic)
        else:
            self.saved.add(topic)
        if self._values.get(topic) is value:
            self.changed.pop(topic, None)
            return
        self.changed[topic] = None  # it was published again, or forgotten, while it was being written
        if value is not None:
            self._outdate(topic)

    def was_deleted(self, topic: UUri) -> None:
        """Record that nothing of an outdated topic is on disk any more."""
        self.outdated.pop(topic, None)
        self.saved.discard(topic)

    def _outdate(self, topic: UUri) -> None:
        if topic not in self.outdated:
            self.outdated[topic] = None
            self.has_outdated.set()

    def _add(self, topic: UUri, value: LastValue) -> None:
        self._values[topic] = value
        share = self._shares.get(topic.authority)
        if share is None:
            share = self._shares[topic.authority] = _Share()
        share.topics[topic] = None
        share.bytes += value.message.size
        self.bytes += value.message.size

    def _remove(self, topic: UUri) -> None:
        size = self._values.pop(topic).message.size
        share = self._shares[topic.authority]
        del share.topics[topic]
        share.bytes -= size
        self.bytes -= size
        if not share.topics:
            del self._shares[topic.authority]

    def _shrink(self) -> None:
        """Forget topics beyond the bounds, and some more, so that this is not done for each message of a full store."""
        if len(self._values) > self._max_topics:
            excess = len(self._values) - self._max_topics + self._max_topics // _SPARE_PART
            self._forget(excess, lambda share: len(share.topics), lambda topic: 1)
        if self.bytes > self._max_bytes:
            values = self._values
            self._forget(
                self.bytes - self._max_bytes + self._max_bytes // _SPARE_PART,
                lambda share: share.bytes,
                lambda topic: values[topic].message.size,
            )

    def _forget(self, excess: int, size_of: _Size, size: Callable[[UUri], int]) -> None:
        """Forget topics until they make up ``excess``, by the law of this file."""
        listed: list[tuple[int, int, str]] = []
        strangers: list[tuple[int, int, str]] = []
        of_strangers = 0
        for authority, share in self._shares.items():
            if authority in self._listed:
                listed.append(self._rank(authority, size_of))
            else:
                strangers.append(self._rank(authority, size_of))
                of_strangers += size_of(share)
        heapq.heapify(listed)
        heapq.heapify(strangers)
        while excess > 0:
            is_stranger = not listed or (bool(strangers) and of_strangers >= -listed[0][0])
            ranks = strangers if is_stranger else listed
            authority = ranks[0][2]
            topic = next(iter(self._shares[authority].topics))
            freed = size(topic)
            excess -= freed
            of_strangers -= freed if is_stranger else 0
            self._remove(topic)
            self.forgotten += 1
            self._forgot(topic)
            if authority in self._shares:
                heapq.heapreplace(ranks, self._rank(authority, size_of))
            else:
                heapq.heappop(ranks)

    def _rank(self, authority: str, size_of: _Size) -> tuple[int, int, str]:
        share = self._shares[authority]
        return -size_of(share), self._values[next(iter(share.topics))].number, authority

    def _forgot(self, topic: UUri) -> None:
        if topic in self.saved:
            self.changed[topic] = None
        else:
            self.changed.pop(topic, None)


def without_token(message: UMessage) -> UMessage:
    """Return the message of a topic as its publisher sent it: to nobody in particular, and without its token."""
    attributes = message.attributes
    if attributes.token is None and attributes.sink is None:
        return message
    return UMessage(message.id, replace(attributes, token=None, sink=None), message.payload)
