"""Keeps the messages that one endpoint has sent without a confirmation, until they count as delivered or are sent again.

Messages that were sent between two flushes are packed into a *batch*. A batch is confirmed, and its messages count as
delivered, once the network says that they have arrived (`UTransport.arrived_until_s`), or once it is ``unconfirmed_s`` old
without a sign of a loss:

    nobody listens to a flow any more   the flow's messages return to the head of their lane, and wait there
    a node was lost                     batches are set aside: when a node joins they are sent again, and if none joins
                                        within ``absent_s``, they count as delivered to the nodes that were there

A Response proves that its Request has arrived, even if the Request has returned to its lane meanwhile.

Receivers that come and go, and nodes that are no receivers, can cause any number of these signs. So a message returns at
most `MAX_RETURNS` times. After that it is not sent again: it ends as unconfirmed if nobody listens, else it waits as above.

Messages to be redelivered stay packed until their lane is refilled (`Lane.redeliveries`), because they may need more memory
than there should be. With a journal, the bodies of batches are only there. The law: a batch is deleted from the journal in
the same transaction that stores what its messages have become. No event loop and no clock in here.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from streamer.delivery.custody.unconfirmed_batch import OVERHEAD_BYTES, BatchFlow, LaneSummary, OpenBatch, UnconfirmedBatch
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, QUEUED, REDELIVERED, RESTORED, Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.seen import SeenIds, tail_of
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import created_ms

logger = logging.getLogger("ustreamer.unconfirmed")

FLOW_QUOTA = 0.25
"""The quota of one flow in the room for unconfirmed messages, once half of that room is used."""

AUTHORITY_QUOTA = 0.5
"""The quota of all flows of one source authority, likewise."""

MAX_RETURNS = 2
"""How often a message is sent again because a receiver or a node was lost: a receiver gets at most three copies."""

_BATCH_BYTES = 4 * 1024 * 1024
_OPEN_S = 1.0
_UNPACKED_MESSAGES = 256  # of a lane, unpacked by one `refill`
_PARSED = 8  # batches kept in parsed form, from which several lanes are refilled
_MAX_REQUESTS = 8192  # whose place is known, so that a Response can confirm them


class BatchKeeper(Protocol):
    """Stores batches. Implemented by `Custody`."""

    def number(self) -> int:
        """Return the next number for a row or segment of the journal."""
        ...

    def sent(self, is_urgent: bool) -> None:
        """Schedule a call of `UnconfirmedStore.take_unstored`. ``is_urgent``: see `UnconfirmedStore.is_urgent`."""
        ...

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        """Store deliveries that are in their lane again. Their batch is deleted with the same flush."""
        ...

    def forget_batch(self, number: int) -> None:
        """Delete a stored batch of which nothing is left."""
        ...

    def batch_body(self, number: int) -> bytes:
        """Read the body of a stored batch. Raises `CorruptEntryError`, `JournalError`."""
        ...


class UnconfirmedStore:
    """The batches of one endpoint, oldest first."""

    def __init__(
        self,
        target: str,
        unconfirmed_s: float,
        max_bytes: int,
        keeper: BatchKeeper,
        seen: SeenIds,
        blocks_when_full: bool = True,
    ) -> None:
        """``blocks_when_full``: at the bound nothing more is sent; else `take_evicted` ends the oldest messages."""
        self.target = target
        self.blocks_when_full = blocks_when_full
        self.unconfirmed_s = unconfirmed_s
        self.max_bytes = max_bytes
        self.bytes = 0
        self._keeper = keeper
        self._seen = seen
        self._unconfirmed_bytes = 0  # without messages to redeliver
        self._batches: deque[UnconfirmedBatch] = deque()
        self._aside: deque[tuple[float, UnconfirmedBatch]] = deque()  # each with the time when a node was lost
        self._unstored: list[UnconfirmedBatch] = []
        self._redelivering: dict[Lane, None] = {}
        self._parsed: OrderedDict[int, tuple[bytes, dict[int, list[codec.PackedMessage]]]] = OrderedDict()
        self._open = OpenBatch()
        self._returned: dict[int, OpenBatch] = {}  # by the number of returns; none is empty
        self._requests: dict[bytes, tuple[Lane, int]] = {}  # lane and seq of the latest Requests by their id
        self.answered: dict[int, bool] = {}  # the seq of the latest answered ones that may be in a batch

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be sent before messages are confirmed."""
        return self.blocks_when_full and self._unconfirmed_bytes >= self.max_bytes

    @property
    def unconfirmed_bytes(self) -> int:
        """The bytes of sent messages that are not confirmed, and not to be sent again."""
        return self._unconfirmed_bytes

    def over_quota(self) -> set[Lane]:
        """Return the lanes whose flow or source authority has used up its quota, and that must not send more."""
        if not self.blocks_when_full or self._unconfirmed_bytes < self.max_bytes / 2:
            return set()
        of_lane: Counter[Lane] = Counter()
        of_authority: Counter[str] = Counter()
        closed = [*(batch for _, batch in self._aside), *self._batches]
        for summaries in (*(batch.lanes for batch in closed), *(current.lanes for current in self._opened())):
            for lane, summary in summaries.items():
                if not summary.to_redeliver:
                    of_lane[lane] += summary.bytes
                    of_authority[lane.key[0].authority] += summary.bytes
        return {
            lane
            for lane, size in of_lane.items()
            if size > FLOW_QUOTA * self.max_bytes or of_authority[lane.key[0].authority] > AUTHORITY_QUOTA * self.max_bytes
        }

    @property
    def is_redelivering(self) -> bool:
        """Whether any messages here are to be sent again."""
        return bool(self._redelivering)

    @property
    def has_unstored(self) -> bool:
        """Whether anything waits for `take_unstored`."""
        return bool(self._unstored or self._open.records or self._returned)

    @property
    def is_urgent(self) -> bool:
        """Whether unstored messages are many, or include some that no source retransmits."""
        return bool(self._unstored) or self._open.is_ours

    def add(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int, observers: Sequence[OutcomeObserver]) -> None:
        """Pack deliveries that were sent into the open batches, and report them to the observers."""
        returned = [delivery for delivery in deliveries if delivery.returns]
        if returned:
            deliveries = [delivery for delivery in deliveries if not delivery.returns]
            for delivery in returned:
                self._add(self._returned.setdefault(delivery.returns, OpenBatch()), (delivery,), now_s, now_ms, observers)
        if deliveries:
            self._add(self._open, deliveries, now_s, now_ms, observers)
        _forget_oldest(self._requests)

    def _add(
        self,
        current: OpenBatch,
        deliveries: Sequence[Delivery],
        now_s: float,
        now_ms: int,
        observers: Sequence[OutcomeObserver],
    ) -> None:
        is_first, was_urgent = not current.records, current.is_ours
        if is_first:
            current.made_s = now_s
        self._unconfirmed_bytes += current.add(deliveries, now_s, now_ms, observers, self._requests)
        if current.bytes >= _BATCH_BYTES:
            self.close(now_s)
            self._keeper.sent(True)
        elif is_first or current.is_ours is not was_urgent:
            self._keeper.sent(self.is_urgent)

    def close(self, now_s: float) -> None:
        """Close the open batches that are not empty."""
        ending = list(self._returned.items())
        self._returned = {}
        if self._open.records:
            ending.append((0, self._open))
            self._open = OpenBatch()
        for returns, current in ending:
            batch = current.closed(self.target, self._keeper.number(), now_s)
            batch.returns = returns
            self.bytes += batch.size
            self._batches.append(batch)
            self._unstored.append(batch)

    def _opened(self) -> Iterable[OpenBatch]:
        """Return the open batches that are not empty."""
        return (self._open, *self._returned.values()) if self._open.records else self._returned.values()

    def take_unstored(self, now_s: float) -> list[UnconfirmedBatch]:
        """Close the open batches; return all closed since the last call. Call `stored` for each once it is stored."""
        self.close(now_s)
        taken, self._unstored = self._unstored, []
        return [batch for batch in taken if batch.lanes or batch.received]

    def stored(self, batch: UnconfirmedBatch, in_journal: bool) -> None:
        """Record that a batch is stored: the caller releases its received messages. Drop its body if the journal has it."""
        batch.is_stored = in_journal
        if in_journal:
            batch.body = None
            if not batch.lanes:  # it was settled meanwhile
                self._keeper.forget_batch(batch.number)

    def restore(
        self,
        number: int,
        body: bytes,
        flow_of: Callable[[codec.PackedFlow], tuple[Lane, Attributes]],
        now_s: float,
        known: set[int],
    ) -> int:
        """Take over a batch that an earlier process has left in the journal, to be sent again; return how many messages.

        ``flow_of`` finds lane and outgoing attributes. ``known`` are the numbers of messages found before; those of this
        batch are added. A message that was redelivered from a batch with other messages is in the journal twice: also as a
        row, or in a later batch. It counts where it is found first. Its id counts as seen. Raises `codec.UnreadableError`.
        """
        packed, start = codec.unpack_flows(body)
        records = list(codec.unpack_records(body, start))
        flows = []
        for index, each in enumerate(packed):
            lane, outgoing = flow_of(each)
            flows.append(BatchFlow(index, lane, each.attributes, outgoing))
        tails = [tail_of(each.attributes) for each in packed]
        self._seen.remember(record.id + tails[record.flow] for record in records)
        summaries: dict[Lane, LaneSummary] = {}
        skip = frozenset(record.seq for record in records if record.seq in known)
        for record in records:
            if record.seq in skip:
                continue
            known.add(record.seq)
            flow = flows[record.flow]
            summary = summaries.get(flow.lane) or summaries.setdefault(flow.lane, LaneSummary(record.seq))
            summary.add(record.seq, len(record.payload or b""), created_ms(record.id), flow.incoming.ttl or 0)
        batch = UnconfirmedBatch(self.target, number, now_s, flows, summaries)
        batch.start = start
        batch.size = len(body) + OVERHEAD_BYTES
        batch.is_stored = True
        batch.skip = skip
        self.bytes += batch.size
        if not summaries:
            self._gone(batch)
        for lane, summary in summaries.items():
            lane.queue.unconfirmed += summary.count
            lane.queue.stats.accepted += summary.count
            lane.unconfirmed += summary.count
            self._unconfirmed_bytes += summary.bytes
            self._mark_for_redelivery(lane, summary, batch)
        return sum(summary.count for summary in summaries.values())

    # -- time

    def take_arrived(self, now_s: float, until_s: float) -> list[tuple[Lane, LaneSummary]]:
        """Take out the messages sent up to ``until_s``, which have arrived, by lane. The caller settles them."""
        if any(current.sent_s <= until_s for current in self._opened()):
            self.close(now_s)
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and self._batches[0].sent_s <= until_s:
            self._settle(self._batches.popleft(), found)
        return found

    def take_confirmed(self, now_s: float, absent_s: float) -> list[tuple[Lane, LaneSummary]]:
        """Take out the messages that count as delivered because of the time passed, by lane. The caller settles them."""
        if any(current.made_s + _OPEN_S <= now_s for current in self._opened()):  # no flush closes them: the journal is busy
            self.close(now_s)
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and self._batches[0].made_s + self.unconfirmed_s <= now_s:
            self._settle(self._batches.popleft(), found)
        while self._aside and self._aside[0][0] + absent_s <= now_s:
            self._settle(self._aside.popleft()[1], found)
        return found

    def take_evicted(self) -> list[tuple[Lane, LaneSummary]]:
        """Take out the oldest messages beyond ``max_bytes``, by lane. The caller settles them."""
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and not self.blocks_when_full and self._unconfirmed_bytes > self.max_bytes:
            self._settle(self._batches.popleft(), found)
        return found

    def extend_waits(self, for_s: float) -> None:
        """Let all messages wait ``for_s`` longer, because the process did not run, and learns of losses only now."""
        for batch in self._batches:
            batch.made_s += for_s
        for current in self._opened():
            current.made_s += for_s
        self._aside = deque((lost_s + for_s, batch) for lost_s, batch in self._aside)

    def _settle(self, batch: UnconfirmedBatch, found: list[tuple[Lane, LaneSummary]]) -> None:
        for lane in [lane for lane, summary in batch.lanes.items() if not summary.to_redeliver]:
            found.append((lane, self._take_out(batch, lane)))

    def _take_out(self, batch: UnconfirmedBatch, lane: Lane) -> LaneSummary:
        """Take the messages of a lane, which are not to be sent again, out of a batch. The caller settles them."""
        summary = batch.lanes.pop(lane)
        self._unconfirmed_bytes -= summary.bytes
        _let_go(lane, summary.count)
        if not batch.lanes:
            received, batch.received = batch.received, []
            self._gone(batch)
            for each in received:  # if it was not stored yet
                self._seen.release(each)
        return summary

    # -- answers

    def request_answered(self, response: Attributes) -> Delivery | None:
        """Record that a Response proves its Request. If that waits in its lane again, return it: the caller settles it."""
        request_id = response.reqid or b""
        found = self._requests.get(request_id)
        if found is None or found[0].key != (response.sink, response.source):
            return None
        lane, seq = found
        del self._requests[request_id]
        for delivery in lane.items:
            if delivery.seq >= seq:
                if delivery.seq == seq and delivery.state is QUEUED:
                    return delivery
                break
        self.answered[seq] = True
        _forget_oldest(self.answered)
        return None

    # -- signs of a loss

    def redeliver(self, lane: Lane, now_s: float, has_listener: bool = False) -> list[LaneSummary]:
        """Return the unconfirmed messages of a lane to its head, still packed, because nobody listens to its flow any more.

        Messages that have returned `MAX_RETURNS` times are taken out instead and returned by this function: the caller ends
        them as unconfirmed. ``has_listener``: there is a listener, which may have been away for a moment. Then those stay.
        """
        if any(lane in current.lanes for current in self._opened()):
            self.close(now_s)
        ended = []
        for batch in [*(batch for _, batch in self._aside), *self._batches]:
            summary = batch.lanes.get(lane)
            if summary is None or summary.to_redeliver:
                continue
            if batch.returns < MAX_RETURNS:
                self._mark_for_redelivery(lane, summary, batch, is_return=True)
            elif not has_listener:
                ended.append(self._take_out(batch, lane))
        return ended

    def node_lost(self, now_s: float) -> None:
        """Set all unconfirmed messages aside, because a node that was lost may have missed them."""
        self.close(now_s)
        self._aside.extend((now_s, batch) for batch in self._batches if batch.returns < MAX_RETURNS)
        self._batches = deque(batch for batch in self._batches if batch.returns >= MAX_RETURNS)

    def node_came(self) -> None:
        """Redeliver the messages that were set aside, before younger ones of the same flow, because a node has joined."""
        aside, self._aside = self._aside, deque()
        for _, batch in aside:
            for lane, summary in batch.lanes.items():
                self._mark_for_redelivery(lane, summary, batch, is_return=True)

    def give_back(self, now_s: float) -> None:
        """Redeliver all unconfirmed messages, because the link was given up."""
        self.close(now_s)
        for batch in [*(batch for _, batch in self._aside), *self._batches]:
            for lane, summary in batch.lanes.items():
                self._mark_for_redelivery(lane, summary, batch)
        self._aside.clear()
        self._batches.clear()

    @property
    def may_confirm(self) -> bool:
        """Whether any message may still be confirmed by waiting."""
        return self._unconfirmed_bytes > 0

    def take_all(self, now_s: float) -> list[tuple[Lane, LaneSummary]]:
        """Take out all unconfirmed messages that are not to be redelivered, by lane. The caller settles them."""
        self.close(now_s)
        found: list[tuple[Lane, LaneSummary]] = []
        for batch in [*(batch for _, batch in self._aside), *self._batches]:
            self._settle(batch, found)
        self._aside.clear()
        self._batches.clear()
        return found

    def _mark_for_redelivery(
        self, lane: Lane, summary: LaneSummary, batch: UnconfirmedBatch, is_return: bool = False
    ) -> None:
        if summary.to_redeliver:
            return
        summary.to_redeliver = True
        summary.returns = batch.returns + is_return
        self._unconfirmed_bytes -= summary.bytes
        at = len(lane.redeliveries)
        while at and lane.redeliveries[at - 1][0] > summary.first:
            at -= 1
        lane.redeliveries.insert(at, (summary.first, batch))
        self._redelivering[lane] = None

    # -- redelivery

    def lanes_in_need(self, now_ms: int, now_s: float) -> list[Lane]:
        """Return the lanes whose next message is packed, and either may be sent or has expired."""
        return [
            lane
            for lane in self._redelivering
            if lane.wants_redelivery
            and (not lane.hold or (batch := lane.redeliveries[0][1]).lanes[lane].is_due(now_ms, now_s - batch.made_s))
        ]

    def refill(self, lane: Lane, whole: bool = False) -> list[LaneSummary]:
        """Unpack the next messages of a lane, about `_UNPACKED_MESSAGES`, or with ``whole`` all of them.

        Return what cannot be read any more: the caller settles it. Raises `JournalError` if the journal cannot be read now;
        nothing has changed then.
        """
        unpacked = 0
        lost: list[LaneSummary] = []
        while lane.redeliveries and (whole or (lane.wants_redelivery and unpacked < _UNPACKED_MESSAGES)):
            _, batch = lane.redeliveries[0]
            deliveries: list[Delivery] = []
            try:
                deliveries = list(self._unpack(batch, lane))
            except (CorruptEntryError, codec.UnreadableError) as exc:
                logger.error("batch_unreadable endpoint=%s messages=%d error=%s", self.target, batch.lanes[lane].count, exc)
            del lane.redeliveries[0]
            summary = batch.lanes.pop(lane)
            _let_go(lane, summary.count)
            if deliveries:
                lane.queue.put_back_all(lane, deliveries)
                self._keeper.redelivered(deliveries)
            else:
                lost.append(summary)
            unpacked += summary.count
            if not batch.lanes:
                self._gone(batch)
        if not lane.redeliveries:
            self._redelivering.pop(lane, None)
        return lost

    def _unpack(self, batch: UnconfirmedBatch, lane: Lane) -> Iterator[Delivery]:
        parsed = self._parsed.get(batch.number)
        if parsed is None:
            body = batch.body
            if body is None:
                body = self._keeper.batch_body(batch.number)
            by_flow: dict[int, list[codec.PackedMessage]] = {}
            for record in codec.unpack_records(body, batch.start):
                by_flow.setdefault(record.flow, []).append(record)
            parsed = self._parsed[batch.number] = (body, by_flow)
            if len(self._parsed) > _PARSED:
                self._parsed.popitem(last=False)
        chosen = [(record, flow) for flow in batch.flows if flow.lane is lane for record in parsed[1].get(flow.index, ())]
        chosen.sort(key=lambda each: each[0].seq)
        if batch.skip:
            chosen = [each for each in chosen if each[0].seq not in batch.skip]
        for record, flow in chosen:
            incoming = UMessage(record.id, flow.incoming, record.payload)
            leaving = incoming if flow.outgoing is flow.incoming else replace(incoming, attributes=flow.outgoing)
            received = Received(incoming)
            received.is_acknowledged = True  # or its source will be, with the batch
            delivery = Delivery(received, leaving, lane, record.seq, leaving.size, batch.made_s, record.entered_ms)
            delivery.history = REDELIVERED | RESTORED | MAY_HAVE_ARRIVED
            delivery.returns = batch.lanes[lane].returns
            yield delivery

    def _gone(self, batch: UnconfirmedBatch) -> None:
        self.bytes -= batch.size
        self._parsed.pop(batch.number, None)
        batch.body = None
        if batch.is_stored:
            self._keeper.forget_batch(batch.number)


def _forget_oldest(entries: dict[Any, Any]) -> None:
    """Keep the latest `_MAX_REQUESTS` entries."""
    while len(entries) > _MAX_REQUESTS:
        del entries[next(iter(entries))]


def _let_go(lane: Lane, count: int) -> None:
    lane.queue.unconfirmed -= count
    lane.unconfirmed -= count
