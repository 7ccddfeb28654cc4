"""Custody: the streamer takes responsibility for messages that cannot be delivered at once, and acknowledges their sources.

Messages that have no outcome some milliseconds after they arrived are written to the journal in one transaction, and their
sources are acknowledged once it is committed. Otherwise one flow whose receiver is away would use up its source's window and
block all others. Messages that are confirmed before that never touch the disk. The wait is `FLUSH_S` for a message that
nobody else has, and `LATE_FLUSH_S` for one that its source would retransmit. The same transaction has the batches of
unconfirmed messages, new dead letters, and the deletion of everything that has its outcome. Changes that are not urgent are
collected for up to `LAZY_COMMIT_S`, because a transaction for a few messages costs more than all other work on them.

Without a journal, custody is the process's memory. The daemon logs at the start what a kill would lose.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from streamer.clock import Clock
from streamer.delivery.custody.flush_times import FLUSH_S, FlushTimes, Later
from streamer.delivery.custody.new_letters import NewLetters, WaitingSources
from streamer.delivery.custody.payloads import Payloads
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.custody.unconfirmed_batch import UnconfirmedBatch
from streamer.delivery.lanes.lane import IN_FLIGHT, MAY_HAVE_ARRIVED, SETTLED, Delivery
from streamer.delivery.seen import SeenIds
from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES, Batch, Letter, Row, Segment
from streamer.journal.journal import Journal
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.custody")

LATE_FLUSH_S = 0.05
LAZY_COMMIT_S = 0.5  # how long changes are collected for one transaction while no source waits for it

_TIMERS_S: Final = 0.002  # how early a timer may fire
_PURGE_AT = 1000

_FULL = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the journal is full")
_EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full journal")

_Unstored = tuple[UnconfirmedStore, UnconfirmedBatch]


class Custody:
    """Takes custody of received messages that have no outcome at the flush after their arrival.

    ``memory_bytes`` is how much payload of journaled messages stays in memory as well. ``has_waiting_source`` tells whether
    a source may wait for acknowledgements, at a monotonic time.
    """

    def __init__(
        self,
        later: Later,
        clock: Clock,
        seen: SeenIds,
        journal: Journal | None = None,
        memory_bytes: int = 0,
        has_waiting_source: Callable[[float], bool] = lambda now_s: True,
    ) -> None:
        self._clock = clock
        self._times = FlushTimes(later, clock, self.flush)
        self._seen = seen
        self.journal = journal
        self.number: Callable[[], int] = itertools.count(1).__next__ if journal is None else journal.number
        self.payloads = Payloads(journal, memory_bytes)
        self.late_flush_s = LATE_FLUSH_S
        self.has_waiting_source = has_waiting_source
        self._stores: list[UnconfirmedStore] = []
        self._removed: set[UnconfirmedStore] = set()  # stores of removed endpoints, dropped once nothing in them is unstored
        self._recent: list[Delivery] = []  # for the next transaction
        self._only_here: deque[Delivery] = deque()  # their sources do not retransmit; oldest first
        self._retransmitted: deque[Delivery] = deque()  # their sources do; oldest first
        self._in_transaction: list[Delivery] = []  # in the transaction that the journal is writing
        self._starved: list[Delivery] = []  # the journal has no room for them: unacknowledged
        self._divided: set[Received] = set()  # messages with several deliveries that found no room
        self._purge_at = self._purge_recent_at = _PURGE_AT
        self._may_have_room = False  # the journal may have room for starved messages now
        self._done: Batch = Batch()
        self._letters = NewLetters()
        self.sources = WaitingSources(seen, journal)
        self._is_expedited = False
        self._flushed = asyncio.Event()  # set by every flush that found something to do, and at the end of every commit

    async def until_written(self) -> None:
        """Wait until the journal has every message without an outcome, except for those that it has no room for."""
        self.late_flush_s = 0.0
        self._times.soon()
        while (
            self._recent
            or self._only_here
            or self._retransmitted
            or self._has_to_write
            or self._times.is_soon
            or (self.journal is not None and self.journal.is_busy)
        ):
            self._flushed.clear()
            await self._flushed.wait()

    async def until_flushed(self, within_s: float) -> bool:
        """Wait until a flush finds a message without an outcome or changes are committed; False: not within ``within_s``."""
        self._flushed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._flushed.wait()
        return self._flushed.is_set()

    def unwritten(self) -> list[Delivery]:
        """Return the unacknowledged deliveries without an outcome that are not on disk, also those being written."""
        waiting = (*self._starved, *self._recent, *self._only_here, *self._retransmitted)
        found = [*self._in_transaction, *(each for each in waiting if not each.journaled)]
        return [each for each in found if each.state is not SETTLED and not each.received.is_acknowledged]

    def add_store(self, store: UnconfirmedStore) -> None:
        """Store the batches of one more endpoint. All endpoints together have half of the journal, in equal parts."""
        self._stores.append(store)
        self._divide()

    def remove_store(self, store: UnconfirmedStore) -> None:
        """Remove the store of an endpoint that is gone, once its last batches are stored and their sources acknowledged."""
        self._removed.add(store)
        self._drop_removed()

    def _drop_removed(self) -> None:
        for store in [store for store in self._removed if not store.has_unstored]:
            self._removed.remove(store)
            self._stores.remove(store)
            self._divide()

    def _divide(self) -> None:
        stores = [store for store in self._stores if store.unconfirmed_s]
        for store in stores:
            if self.journal is not None:
                store.max_bytes = self.journal.max_bytes // 2 // len(stores)

    # -- what happens to messages

    def watch(self, delivery: Delivery) -> None:
        """Take custody of a delivery that has entered its lane, unless it has an outcome before its flush."""
        if delivery.received.source_retransmits:
            self._retransmitted.append(delivery)
            self._times.late(self.late_flush_s)
        else:
            self._only_here.append(delivery)
            self._times.soon()

    def sent(self, is_urgent: bool) -> None:
        """Schedule the flush that stores unconfirmed messages. ``is_urgent``: they are many, or nobody else has them."""
        if self._is_expedited:
            self._times.next()
        elif is_urgent or self.journal is None or self.has_waiting_source(self._clock.monotonic_s()):
            self._times.soon()
        else:
            self._times.late(self.late_flush_s)

    def expedite(self) -> None:
        """Store unconfirmed messages in the next cycles of the event loop, because a source waits for acknowledgements."""
        self._is_expedited = True
        if self._has_unstored:
            self._times.next()

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        """Write rows for unconfirmed messages that are in their lane again. The same flush deletes their batch."""
        if self.journal is not None:
            self._times.soon()
            self._recent += deliveries

    def restored(self, delivery: Delivery) -> None:
        """Count a message of an earlier process, which the journal has, and which is in its lane again."""
        delivery.journaled = True
        self.payloads.add(delivery)
        self.payloads.spill_beyond(delivery)

    def end(self, delivery: Delivery) -> None:
        """End the custody of a delivery that has its outcome or is in a batch; to be called before `Delivery.forget`.

        Its row is deleted. If it is one of several deliveries of a message that found no room, the others may have room now.
        """
        if delivery.journaled:
            self.payloads.remove(delivery)
            self._times.late(self.late_flush_s)
            self._done.rows_done.append(delivery.seq)
        elif delivery.received.holders > 1 and delivery.received in self._divided:
            self._divided.discard(delivery.received)
            self._may_have_room = True
            self._times.soon()

    def forget_row(self, number: int) -> None:
        """Delete a row of an earlier process."""
        self._times.late(self.late_flush_s)
        self._done.rows_done.append(number)

    def forget_batch(self, number: int) -> None:
        """Delete a stored batch of unconfirmed messages of which nothing is left."""
        self._times.late(self.late_flush_s)
        self._done.segments_done.append(number)

    def batch_body(self, number: int) -> bytes:
        """Read the body of a stored batch. Raises `CorruptEntryError`, `JournalError`."""
        if self.journal is None:
            raise AssertionError("without a journal, batches keep their bodies")
        return self.journal.segment_body(number)

    def letter(self, letter: Letter, received: Received) -> None:
        """Write the dead letter of ``received``, and acknowledge its source once the letter is on disk."""
        self._times.soon()
        self._letters.add(letter)
        self.sources.add(received, self._clock.monotonic_s())

    def has_many_letters(self, many: int) -> bool:
        """Whether that many dead letters, or many bytes of them, wait for a transaction: see `NewLetters.are_many`."""
        return self._letters.are_many(many)

    @property
    def letters_dropped(self) -> int:
        """How many dead letters were dropped, because too many waited for a transaction."""
        return self._letters.dropped

    def letter_done(self, number: int) -> None:
        """Delete a dead letter that was redriven."""
        self._times.soon()
        self._done.letters_done.append(number)

    def letter_kept(self, number: int) -> None:
        """Keep a dead letter that cannot be redriven now, so that it can be redriven later."""
        self._times.soon()
        self._done.letters_unmarked.append(number)

    # -- flush

    def flush(self) -> None:
        """Write the messages that have no outcome; without a journal, only acknowledge their sources."""
        now_s = self._clock.monotonic_s()
        recent, self._recent = self._recent, []
        _take_older(self._only_here, now_s - min(FLUSH_S, self.late_flush_s), recent)
        _take_older(self._retransmitted, now_s - self.late_flush_s, recent)
        is_due = bool(recent) or self._is_due(now_s)
        if is_due or not self.late_flush_s:  # `until_written` waits for every flush
            self._flushed.set()
        if is_due or not self._has_something:
            self._times.asked_s = None
        self._schedule_flush(now_s, bool(self._only_here))
        if not is_due:
            return
        if self.journal is None:
            for delivery in recent:
                if delivery.state is not SETTLED:
                    delivery.received.take_custody()
            self._stored(self._take_unstored(now_s), False)
            return
        if self.journal.is_busy:
            if len(recent) >= self._purge_recent_at:  # a commit may hang for long
                recent = [delivery for delivery in recent if delivery.state is not SETTLED]
                self._purge_recent_at = max(_PURGE_AT, 2 * len(recent))
            self._recent = recent
            return  # `_committed` schedules the next flush
        if self._starved and self._may_have_room:
            recent, self._starved = self._starved + recent, []
            self._divided.clear()
            self._may_have_room = False
        transaction, self._done = self._done, Batch()
        transaction.letters = self._letters.take()
        self.sources.take()
        batches = self._take_unstored(now_s)
        for _, batch in batches:
            if batch.lanes and batch.body is not None:
                transaction.segments.append(Segment(batch.number, batch.target, batch.body))
        self._in_transaction = self._rows(recent, transaction)
        if transaction.is_empty:
            self._stored(batches, True)
            return
        frees = bool(transaction.rows_done or transaction.segments_done or transaction.letters_done)
        self.journal.write(transaction, partial(self._committed, batches, frees))

    def _take_unstored(self, now_s: float) -> list[_Unstored]:
        batches = [(store, batch) for store in self._stores for batch in store.take_unstored(now_s)]
        if batches:
            self._is_expedited = False
        self._drop_removed()
        return batches

    @property
    def _has_to_write(self) -> bool:
        """Whether letters or deletions wait for the next transaction."""
        return self.journal is not None and (bool(self._letters) or not self._done.is_empty)

    @property
    def _has_unstored(self) -> bool:
        return any(store.has_unstored for store in self._stores)

    @property
    def _has_something(self) -> bool:
        """Whether batches, letters or deletions wait for the next transaction."""
        return self._has_to_write or self._has_unstored

    def _schedule_flush(self, now_s: float, is_soon: bool) -> None:
        """Schedule the next flush."""
        if is_soon:
            self._times.soon()
        elif self._retransmitted:
            self._times.late(self._retransmitted[0].entered_s + self.late_flush_s - now_s)
        elif self._has_something:
            self._times.late(self.late_flush_s)

    def _is_due(self, now_s: float) -> bool:
        """Whether the next transaction is due: something in it is urgent, or has waited for `LAZY_COMMIT_S`."""
        if not self._has_something:
            return bool(self._starved) and self._may_have_room
        asked_s = self._times.asked_s
        return (
            self.journal is None
            or asked_s is None
            or now_s >= asked_s + (LAZY_COMMIT_S if self.late_flush_s else 0.0) - _TIMERS_S
            or bool(self._starved or self._letters)
            or self._done.is_urgent
            or any(store.is_urgent for store in self._stores)
            or (self._has_unstored and (self._is_expedited or self.has_waiting_source(now_s)))
        )

    def _rows(self, recent: list[Delivery], transaction: Batch) -> list[Delivery]:
        """Add rows for the deliveries without an outcome, as far as the journal has room; return those that have a row."""
        journal = self.journal
        assert journal is not None
        room = journal.max_bytes - journal.bytes - transaction.bytes
        written = []
        # If one message of a lane has no room, no later one may be written: after a crash it would be sent first.
        starving = {delivery.lane for delivery in self._starved if delivery.state is not SETTLED}
        for together in _to_write(recent):
            deliveries = [each for each in together if each.state is not SETTLED]
            if not deliveries:  # all were evicted by `_no_room` below
                continue
            received = deliveries[0].received
            is_due = received.is_acknowledged  # its row replaces a batch or letter deleted in this transaction
            short = [each for each in deliveries if each.size + ENTRY_BYTES > room or each.lane in starving]
            body = codec.pack(received.message) if is_due or not short else b""
            size = (len(body) + ENTRY_BYTES) * len(deliveries)
            if not is_due and (short or size > room):
                if len(deliveries) > 1:
                    self._divided.add(received)
                for delivery in deliveries:
                    starving.add(delivery.lane)
                    if delivery not in short:
                        self._starve(delivery)
                    elif delivery.state is not SETTLED:
                        self._no_room(delivery)
                continue
            room -= size
            for delivery in deliveries:
                transaction.rows.append(_row_of(delivery, body))
                delivery.journaled = True
                self.payloads.add(delivery)
            written += deliveries
        return written

    def _no_room(self, delivery: Delivery) -> None:
        """Treat a delivery for which the journal is full as the policy of its route says: it waits, or one is given up."""
        queue = delivery.lane.queue
        if queue.applies_backpressure or delivery.state is IN_FLIGHT or delivery.received.is_acknowledged:
            self._starve(delivery)  # not acknowledged until there is room, or it is delivered
            return
        victim = queue.least(delivery.message.attributes.priority_class)
        if victim is None or victim is delivery:
            queue.owner.evict(delivery, _FULL)
        else:
            self._starve(delivery)
            queue.owner.evict(victim, _EVICTED)

    def _starve(self, delivery: Delivery) -> None:
        starved = self._starved
        starved.append(delivery)
        if len(starved) >= self._purge_at:
            self._starved = starved = [each for each in starved if each.state is not SETTLED]
            self._purge_at = max(_PURGE_AT, 2 * len(starved))

    def _committed(self, batches: Sequence[_Unstored], frees: bool) -> None:
        """Acknowledge the sources of what is in a committed transaction."""
        self._flushed.set()
        written, self._in_transaction = self._in_transaction, []
        # A message with several destinations is safe once it is written for all of them.
        unwritten = {id(delivery.received) for delivery in self._starved if delivery.state is not SETTLED}
        for delivery in written:
            if delivery.state is not SETTLED:
                if id(delivery.received) not in unwritten:
                    delivery.received.take_custody()
                self.payloads.spill_beyond(delivery)
        self.sources.committed(self._clock.monotonic_s())
        self._stored(batches, True)
        self._may_have_room = self._may_have_room or frees
        is_urgent = bool(self._recent or self._only_here or self._letters) or self._done.is_urgent
        self._schedule_flush(self._clock.monotonic_s(), is_urgent or (bool(self._starved) and self._may_have_room))
        if self._has_unstored:
            self.sent(any(store.is_urgent for store in self._stores))

    def _stored(self, batches: Sequence[_Unstored], in_journal: bool) -> None:
        for store, batch in batches:
            received, batch.received = batch.received, []
            store.stored(batch, in_journal)
            for each in received:
                self._seen.release(each)


def _to_write(deliveries: Iterable[Delivery]) -> list[list[Delivery]]:
    """Return the deliveries that need a row, in order; those in one list must be written together or not at all.

    These are all deliveries of a message that its source retransmits. If only some had a row, the message would be a
    duplicate when the source sends it again after a crash, and the others would be lost.
    """
    waiting = [each for each in deliveries if each.state is not SETTLED and not each.journaled]
    return [list(together) for _, together in groupby(waiting, _whole)]


def _whole(delivery: Delivery) -> Received | Delivery:
    return delivery.received if delivery.received.source_retransmits else delivery


def _row_of(delivery: Delivery, body: bytes) -> Row:
    """Return the row of a delivery whose packed message is ``body`` (`codec.pack`)."""
    queue = delivery.lane.queue
    marked = codec.sink_change(delivery.received.message.attributes, delivery.message.attributes)
    may_have_arrived = delivery.history & MAY_HAVE_ARRIVED
    attempts = ~delivery.attempts if may_have_arrived else delivery.attempts
    return Row(delivery.seq, queue.name, queue.source, queue.target, delivery.entered_ms, attempts, marked, body)


def _take_older(waiting: deque[Delivery], than_s: float, into: list[Delivery]) -> None:
    """Move deliveries that entered before ``than_s`` to ``into``, oldest first, and drop settled ones."""
    while waiting:
        oldest = waiting[0]
        if oldest.state is not SETTLED:
            if oldest.entered_s > than_s + _TIMERS_S:
                return
            into.append(oldest)
        waiting.popleft()
