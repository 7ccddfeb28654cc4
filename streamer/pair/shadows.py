"""What the standby hears on networks that both hear, until it is told that the active one has dealt with it.

And the other end of that: the ids of messages with an outcome, which the active one tells.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.observers import OutcomeObserver
from streamer.routing.outcome import Failure
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage

ID_BYTES = 16

_MAX_BYTES = 64 << 20
_MAX_SETTLED = 200_000


class Settled(OutcomeObserver):
    """Collects the ids of messages that have an outcome, or are sent, until they are taken."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def take(self) -> bytes:
        """Return the ids since the last call, one after the other."""
        ids, self._ids = bytes(self._ids), bytearray()
        return ids

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        for delivery in deliveries:
            self._ids += delivery.message.id

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        self._ids += delivery.message.id

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self._ids += message.id

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        self._ids += delivery.message.id
        return b""


class Shadows:
    """Messages by endpoint and id, oldest first, and the ids that are settled; beyond the bounds the oldest are forgotten.

    ``bytes`` is the size of the messages, ``forgotten`` how many were heard and forgotten.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.forgotten = 0
        self._heard: OrderedDict[bytes, tuple[str, Received]] = OrderedDict()
        self._settled: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, endpoint: str, batch: Sequence[Received]) -> None:
        """Keep messages that have arrived, unless they are settled already."""
        for received in batch:
            message = received.message
            if message.id in self._settled or message.id in self._heard:
                continue
            self._heard[message.id] = endpoint, received
            self.bytes += message.size
        while self.bytes > _MAX_BYTES:
            _, (_, oldest) = self._heard.popitem(last=False)
            self.bytes -= oldest.message.size
            self.forgotten += 1

    def settle(self, ids: bytes) -> None:
        """Drop the messages with these ids, also if they are heard later."""
        for start in range(0, len(ids), ID_BYTES):
            each = ids[start : start + ID_BYTES]
            found = self._heard.pop(each, None)
            if found is not None:
                self.bytes -= found[1].message.size
            self._settled[each] = None
        while len(self._settled) > _MAX_SETTLED:
            self._settled.popitem(last=False)

    def settled(self) -> Iterator[bytes]:
        """Yield the ids that are settled."""
        return iter(self._settled)

    def take(self) -> dict[str, list[Received]]:
        """Return what was heard and is not settled, by endpoint, oldest first; nothing is kept."""
        found: dict[str, list[Received]] = {}
        for endpoint, received in self._heard.values():
            found.setdefault(endpoint, []).append(received)
        self._heard.clear()
        self.bytes = 0
        return found
