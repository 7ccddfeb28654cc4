"""Custody: the streamer keeps a message that cannot be delivered at once, and acknowledges it to its source.

Messages without an outcome some milliseconds after they arrived are written to the journal in one transaction, and their
sources acknowledged once it is committed: else one flow whose receiver is away would use up its source's window and block
all others. What is confirmed before that never touches the disk. The wait is `FLUSH_S` for a message that only we have, and
`PATIENCE_S` for one that its source keeps until we acknowledge it. The same transaction has the batches of unconfirmed
messages, new dead letters, and the deletion of everything that has reached its outcome. What need not be on the disk soon
waits for company, up to `COMPANY` times `PATIENCE_S`: a transaction for a few messages costs more than all else about them.

Without a journal, custody is the process's memory. The daemon logs at the start what a kill would lose.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from streamer.clock import Clock
from streamer.delivery.dedup import SeenIds
from streamer.delivery.lane import Delivery, DeliveryState
from streamer.delivery.queue import Tally
from streamer.delivery.rows import TIMERS_S, row_of, take_older, to_write
from streamer.delivery.unconfirmed import UnconfirmedStore
from streamer.delivery.unconfirmed_batch import UnconfirmedBatch
from streamer.journal import codec
from streamer.journal.entries import ENTRY_BYTES, Batch, CorruptEntryError, Letter, Segment
from streamer.journal.journal import Journal
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.custody")

FLUSH_S = 0.01
PATIENCE_S = 0.05
COMPANY = 4  # times as long a transaction waits for more, if no source waits for it

# Letters that wait while the disk is full. Of accepted messages the oldest go; those that anybody can cause come in no more.
_MAX_LETTERS = 10_000
_MAX_LETTER_BYTES = 64 * 1024 * 1024
_MAX_REJECTED = 1000
_MAX_REJECTED_BYTES = 8 * 1024 * 1024
_PURGE_AT = 1000

_FULL = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "the journal is full")
_EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full journal")

_Unstored = tuple[UnconfirmedStore, UnconfirmedBatch]

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after so many seconds; `asyncio`'s ``call_later``."""


class Custody:
    """Takes received messages that have no outcome yet at the flush after their arrival.

    ``memory_bytes`` is how much payload of journaled messages stays in memory as well.
    """

    def __init__(
        self, later: Later, clock: Clock, seen: SeenIds, journal: Journal | None = None, memory_bytes: int = 0
    ) -> None:
        self._later = later
        self._clock = clock
        self._seen = seen
        self.journal = journal
        self.number: Callable[[], int] = itertools.count(1).__next__ if journal is None else journal.number
        self._memory_bytes = memory_bytes
        self.patience_s = PATIENCE_S
        self.is_awaited: Callable[[float], bool] = lambda now_s: True  # may a source be waiting for us? (monotonic time)
        self._stores: list[UnconfirmedStore] = []
        self.in_memory = 0  # bytes of journaled messages whose payload is in memory
        self.spilled = 0  # messages whose payload is only in the journal
        self.letters_dropped = 0
        self._recent: list[Delivery] = []  # for the next transaction
        self._ours: deque[Delivery] = deque()  # only we have them; oldest first
        self._kept_at_source: deque[Delivery] = deque()  # oldest first
        self._starved: list[Delivery] = []  # the journal has no room for them: unacknowledged
        self._divided: set[Received] = set()  # those of several deliveries for which there was no room
        self._purge_at = self._purge_recent_at = _PURGE_AT
        self._room_came = False  # something was deleted from the journal since
        self._done: Batch = Batch()
        self._letters, self._rejected = Tally(), Tally()  # what waits in it, of accepted messages and of others
        self._is_due = False
        self._asked_s: float | None = None  # when the flush was first asked for that has not been done yet
        self._turned = asyncio.Event()  # set at the end of every flush and commit

    async def until_written(self) -> None:
        """Wait until everything without an outcome is in the journal, except for what it has no room for."""
        self.patience_s = 0.0
        self.schedule()
        while (
            self._recent
            or self._ours
            or self._kept_at_source
            or not self._done.is_empty
            or self._is_due
            or (self.journal is not None and self.journal.is_busy)
        ):
            self._turned.clear()
            await self._turned.wait()

    async def until_turned(self, within_s: float) -> bool:
        """Wait for the next flush or commit, which follows every message that is not delivered at once.

        False if none came in time.
        """
        self._turned.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._turned.wait()
        return self._turned.is_set()

    def unwritten(self) -> list[Delivery]:
        """What has no outcome, is not in the journal, and is not kept by its source either."""
        return [
            delivery
            for delivery in (*self._starved, *self._recent, *self._ours)
            if delivery.state is not DeliveryState.SETTLED
            and not (delivery.journaled or delivery.received.is_kept or delivery.received.source_keeps)
        ]

    def add_store(self, store: UnconfirmedStore) -> None:
        """Store the batches of one more endpoint."""
        self._stores.append(store)

    def remove_store(self, store: UnconfirmedStore) -> None:
        """The endpoint is gone. Nothing may be left in its store."""
        self._stores.remove(store)

    # -- what happens to messages

    def watch(self, delivery: Delivery) -> None:
        """A message has entered its lane."""
        self.schedule()
        if delivery.received.source_keeps:
            self._kept_at_source.append(delivery)
        else:
            self._ours.append(delivery)

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        """Unconfirmed messages are in their lane again; the batch that held them is given up with the next flush."""
        if self.journal is not None:
            self.schedule()
            self._recent += deliveries

    def restored(self, delivery: Delivery) -> None:
        """A message of an earlier process is in its lane: the journal has it."""
        delivery.journaled = True
        self.in_memory += delivery.size
        if self.in_memory > self._memory_bytes:
            self._spill(delivery)

    def settled(self, delivery: Delivery) -> None:
        """A journaled message has its outcome, or is in a batch: its row can go. Called before `Delivery.forget`."""
        if delivery.spilled:
            self.spilled -= 1
        else:
            self.in_memory -= delivery.size
        self.schedule()
        self._done.rows_done.append(delivery.seq)

    def settled_in_part(self, delivery: Delivery) -> None:
        """The same of one of several deliveries of a message that is not in the journal: the others may have room now."""
        if delivery.received in self._divided:
            self._divided.discard(delivery.received)
            self._room_came = True
            self.schedule()

    def forget_row(self, number: int) -> None:
        """A row of an earlier process that can go."""
        self.schedule()
        self._done.rows_done.append(number)

    def forget_batch(self, number: int) -> None:
        """A stored batch of unconfirmed messages of which nothing is left."""
        self.schedule()
        self._done.segments_done.append(number)

    def batch_body(self, number: int) -> bytes:
        """Read the body of a stored batch. Raises `CorruptEntryError`, `JournalError`."""
        if self.journal is None:
            raise AssertionError("without a journal, batches keep their bodies")
        return self.journal.segment_body(number)

    def letter(self, letter: Letter) -> None:
        """Keep a dead letter for `streamer dead-letters`."""
        self.schedule()
        letters = self._done.letters
        size = len(letter.body) + ENTRY_BYTES
        if letter.is_rejected:
            held, most, most_bytes = self._rejected, _MAX_REJECTED, _MAX_REJECTED_BYTES
        else:
            held, most, most_bytes = self._letters, _MAX_LETTERS, _MAX_LETTER_BYTES
        while held.messages and (held.messages >= most or held.bytes + size > most_bytes):
            self.letters_dropped += 1
            if letter.is_rejected:
                return
            at = next(at for at, each in enumerate(letters) if not each.is_rejected)
            held.add(-1, -len(letters.pop(at).body) - ENTRY_BYTES)
        held.add(1, size)
        letters.append(letter)

    @property
    def letters_waiting(self) -> int:
        """How many dead letters no transaction has taken yet. Beyond a bound the oldest are dropped."""
        return self._letters.messages

    def letter_done(self, number: int) -> None:
        """A dead letter was redriven: delete it."""
        self.schedule()
        self._done.letters_done.append(number)

    def letter_kept(self, number: int) -> None:
        """A dead letter cannot be redriven now: it stays, and can be redriven later."""
        self.schedule()
        self._done.letters_kept.append(number)

    # -- flush

    def schedule(self) -> None:
        """Have a flush soon."""
        if not self._is_due:
            self._is_due = True
            if self._asked_s is None:
                self._asked_s = self._clock.monotonic_s()
            self._later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write what has no outcome yet; without a journal, only acknowledge it."""
        self._is_due = False
        self._turned.set()
        now_s = self._clock.monotonic_s()
        recent, self._recent = self._recent, []
        take_older(self._ours, now_s - min(FLUSH_S, self.patience_s), recent)
        take_older(self._kept_at_source, now_s - self.patience_s, recent)
        if not recent and self._may_wait(now_s):
            self.schedule()
            return
        self._asked_s = None
        if self._ours or self._kept_at_source:
            self.schedule()
        if self.journal is None:
            for delivery in recent:
                if delivery.state is not DeliveryState.SETTLED:
                    delivery.received.keep()
            self._stored([(store, batch) for store in self._stores for batch in store.take_unstored(now_s)], False)
            return
        if self.journal.is_busy:
            if len(recent) >= self._purge_recent_at:  # a commit may hang for long
                recent = [delivery for delivery in recent if delivery.state is not DeliveryState.SETTLED]
                self._purge_recent_at = max(_PURGE_AT, 2 * len(recent))
            self._recent = recent
            return  # `_committed` comes back to it
        if self._starved and self._room_came:
            recent, self._starved = self._starved + recent, []
            self._divided.clear()
            self._room_came = False
        transaction, self._done = self._done, Batch()
        self._letters, self._rejected = Tally(), Tally()
        batches = [(store, batch) for store in self._stores for batch in store.take_unstored(now_s)]
        for _, batch in batches:
            if batch.shares and batch.body is not None:
                transaction.segments.append(Segment(batch.number, batch.target, batch.body))
        written = self._rows(recent, transaction)
        if transaction.is_empty:
            self._stored(batches, True)
            return
        frees = bool(transaction.rows_done or transaction.segments_done or transaction.letters_done)
        self.journal.write(transaction, partial(self._committed, written, batches, frees))

    @property
    def _has_something(self) -> bool:
        """Whether anything waits for the next transaction, besides messages without an outcome."""
        return not self._done.is_empty or any(store.has_unstored for store in self._stores)

    def _may_wait(self, now_s: float) -> bool:
        """Whether something waits for the next transaction, and nothing is in a hurry."""
        return (
            self.journal is not None
            and self._has_something
            and self._asked_s is not None
            and now_s < self._asked_s + COMPANY * self.patience_s - TIMERS_S
            and not (self._starved or self._done.is_urgent)
            and not any(store.is_urgent for store in self._stores)
            and not (any(store.has_unstored for store in self._stores) and self.is_awaited(now_s))
        )

    def _rows(self, recent: list[Delivery], transaction: Batch) -> list[Delivery]:
        """Put what has no outcome into the transaction, as far as the journal has room."""
        journal = self.journal
        assert journal is not None
        room = journal.max_bytes - journal.bytes - transaction.bytes
        written = []
        # If one message of a lane has no room, no later one may be written: after a crash it would be sent first.
        starving = {delivery.lane for delivery in self._starved if delivery.state is not DeliveryState.SETTLED}
        for together in to_write(recent):
            deliveries = [each for each in together if each.state is not DeliveryState.SETTLED]
            if not deliveries:  # evicted just now
                continue
            received = deliveries[0].received
            is_due = received.is_kept  # it replaces what is deleted in this transaction: a batch, a letter
            short = [each for each in deliveries if each.size + ENTRY_BYTES > room or each.lane in starving]
            body = codec.pack(received.message) if is_due or not short else b""
            size = (len(body) + ENTRY_BYTES) * len(deliveries)
            if not is_due and (short or size > room):
                starving.update(each.lane for each in deliveries)
                if len(deliveries) > 1:
                    self._divided.add(received)
                for delivery in deliveries:
                    if delivery not in short:
                        self._starve(delivery)
                    elif delivery.state is not DeliveryState.SETTLED:
                        self._no_room(delivery)
                continue
            room -= size
            for delivery in deliveries:
                transaction.rows.append(row_of(delivery, body))
                delivery.journaled = True
                self.in_memory += delivery.size
            written += deliveries
        return written

    def _no_room(self, delivery: Delivery) -> None:
        """The journal is full: the route's policy says what waits and what is given up."""
        queue = delivery.lane.queue
        if queue.is_patient or delivery.state is DeliveryState.IN_FLIGHT or delivery.received.is_kept:
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
            self._starved = starved = [each for each in starved if each.state is not DeliveryState.SETTLED]
            self._purge_at = max(_PURGE_AT, 2 * len(starved))

    def _committed(self, written: list[Delivery], batches: Sequence[_Unstored], frees: bool) -> None:
        """The transaction is on disk: acknowledge the sources."""
        self._turned.set()
        # A message with several destinations is safe once it is written for all of them.
        unwritten = {id(delivery.received) for delivery in self._starved if delivery.state is not DeliveryState.SETTLED}
        for delivery in written:
            if delivery.state is not DeliveryState.SETTLED:
                if id(delivery.received) not in unwritten:
                    delivery.received.keep()
                if self.in_memory > self._memory_bytes:
                    self._spill(delivery)
        self._stored(batches, True)
        self._room_came = self._room_came or frees
        if self._recent or (self._starved and self._room_came) or self._has_something:
            self.schedule()

    def _stored(self, batches: Sequence[_Unstored], in_journal: bool) -> None:
        for store, batch in batches:
            received, batch.received = batch.received, []
            store.stored(batch, in_journal)
            for each in received:
                self._seen.release(each)

    # -- larger than memory

    def _spill(self, delivery: Delivery) -> None:
        """Keep the payload of a waiting message only in the journal."""
        received = delivery.received
        if delivery.state is not DeliveryState.QUEUED or received.holders != 1 or not received.message.payload:
            return
        received.message = replace(received.message, payload=None)
        delivery.message = replace(delivery.message, payload=None)
        delivery.spilled = True
        self.in_memory -= delivery.size
        self.spilled += 1

    def load(self, delivery: Delivery) -> bool:
        """Bring a spilled payload back; False if it is lost. Raises `JournalError` if the journal cannot be read now."""
        assert self.journal is not None
        try:
            payload = codec.unpack(self.journal.row_body(delivery.seq)).payload
        except (CorruptEntryError, codec.UnreadableError) as exc:
            logger.error("payload_lost file=%s seq=%d error=%s", self.journal.path, delivery.seq, exc)
            return False
        received = delivery.received
        received.message = UMessage(received.message.id, received.message.attributes, payload)
        delivery.message = UMessage(delivery.message.id, delivery.message.attributes, payload)
        delivery.spilled = False
        self.spilled -= 1
        self.in_memory += delivery.size
        return True
