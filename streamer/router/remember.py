"""Remembered ids: a message that arrives twice (two paths, a redelivery, an echo) is forwarded once.

Bounded in number and time with two generations: the older one is forgotten as a whole. An id is therefore remembered
for at least half of the bound and at most all of it.
"""

from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage, UMessageType


class RememberedIds:
    """Ids of messages, and for those still on their way the `Received` whose fate a second copy shares."""

    def __init__(self, max_ids: int, max_seconds: float, now_s: float) -> None:
        self._half = self._limit = max(1, max_ids // 2)
        self._half_s = max_seconds / 2
        self._turned_s = now_s
        self.young: dict[bytes, Received | None] = {}
        self.old: dict[bytes, Received | None] = {}

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def turn(self, now_s: float) -> None:
        """Forget the older generation if the younger one is full or old enough. Call it once per batch.

        Messages that are still on their way are never forgotten; the queues bound how many those are.
        """
        if len(self.young) >= self._limit or now_s - self._turned_s >= self._half_s:
            on_their_way: dict[bytes, Received | None] = {
                key: received for key, received in self.old.items() if received is not None and received.holders > 0
            }
            self.old, self.young = self.young, on_their_way
            self._turned_s = now_s
            self._limit = len(self.young) + self._half  # else many on their way would have it turn at every call

    def settled(self, key: bytes) -> None:
        """The message has reached its outcome; only its id is worth keeping."""
        if key in self.young:
            self.young[key] = None
        elif key in self.old:
            self.old[key] = None


def key_of(message: UMessage) -> bytes:
    """What is remembered: the id, and for a Publish with a sink authority that as well.

    Streamers send one copy of a Publish per subscribed authority; the copies share their id.
    """
    attributes = message.attributes
    if attributes.sink is not None and attributes.type is UMessageType.PUBLISH:
        return message.id + attributes.sink.authority.encode()
    return message.id
