"""Messages that the standby overhears on shared networks, until the active streamer says that it has settled them.

The active streamer collects keys of settled messages (`Settled`), the standby drops those (`Shadows`); see `delivery.seen`.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence

from streamer.delivery.lanes.lane import Delivery
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.seen import key_of
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import pair_v1_pb2 as pb

ID_BYTES = 16
"""The length of a message's id, with which its key begins."""

_SENT_S = 5.0
_AGAIN_S = 15.0  # longer than two can live without a link, one active and one on standby
_MAX_BYTES = 64 << 20
_MAX_SETTLED = 200_000


_Flows = dict[bytes, bytearray]
"""Ids by what their keys have after the id."""


class Settled(OutcomeObserver):
    """Collects the keys of messages that the standby need not keep any more, until they are taken.

    Two kinds do not count as seen: messages that were never queued, because anybody can send one with the id of another; and
    messages that were sent and are not confirmed, which come again if this streamer dies. These are taken after a while,
    when they are confirmed, or on both disks.

    Keys that were sent without a link, or went down with one, are sent `again` on the next link: the standby may overhear
    messages before that, and would keep them.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[float, pb.Settled]] = deque()
        self._ids: _Flows = {}
        self._rejected: _Flows = {}
        self._sent_now: _Flows = {}
        self._sent: deque[tuple[float, _Flows]] = deque()

    def take(self, now_s: float) -> pb.Settled | None:
        """Return the keys since the last call; None if there are none. ``now_s`` is monotonic."""
        found = pb.Settled()
        _tell(found, self._ids, counts_as_seen=True)
        _tell(found, self._rejected)
        self._ids, self._rejected = {}, {}
        if self._sent_now:
            self._sent.append((now_s, self._sent_now))
            self._sent_now = {}
        while self._sent and self._sent[0][0] < now_s - _SENT_S:
            _tell(found, self._sent.popleft()[1])
        if not found.flows:
            return None
        self._told.append((now_s, found))
        self._forget(now_s)
        return found

    def again(self, now_s: float) -> list[pb.Settled]:
        """Return the keys that were taken lately, for a new link."""
        self._forget(now_s)
        return [found for _, found in self._told]

    def _forget(self, now_s: float) -> None:
        while self._told and self._told[0][0] < now_s - _AGAIN_S:
            self._told.popleft()

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        for delivery in deliveries:
            self._has_outcome(delivery)

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        self._has_outcome(delivery)

    def _has_outcome(self, delivery: Delivery) -> None:
        """Settle the message of a delivery with its last outcome: its other deliveries may not be on disk before."""
        if delivery.received.holders <= 1:
            _add(self._ids, delivery.received.key)

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        if failure.outcome is not Outcome.DUPLICATE:  # the first one may have none yet
            _add(self._rejected, key_of(message))

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        _add(self._sent_now, delivery.received.key)
        return b""


def _tell(found: pb.Settled, flows: _Flows, counts_as_seen: bool = False) -> None:
    for tail, ids in flows.items():
        found.flows.add(tail=tail, ids=bytes(ids), counts_as_seen=counts_as_seen)


def _add(flows: _Flows, key: bytes) -> None:
    """Add a key; an empty one is that of a message of this streamer's own."""
    if not key:
        return
    tail = key[ID_BYTES:]
    ids = flows.get(tail)
    if ids is None:
        flows[tail] = bytearray(key[:ID_BYTES])
    else:
        ids += key[:ID_BYTES]


class Shadows:
    """Messages by endpoint and key, oldest first, and the keys that are settled; beyond the bounds the oldest are forgotten.

    ``bytes`` is the size of the messages; ``forgotten`` counts those that were dropped for a bound.
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
            key = key_of(message)
            if key not in self._settled and key not in self._heard:
                self._heard[key] = endpoint, received
                self.bytes += message.size
        while self.bytes > _MAX_BYTES:
            _, (_, oldest) = self._heard.popitem(last=False)
            self.bytes -= oldest.message.size
            self.forgotten += 1

    def drop(self, messages: Iterable[UMessage]) -> None:
        """Drop messages that wait in the journal."""
        for message in messages:
            self._drop(key_of(message))

    def settle(self, settled: pb.Settled) -> None:
        """Drop the messages with these keys, also if they are heard later."""
        for flow in settled.flows:
            for start in range(0, len(flow.ids), ID_BYTES):
                key = flow.ids[start : start + ID_BYTES] + flow.tail
                self._drop(key)
                if flow.counts_as_seen:
                    self._settled[key] = None
        while len(self._settled) > _MAX_SETTLED:
            self._settled.popitem(last=False)

    def settled(self) -> Iterator[bytes]:
        """Yield the keys that are settled, oldest first."""
        return iter(self._settled)

    def take(self) -> dict[str, list[Received]]:
        """Remove and return the overheard messages that are not settled, by endpoint, oldest first."""
        found: dict[str, list[Received]] = {}
        for endpoint, received in self._heard.values():
            found.setdefault(endpoint, []).append(received)
        self._heard.clear()
        self.bytes = 0
        return found

    def _drop(self, key: bytes) -> None:
        found = self._heard.pop(key, None)
        if found is not None:
            self.bytes -= found[1].message.size
