"""A `Custody` with a queue or two, and a journal whose commits are done when the test says so."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamer.delivery.custody.custody import Custody
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.seen import SeenIds, key_of
from streamer.delivery.stats import RouteStats
from streamer.journal.journal import Journal
from streamer.transports.base import Received
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from tests.clock import FakeClock
from tests.unit.delivery.messages import FakeOwner, queue_policy
from tests.unit.journal.harness import BOUNDS, PROMPT_S, ManualLoop

ROOMY = 1 << 30


class FleetingReceived(MemoryReceived):
    """A message whose source does not retransmit it."""

    source_retransmits = False


class CustodyHarness:
    """``due`` are the scheduled flushes, each with the seconds until then, in the order of their times."""

    def __init__(self, journal: Journal | None = None, loop: ManualLoop | None = None, memory_bytes: int = ROOMY) -> None:
        self.clock = FakeClock()
        self.seen = SeenIds(1000, 1000, 0)
        self._timers: list[tuple[float, float, Callable[[], None]]] = []  # when, and after how many seconds
        self.custody = Custody(self._later, self.clock, self.seen, journal, memory_bytes)
        self.owner = FakeOwner()
        self.queue = self.new_queue("up")
        self.store = UnconfirmedStore("cloud", 10.0, ROOMY, self.custody, self.seen)
        self.custody.add_store(self.store)
        self._journal = journal
        self._loop = loop

    @property
    def journal(self) -> Journal:
        assert self._journal is not None
        return self._journal

    def new_queue(self, name: str, **keys: object) -> RouteQueue:
        policy = queue_policy(**keys)
        return RouteQueue(name, "vehicle", "cloud", policy, RouteStats(), self.owner, self.custody.number, True)

    def accept(
        self, message: UMessage, queue: RouteQueue | None = None, received: Received | None = None, watch: bool = True
    ) -> Delivery:
        """Put a message into its lane. ``received``: by default one whose source does not retransmit."""
        queue = queue or self.queue
        if received is None:
            received = FleetingReceived(message)
            self.seen.remember_pending(key_of(message), received)
        lane = queue.lane((message.attributes.source, message.attributes.sink))
        delivery = queue.push(received, message, lane, self.clock.s, self.clock.ms)
        if watch:
            self.custody.watch(delivery)
        return delivery

    def settle(self, delivery: Delivery) -> None:
        """Settle a waiting message as the settler does."""
        delivery.lane.drop(delivery)
        delivery.lane.queue.leave(delivery)
        self.custody.end(delivery)
        self.seen.release(delivery.received)
        delivery.forget()

    def send_unconfirmed(self, lane: Lane) -> None:
        """Send all messages of a lane over a network that does not confirm, as the settler does."""
        sent: list[Delivery] = []
        lane.take(1000, self.clock.ms, 0.0, sent, [])
        self.store.add(sent, self.clock.s, self.clock.ms, ())
        for delivery in sent:
            lane.succeeded()
            lane.queue.pack_away(delivery)
            self.custody.end(delivery)
            delivery.forget()

    def _later(self, after_s: float, call: Callable[[], None]) -> None:
        self._timers.append((self.clock.monotonic_s() + after_s, after_s, call))

    @property
    def due(self) -> list[tuple[float, Callable[[], None]]]:
        return [(after_s, call) for _, after_s, call in sorted(self._timers, key=lambda timer: timer[0])]

    def flush(self) -> None:
        """Advance the clock to the next scheduled flush, and do it."""
        timer = min(self._timers, key=lambda timer: timer[0])
        self._timers.remove(timer)
        at_s, _, call = timer
        self.clock.advance(max(0, round((at_s - self.clock.monotonic_s()) * 1000)))
        call()

    def commit(self) -> None:
        """Commit the transaction that is being written."""
        assert self._loop is not None
        self._loop.run_until(lambda: not self.journal.is_busy)

    def write(self) -> None:
        """Flush and commit until nothing is due."""
        while self.due:
            self.flush()
            if self.journal.is_busy:
                self.commit()

    def in_file(self, table: str, column: str = "number") -> list[object]:
        """Return a column of a table of the journal, in the order of the numbers."""
        connection = sqlite3.connect(self.journal.path)
        try:
            return [value for (value,) in connection.execute(f"SELECT {column} FROM {table} ORDER BY number")]
        finally:
            connection.close()


@contextmanager
def journaled(path: Path, max_bytes: int = ROOMY, memory_bytes: int = ROOMY) -> Iterator[CustodyHarness]:
    """A custody with a journal at ``path``."""
    loop = ManualLoop()
    journal = Journal(path, max_bytes, BOUNDS, loop.post, retry_s=PROMPT_S, idle_s=PROMPT_S)
    opened: list[str] = []
    journal.start(lambda: opened.append("opened"))
    try:
        loop.run_until(lambda: bool(opened))
        yield CustodyHarness(journal, loop, memory_bytes)
    finally:
        assert journal.stop(10)


def acknowledged(received: Received) -> bool:
    assert isinstance(received, MemoryReceived)
    return received.acknowledged
