"""The backlog of an ingress: received messages that wait outside a full queue until it has room.

The law of this file:
- A message gets its position when it first has to wait. Messages for one queue enter it in the order of their positions, and
  nothing newer enters that queue while something older waits for it, but for what takes the place of an older message of its
  topic there (`TopicPolicy`).
- A message waits for one queue at a time: the first of its routes that has no room. If it then has to wait for another, it
  keeps its position.
- If a copy of a waiting message arrives and the source retransmits (MQTT), the copy replaces the first one, because the
  source has sent it again after a reconnect. Other copies get the outcome of the first (`ingress`).

No event loop, no clock, no logger in here.
"""

import heapq
from collections.abc import Callable, Iterable

from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK
from streamer.delivery.lanes.queue import RouteQueue
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.uri import UUri

_STALE_ENTRIES = 64  # a heap may have so many entries of messages that no longer wait, and as many as wait


class _Waiting:
    __slots__ = ("position", "queue", "received", "size", "source")

    def __init__(self, received: Received, queue: RouteQueue, position: int) -> None:
        self.queue = queue
        self.position = position
        self.source = received.message.attributes.source
        self.take_place(received)

    def take_place(self, received: Received) -> None:
        self.received = received
        self.size = received.message.size


class Backlog:
    """Messages by key (as in `seen`), each with the queue that it waits for. ``bytes`` is their size in memory."""

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: dict[bytes, _Waiting] = {}
        self._by_queue: dict[RouteQueue, list[tuple[int, bytes]]] = {}  # heaps by position, which may have stale entries
        self._by_source: dict[UUri, dict[bytes, None]] = {}
        self._entering: dict[bytes, int] = {}  # positions of the messages taken last, which may have to wait again
        self._positions = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def get(self, key: bytes) -> Received | None:
        """Return the message that waits under this key, or None."""
        waiting = self._waiting.get(key)
        return None if waiting is None else waiting.received

    def has_any_of(self, source: UUri) -> bool:
        """Whether a message from a source waits."""
        return source in self._by_source

    def is_entering(self, key: bytes) -> bool:
        """Whether the message was among those taken last: if it has to wait again, it keeps its position."""
        return key in self._entering

    def queues(self) -> list[RouteQueue]:
        """Return the queues that messages wait for."""
        return [queue for queue in list(self._by_queue) if self._oldest(queue) is not None]

    def add(self, key: bytes, received: Received, queue: RouteQueue) -> Received | None:
        """Add a message that waits for a queue. If a copy of it waits already, replace that copy and return it."""
        before = self._waiting.get(key)
        if before is not None:
            earlier = before.received
            self.bytes -= before.size
            before.take_place(received)
            self.bytes += before.size
            return earlier
        position = self._entering.get(key)
        if position is None:
            self._positions += 1
            position = self._positions
        waiting = self._waiting[key] = _Waiting(received, queue, position)
        self.bytes += waiting.size
        heap = self._by_queue.setdefault(queue, [])
        heapq.heappush(heap, (position, key))
        if len(heap) > 2 * len(self._waiting) + _STALE_ENTRIES:  # stale entries behind a message that waits long
            heap[:] = sorted({entry for entry in heap if self._is_there(queue, *entry)})
        self._by_source.setdefault(waiting.source, {})[key] = None
        return None

    def is_behind(self, key: bytes, queue: RouteQueue) -> bool:
        """Whether a message has to wait because an older message, or a copy of itself, waits for this queue already."""
        if key in self._waiting:
            return True
        oldest = self._oldest(queue)
        position = self._entering.get(key)
        return oldest is not None and (position is None or oldest < position)

    def take(self, queue: RouteQueue) -> list[Received]:
        """Take out, in order, the messages that a queue has room for now, `EXPIRED_MESSAGES_PER_TICK` at most.

        If the queue is empty, it takes at least one. The messages keep their positions until the next call, in case they
        have to wait for another queue.
        """
        self._entering.clear()
        taken: list[Received] = []
        size = 0
        while len(taken) < EXPIRED_MESSAGES_PER_TICK and self._oldest(queue) is not None:
            key = self._by_queue[queue][0][1]
            waiting = self._waiting[key]
            size += waiting.size
            is_alone = not taken and not queue.messages
            if queue.applies_backpressure and not is_alone and not queue.fits(size, len(taken) + 1):
                break
            heapq.heappop(self._by_queue[queue])
            self._entering[key] = waiting.position
            taken.append(self._pop(key).received)
        return taken

    def take_all(self) -> list[Received]:
        """Take out all messages, in order. As with `take`, they keep their positions until the next call."""
        return self._take_keys(list(self._waiting))

    def take_if(self, sources: Iterable[UUri] | None, condition: Callable[[Attributes, RouteQueue], bool]) -> list[Received]:
        """As `take_all`, but only messages from ``sources`` (None: all) whose attributes and queue meet the condition."""
        waiting, chosen = self._waiting, []
        for source in self._by_source if sources is None else sources:
            for key in self._by_source.get(source, ()):
                if condition(waiting[key].received.message.attributes, waiting[key].queue):
                    chosen.append(key)
        return self._take_keys(chosen)

    def _take_keys(self, keys: list[bytes]) -> list[Received]:
        self._entering = {key: self._waiting[key].position for key in keys}
        return [self._pop(key).received for key in sorted(keys, key=self._entering.__getitem__)]

    def remove(self, condition: Callable[[Received], bool], most: int | None = None) -> list[tuple[Received, RouteQueue]]:
        """Take out the messages that meet a condition, ``most`` of them at most; return them in order, with their queues."""
        chosen = [(waiting.position, key) for key, waiting in self._waiting.items() if condition(waiting.received)]
        removed = [self._pop(key) for _, key in sorted(chosen)[:most]]
        return [(waiting.received, waiting.queue) for waiting in removed]

    def _pop(self, key: bytes) -> _Waiting:
        waiting = self._waiting.pop(key)
        self.bytes -= waiting.size
        keys = self._by_source[waiting.source]
        del keys[key]
        if not keys:
            del self._by_source[waiting.source]
        return waiting

    def _oldest(self, queue: RouteQueue) -> int | None:
        """Return the lowest position of a message that waits for a queue."""
        heap = self._by_queue.get(queue)
        if heap is None:
            return None
        while heap:
            position, key = heap[0]
            if self._is_there(queue, position, key):
                return position
            heapq.heappop(heap)
        del self._by_queue[queue]
        return None

    def _is_there(self, queue: RouteQueue, position: int, key: bytes) -> bool:
        waiting = self._waiting.get(key)
        return waiting is not None and waiting.position == position and waiting.queue is queue
