"""Custody: the streamer keeps a message that cannot be delivered at once, and acknowledges it to its source.

Messages that have no outcome some milliseconds after they arrived are written to the journal in one transaction, and their
sources are acknowledged once it is committed. Otherwise one flow whose receiver is away would use up its source's window and
block all others. Messages that are confirmed before that never touch the disk. The wait is `FLUSH_S` for a message that only
we have, and `PATIENCE_S` for one that its source keeps until we acknowledge it. The same transaction has the batches of
unconfirmed messages, new dead letters, and the deletion of everything that has its outcome. Changes that are not urgent are
collected for up to `COMPANY` times `PATIENCE_S`, because a transaction for a few messages costs more than all other work on
them.

Without a journal, custody is the process's memory. The daemon logs at the start what a kill would lose.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from streamer.clock import Clock
from streamer.delivery.dedup import SeenIds
from streamer.delivery.flush_times import FLUSH_S, FlushTimes, Later
from streamer.delivery.lane import IN_FLIGHT, SETTLED, Delivery
from streamer.delivery.new_letters import NewLetters, WaitingSources
from streamer.delivery.payloads import Payloads
from streamer.delivery.rows import TIMERS_S, row_of, take_older, to_write
from streamer.delivery.unconfirmed import UnconfirmedStore
from streamer.delivery.unconfirmed_batch import UnconfirmedBatch
from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES, Batch, Letter, Segment
from streamer.journal.journal import Journal
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.custody")

PATIENCE_S = 0.05
COMPANY = 10  # times as long a transaction waits for more, if no source waits for it

_PURGE_AT = 1000

_FULL = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the journal is full")
_EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full journal")

_Unstored = tuple[UnconfirmedStore, UnconfirmedBatch]


class Custody:
    """Takes received messages that have no outcome yet at the flush after their arrival.

    ``memory_bytes`` is how much payload of journaled messages stays in memory as well.
    """

    def __init__(
        self, later: Later, clock: Clock, seen: SeenIds, journal: Journal | None = None, memory_bytes: int = 0
    ) -> None:
        self._clock = clock
        self._times = FlushTimes(later, clock, self.flush)
        self._seen = seen
        self.journal = journal
        self.number: Callable[[], int] = itertools.count(1).__next__ if journal is None else journal.number
        self.payloads = Payloads(journal, memory_bytes)
        self.patience_s = PATIENCE_S
        self.is_awaited: Callable[[float], bool] = lambda now_s: True  # may a source be waiting for us? (monotonic time)
        self._stores: list[UnconfirmedStore] = []
        self._removed: set[UnconfirmedStore] = set()  # once nothing in them is unstored
        self._recent: list[Delivery] = []  # for the next transaction
        self._ours: deque[Delivery] = deque()  # only we have them; oldest first
        self._kept_at_source: deque[Delivery] = deque()  # oldest first
        self._in_hand: list[Delivery] = []  # in the transaction that the journal is writing
        self._starved: list[Delivery] = []  # the journal has no room for them: unacknowledged
        self._divided: set[Received] = set()  # those of several deliveries for which there was no room
        self._purge_at = self._purge_recent_at = _PURGE_AT
        self._room_came = False  # something was deleted from the journal since
        self._done: Batch = Batch()
        self._letters = NewLetters()
        self.sources = WaitingSources(seen, journal)
        self._is_hurried = False
        self._turned = asyncio.Event()  # set by every flush that found something to do, and at the end of every commit

    async def until_written(self) -> None:
        """Wait until everything without an outcome is in the journal, except for what it has no room for."""
        self.patience_s = 0.0
        self._times.soon()
        while (
            self._recent
            or self._ours
            or self._kept_at_source
            or self._has_to_write
            or self._times.is_soon
            or (self.journal is not None and self.journal.is_busy)
        ):
            self._turned.clear()
            await self._turned.wait()

    async def until_turned(self, within_s: float) -> bool:
        """Wait until a message is not delivered at once, or changes are written; False: neither has happened yet."""
        self._turned.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._turned.wait()
        return self._turned.is_set()

    def unwritten(self) -> list[Delivery]:
        """What has no outcome and is not in the journal, also what it has in hand and cannot write."""
        waiting = (*self._starved, *self._recent, *self._ours, *self._kept_at_source)
        found = [*self._in_hand, *(each for each in waiting if not each.journaled)]
        return [each for each in found if each.state is not SETTLED and not each.received.is_acknowledged]

    def add_store(self, store: UnconfirmedStore) -> None:
        """Store the batches of one more endpoint. In the journal all of them have half of its bytes, in equal parts."""
        self._stores.append(store)
        self._divide()

    def remove_store(self, store: UnconfirmedStore) -> None:
        """The endpoint is gone, and all that was sent has its outcome. Sources that were not told so yet will be."""
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
        """A message has entered its lane."""
        if delivery.received.source_retransmits:
            self._kept_at_source.append(delivery)
            self._times.late(self.patience_s)
        else:
            self._ours.append(delivery)
            self._times.soon()

    def sent(self, is_urgent: bool) -> None:
        """Unconfirmed messages wait to be stored. ``is_urgent``: they are many, or nobody else has them."""
        if self._is_hurried:
            self._times.next()
        elif is_urgent or self.journal is None or self.is_awaited(self._clock.monotonic_s()):
            self._times.soon()
        else:
            self._times.late(self.patience_s)

    def hurry(self) -> None:
        """A source waits for acknowledgements, or is about to: what it has sent is stored in the next turns of the loop."""
        self._is_hurried = True
        if self._has_unstored:
            self._times.next()

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        """Unconfirmed messages are in their lane again; the batch that held them is given up with the next flush."""
        if self.journal is not None:
            self._times.soon()
            self._recent += deliveries

    def restored(self, delivery: Delivery) -> None:
        """A message of an earlier process is in its lane: the journal has it."""
        delivery.journaled = True
        self.payloads.add(delivery)
        self.payloads.spill_beyond(delivery)

    def settled(self, delivery: Delivery) -> None:
        """A message has its outcome, or is in a batch. Called before `Delivery.forget`.

        If it has a row, that can go. If it is one of several deliveries for which there was no room, there may be some now
        for the others.
        """
        if delivery.journaled:
            self.payloads.remove(delivery)
            self._times.late(self.patience_s)
            self._done.rows_done.append(delivery.seq)
        elif delivery.received.holders > 1 and delivery.received in self._divided:
            self._divided.discard(delivery.received)
            self._room_came = True
            self._times.soon()

    def forget_row(self, number: int) -> None:
        """A row of an earlier process that can go."""
        self._times.late(self.patience_s)
        self._done.rows_done.append(number)

    def forget_batch(self, number: int) -> None:
        """A stored batch of unconfirmed messages of which nothing is left."""
        self._times.late(self.patience_s)
        self._done.segments_done.append(number)

    def batch_body(self, number: int) -> bytes:
        """Read the body of a stored batch. Raises `CorruptEntryError`, `JournalError`."""
        if self.journal is None:
            raise AssertionError("without a journal, batches keep their bodies")
        return self.journal.segment_body(number)

    def letter(self, letter: Letter, received: Received) -> None:
        """Keep the dead letter of ``received``, whose source is acknowledged when it is on disk."""
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
        """A dead letter was redriven: delete it."""
        self._times.soon()
        self._done.letters_done.append(number)

    def letter_kept(self, number: int) -> None:
        """A dead letter cannot be redriven now: it stays, and can be redriven later."""
        self._times.soon()
        self._done.letters_unmarked.append(number)

    # -- flush

    def flush(self) -> None:
        """Write what has no outcome yet; without a journal, only acknowledge it."""
        now_s = self._clock.monotonic_s()
        recent, self._recent = self._recent, []
        take_older(self._ours, now_s - min(FLUSH_S, self.patience_s), recent)
        take_older(self._kept_at_source, now_s - self.patience_s, recent)
        is_due = bool(recent) or self._is_due(now_s)
        if is_due or not self.patience_s:  # without patience `until_written` waits, also for this
            self._turned.set()
        if is_due or not self._has_something:
            self._times.asked_s = None
        self._look_after(now_s, bool(self._ours))
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
            return  # `_committed` comes back to it
        if self._starved and self._room_came:
            recent, self._starved = self._starved + recent, []
            self._divided.clear()
            self._room_came = False
        transaction, self._done = self._done, Batch()
        transaction.letters = self._letters.take()
        self.sources.take()
        batches = self._take_unstored(now_s)
        for _, batch in batches:
            if batch.shares and batch.body is not None:
                transaction.segments.append(Segment(batch.number, batch.target, batch.body))
        self._in_hand = self._rows(recent, transaction)
        if transaction.is_empty:
            self._stored(batches, True)
            return
        frees = bool(transaction.rows_done or transaction.segments_done or transaction.letters_done)
        self.journal.write(transaction, partial(self._committed, batches, frees))

    def _take_unstored(self, now_s: float) -> list[_Unstored]:
        batches = [(store, batch) for store in self._stores for batch in store.take_unstored(now_s)]
        if batches:
            self._is_hurried = False
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
        """Whether anything waits for the next transaction, besides messages without an outcome."""
        return self._has_to_write or self._has_unstored

    def _look_after(self, now_s: float, is_soon: bool) -> None:
        """Have the next flush when it is needed."""
        if is_soon:
            self._times.soon()
        elif self._kept_at_source:
            self._times.late(self._kept_at_source[0].entered_s + self.patience_s - now_s)
        elif self._has_something:
            self._times.late(self.patience_s)

    def _is_due(self, now_s: float) -> bool:
        """Whether something waits for the next transaction, for long or in a hurry."""
        if not self._has_something:
            return bool(self._starved) and self._room_came
        asked_s = self._times.asked_s
        return (
            self.journal is None
            or asked_s is None
            or now_s >= asked_s + COMPANY * self.patience_s - TIMERS_S
            or bool(self._starved or self._letters)
            or self._done.is_urgent
            or any(store.is_urgent for store in self._stores)
            or (self._has_unstored and (self._is_hurried or self.is_awaited(now_s)))
        )

    def _rows(self, recent: list[Delivery], transaction: Batch) -> list[Delivery]:
        """Put what has no outcome into the transaction, as far as the journal has room."""
        journal = self.journal
        assert journal is not None
        room = journal.max_bytes - journal.bytes - transaction.bytes
        written = []
        # If one message of a lane has no room, no later one may be written: after a crash it would be sent first.
        starving = {delivery.lane for delivery in self._starved if delivery.state is not SETTLED}
        for together in to_write(recent):
            deliveries = [each for each in together if each.state is not SETTLED]
            if not deliveries:  # evicted just now
                continue
            received = deliveries[0].received
            is_due = received.is_acknowledged  # it replaces what is deleted in this transaction: a batch, a letter
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
                transaction.rows.append(row_of(delivery, body))
                delivery.journaled = True
                self.payloads.add(delivery)
            written += deliveries
        return written

    def _no_room(self, delivery: Delivery) -> None:
        """The journal is full: the route's policy says what waits and what is given up."""
        queue = delivery.lane.queue
        if queue.is_patient or delivery.state is IN_FLIGHT or delivery.received.is_acknowledged:
            self._starve(delivery)  # not acknowledged until there is room, or it is delivered
            return
        victim = queue.least(delivery.message.attributes.priority_class)
        if victim is None or victim is delivery:
            queue.owner.give_up(delivery, _FULL)
        else:
            self._starve(delivery)
            queue.owner.give_up(victim, _EVICTED)

    def _starve(self, delivery: Delivery) -> None:
        starved = self._starved
        starved.append(delivery)
        if len(starved) >= self._purge_at:
            self._starved = starved = [each for each in starved if each.state is not SETTLED]
            self._purge_at = max(_PURGE_AT, 2 * len(starved))

    def _committed(self, batches: Sequence[_Unstored], frees: bool) -> None:
        """The transaction is on disk: acknowledge the sources."""
        self._turned.set()
        written, self._in_hand = self._in_hand, []
        # A message with several destinations is safe once it is written for all of them.
        unwritten = {id(delivery.received) for delivery in self._starved if delivery.state is not SETTLED}
        for delivery in written:
            if delivery.state is not SETTLED:
                if id(delivery.received) not in unwritten:
                    delivery.received.take_custody()
                self.payloads.spill_beyond(delivery)
        self.sources.committed(self._clock.monotonic_s())
        self._stored(batches, True)
        self._room_came = self._room_came or frees
        is_urgent = bool(self._recent or self._ours or self._letters) or self._done.is_urgent
        self._look_after(self._clock.monotonic_s(), is_urgent or (bool(self._starved) and self._room_came))
        if self._has_unstored:
            self.sent(any(store.is_urgent for store in self._stores))

    def _stored(self, batches: Sequence[_Unstored], in_journal: bool) -> None:
        for store, batch in batches:
            received, batch.received = batch.received, []
            store.stored(batch, in_journal)
            for each in received:
                self._seen.release(each)
