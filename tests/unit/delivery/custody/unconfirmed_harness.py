"""An `UnconfirmedStore` with a queue to send from, and a keeper that stores its batches when the test says so."""

import itertools
import math
from collections.abc import Sequence

from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.custody.unconfirmed_batch import LaneSummary, UnconfirmedBatch
from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.seen import SeenIds, key_of
from streamer.journal.entries import CorruptEntryError, JournalError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from tests.clock import FakeClock
from tests.unit.delivery.fake_observer import FakeObserver
from tests.unit.delivery.messages import NOW_MS, message, route_queue, topic

UNCONFIRMED_S = 10.0
ABSENT_S = 60.0


class FakeKeeper:
    """A keeper that stores the bodies of batches. ``back``: redelivered messages; ``forgotten``: deleted batches."""

    def __init__(self) -> None:
        self.scheduled = 0
        self.is_urgent = False
        self.back: list[Delivery] = []
        self.forgotten: list[int] = []
        self.bodies: dict[int, bytes] = {}
        self.reads = 0
        self.fails = False
        self._numbers = itertools.count(1_000_000)

    def number(self) -> int:
        return next(self._numbers)

    def sent(self, is_urgent: bool) -> None:
        self.scheduled += 1
        self.is_urgent = is_urgent

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        self.back += deliveries

    def forget_batch(self, number: int) -> None:
        assert number not in self.forgotten
        self.forgotten.append(number)
        self.bodies.pop(number, None)

    def batch_body(self, number: int) -> bytes:
        self.reads += 1
        if self.fails:
            raise JournalError("the disk cannot be read")
        if number not in self.bodies:
            raise CorruptEntryError(f"{number} is not there")
        return self.bodies[number]


class StoreHarness:
    """Sends over one route of a network that does not confirm. ``in_journal``: bodies of stored batches are only there."""

    def __init__(self, in_journal: bool = True, max_bytes: int = 1 << 30, blocks_when_full: bool = True) -> None:
        self.clock = FakeClock()
        self.keeper = FakeKeeper()
        self.seen = SeenIds(1000, 1000, 0)
        self.in_journal = in_journal
        self.store = UnconfirmedStore("cloud", UNCONFIRMED_S, max_bytes, self.keeper, self.seen, blocks_when_full)
        self.observers: list[OutcomeObserver] = [FakeObserver()]
        self.queue = route_queue()
        self.receipts: list[MemoryReceived] = []

    def lane(self, flow: int = 0) -> Lane:
        return self.queue.lane((topic(flow), None))

    def accept(self, *messages: UMessage) -> list[Delivery]:
        """Put messages into their lanes."""
        accepted = []
        for each in messages:
            received = MemoryReceived(each)
            self.receipts.append(received)
            self.seen.remember_pending(key_of(each), received)
            lane = self.queue.lane((each.attributes.source, each.attributes.sink))
            accepted.append(self.queue.push(received, each, lane, self.clock.s, NOW_MS))
        return accepted

    def send_waiting(self, lane: Lane, count: int = 1000) -> list[UMessage]:
        """Send the messages that may be sent from a lane, and pack them as the egress and the settler do."""
        out: list[Delivery] = []
        lane.take(count, self.clock.ms, 0.0, out, [])
        sent = [delivery.message for delivery in out]
        for _ in out:
            lane.succeeded()
        if out:
            self.store.add(out, self.clock.s, self.clock.ms, self.observers)
        for delivery in out:
            self.queue.pack_away(delivery)
            delivery.forget()
        return sent

    def send(self, *messages: UMessage) -> list[UMessage]:
        """Accept messages and send them."""
        for delivery in self.accept(*messages):
            self.send_waiting(delivery.lane)
        return list(messages)

    def send_some(self, count: int, flow: int = 0) -> list[UMessage]:
        return self.send(*(message(flow, payload=b"%d" % number) for number in range(count)))

    def take_unstored(self) -> list[UnconfirmedBatch]:
        """Begin to write what is to be stored."""
        batches = self.store.take_unstored(self.clock.s)
        for batch in batches:
            if self.in_journal and batch.lanes and batch.body is not None:
                self.keeper.bodies[batch.number] = batch.body
        return batches

    def stored(self, batches: list[UnconfirmedBatch]) -> None:
        """Record that batches are on disk."""
        for batch in batches:
            received, batch.received = batch.received, []
            self.store.stored(batch, self.in_journal)
            for each in received:
                self.seen.release(each)

    def flush(self) -> None:
        self.stored(self.take_unstored())

    def confirmed(self, after_s: float = 0, arrived_until_s: float = -math.inf) -> list[tuple[Lane, LaneSummary]]:
        """Return the messages that count as delivered after a time."""
        self.clock.advance(round(after_s * 1000))
        arrived = self.store.take_arrived(self.clock.s, arrived_until_s)
        return arrived + self.store.take_confirmed(self.clock.s, ABSENT_S)

    def confirmed_messages(self, after_s: float = 0) -> int:
        return sum(summary.count for _, summary in self.confirmed(after_s))

    def refill(self, lane: Lane) -> list[UMessage]:
        """Return the messages that wait in a lane after a refill that has lost none."""
        assert self.store.refill(lane) == []
        return [delivery.message for delivery in lane.waiting()]

    @property
    def is_empty(self) -> bool:
        """Whether store, queue and lanes have no unconfirmed messages."""
        counts = (self.store.bytes, self.queue.unconfirmed, *(lane.unconfirmed for lane in self.queue.lanes.values()))
        return not any(counts) and not self.keeper.bodies and not self.store.has_unstored
