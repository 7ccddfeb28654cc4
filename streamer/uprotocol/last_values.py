"""The last Publish of each topic that a route has taken: what uTwin answers with. No event loop, no clock."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri


class LastValue(NamedTuple):
    """A message, when it arrived (Unix milliseconds, and monotonic), and how many had arrived then, with it.

    ``number`` is 0 for messages of an earlier process.
    """

    message: UMessage
    at_ms: int
    at_s: float
    number: int


class LastValues:
    """Topics with their last messages, the one that was published longest ago first.

    ``bytes`` is the size of all messages, which count as in a queue; ``count`` is how many have arrived so far, and
    ``forgotten`` those for which there was no room any more. ``saved`` are the topics that the owner has on disk, and
    ``changed`` those that it has to write again, or to delete there if they are no longer known. A topic that was forgotten
    before it was saved is in neither.
    """

    def __init__(self, max_topics: int, max_bytes: int) -> None:
        self.bytes = 0
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
                self.bytes += message.size
        self._values = earlier | self._values
        self._shrink()

    def put(self, message: UMessage, at_ms: int, at_s: float) -> None:
        """Remember a Publish as the last one of its topic, and forget the oldest ones beyond the bounds."""
        topic = message.attributes.source
        self.count += 1
        values = self._values
        before = values.pop(topic, None)
        if before is not None:
            self.bytes -= before.message.size
        if message.size > self._max_bytes:  # else it would displace all others
            self.forgotten += 1
            self._forgot(topic)
            return
        self.changed[topic] = None
        values[topic] = LastValue(message, at_ms, at_s, self.count)
        self.bytes += message.size
        if self.bytes > self._max_bytes or len(values) > self._max_topics:
            self._shrink()

    def limit(self, max_topics: int, max_bytes: int) -> None:
        """Use other bounds from now on."""
        self._max_topics, self._max_bytes = max_topics, max_bytes
        self._shrink()

    def was_saved(self, topic: UUri, value: LastValue | None) -> None:
        """Record that this value of a topic is on disk now; None: nothing of the topic is."""
        if value is None:
            self.saved.discard(topic)
        else:
            self.saved.add(topic)
        if self._values.get(topic) is value:
            self.changed.pop(topic, None)
        else:  # it was published again, or forgotten, while it was being written
            self.changed[topic] = None

    def _shrink(self) -> None:
        while self.bytes > self._max_bytes or len(self._values) > self._max_topics:
            topic = next(iter(self._values))
            self.bytes -= self._values.pop(topic).message.size
            self.forgotten += 1
            self._forgot(topic)

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
