"""Keeps the messages that one endpoint has sent without a confirmation, until they count as delivered or are sent again.

Messages are packed into *batches*: those that were sent between two flushes. A batch is confirmed, and its messages count as
delivered, once the network says that they have arrived (`UTransport.arrived_until_s`), or once it is ``unconfirmed_s`` old
and there was no sign of a loss:

    nobody listens to a flow any more   the flow's messages return to the head of their lane, and wait there
    a node was lost                     batches are set aside: when a node comes they are sent again, and if none comes
                                        within ``absent_s``, they count as delivered to the nodes that were there

A Response proves that its Request has arrived, also one that has returned to its lane meanwhile.

Receivers that come and go, and nodes that are no receivers, give these signs as often as they want. So a message returns at
most `MAX_RETURNS` times. After that it is not sent again: it ends as unconfirmed if nobody listens, else it waits as above.

Messages to be redelivered stay packed until their lane asks for them (`Lane.redeliveries`): there may be more of them than
memory should hold. With a journal the bodies of batches are only there. The law: a batch is deleted from the journal in the
same transaction that stores what its messages have become. No event loop and no clock in here.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from streamer.delivery.dedup import SeenIds
from streamer.delivery.lane import MAY_HAVE_ARRIVED, QUEUED, REDELIVERED, RESTORED, Delivery, Lane
from streamer.delivery.tracer import Tracer
from streamer.delivery.unconfirmed_batch import OVERHEAD_BYTES, BatchFlow, LaneSummary, OpenBatch, UnconfirmedBatch
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError
from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import created_ms

logger = logging.getLogger("ustreamer.unconfirmed")

FLOW_QUOTA = 0.25
"""How much of the room for unconfirmed messages one flow may use once half of it is used."""

AUTHORITY_QUOTA = 0.5
"""How much of it all flows of one source authority may use then."""

MAX_RETURNS = 2
"""How often a message is sent again because a receiver or a node was lost: nobody gets more than three copies."""

_BATCH_BYTES = 4 * 1024 * 1024
_OPEN_S = 1.0
_UNPACKED_MESSAGES = 256  # of a lane, unpacked by one `refill`
_PARSED = 8  # batches that several lanes are being refilled from
_MAX_REQUESTS = 8192  # of which it is known where they are, so that a Response can prove them


class BatchKeeper(Protocol):
    """Stores batches: `Custody`."""

    def number(self) -> int:
        """The next number for a row or segment of the journal."""
        ...

    def sent(self, is_urgent: bool) -> None:
        """Something waits for `take_unstored`. ``is_urgent``: see `UnconfirmedStore.is_urgent`."""
        ...

    def redelivered(self, deliveries: Sequence[Delivery]) -> None:
        """These deliveries are in their lane again; their batch is deleted with the next flush."""
        ...

    def forget_batch(self, number: int) -> None:
        """Nothing is left of a stored batch."""
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
        tracer: Tracer | None = None,
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
        self._tracer = tracer
        self._unconfirmed_bytes = 0  # of messages that may be confirmed by waiting
        self._batches: deque[UnconfirmedBatch] = deque()
        self._aside: deque[tuple[float, UnconfirmedBatch]] = deque()  # with the moment at which a node was lost
        self._unstored: list[UnconfirmedBatch] = []
        self._redelivering: dict[Lane, None] = {}
        self._parsed: OrderedDict[int, tuple[bytes, dict[int, list[codec.PackedMessage]]]] = OrderedDict()
        self._open = OpenBatch()
        self._returned: dict[int, OpenBatch] = {}  # by how often they have returned; none is empty
        self._requests: dict[bytes, tuple[Lane, int]] = {}  # lane and seq of Requests by their id; the latest
        self.answered: dict[int, bool] = {}  # the seq of those that were answered, and may be in a batch; the latest

    def use_tracer(self, tracer: Tracer | None) -> None:
        """Have another tracer pack the records of what is sent from now on, or none."""
        self._tracer = tracer

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be sent before something is confirmed."""
        return self.blocks_when_full and self._unconfirmed_bytes >= self.max_bytes

    @property
    def unconfirmed_bytes(self) -> int:
        """The bytes of messages that were sent, are not confirmed, and are not to be sent again."""
        return self._unconfirmed_bytes

    def over_quota(self) -> set[Lane]:
        """The lanes that should send nothing more, so that they do not use up the room of others."""
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
        """Whether lanes have messages here that are to be sent again."""
        return bool(self._redelivering)

    @property
    def has_unstored(self) -> bool:
        """Whether anything waits for `take_unstored`."""
        return bool(self._unstored or self._open.records or self._returned)

    @property
    def is_urgent(self) -> bool:
        """Whether what is unstored is much, or nobody else has it."""
        return bool(self._unstored) or self._open.is_ours

    def add(self, deliveries: Sequence[Delivery], now_s: float) -> None:
        """Add deliveries that were sent to the open batches."""
        returned = [delivery for delivery in deliveries if delivery.returns]
        if returned:
            deliveries = [delivery for delivery in deliveries if not delivery.returns]
            for delivery in returned:
                self._add(self._returned.setdefault(delivery.returns, OpenBatch()), (delivery,), now_s)
        if deliveries:
            self._add(self._open, deliveries, now_s)
        _forget_oldest(self._requests)

    def _add(self, current: OpenBatch, deliveries: Sequence[Delivery], now_s: float) -> None:
        is_first, was_urgent = not current.records, current.is_ours
        if is_first:
            current.made_s = now_s
        self._unconfirmed_bytes += current.add(deliveries, now_s, self._tracer, self._requests)
        if current.bytes >= _BATCH_BYTES:
            self.close(now_s)
            self._keeper.sent(True)
        elif is_first or current.is_ours is not was_urgent:
            self._keeper.sent(self.is_urgent)

    def close(self, now_s: float) -> None:
        """End the open batches that have anything in them."""
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
        """The open batches that have anything in them."""
        return (self._open, *self._returned.values()) if self._open.records else self._returned.values()

    def take_unstored(self, now_s: float) -> list[UnconfirmedBatch]:
        """Every batch that was closed since the last call, the open one too. Call `stored` for each, once it is safe."""
        self.close(now_s)
        taken, self._unstored = self._unstored, []
        return [batch for batch in taken if batch.lanes or batch.received]

    def stored(self, batch: UnconfirmedBatch, in_journal: bool) -> None:
        """The caller acknowledges what the batch came in as; with a journal, its body need not be in memory."""
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
        """Take over a batch that an earlier process has left in the journal: all of it is to be sent again.

        ``flow_of`` finds lane and outgoing attributes. ``known`` are the numbers of messages that were found before; those
        of this batch are added. What was redelivered from a batch that had to stay for others is in the journal twice: also
        as a row, or in a later batch. It counts where it is found first. The number of messages is returned. Raises
        `codec.UnreadableError`.
        """
        packed, start = codec.unpack_flows(body)
        records = list(codec.unpack_records(body, start))
        flows = []
        for index, each in enumerate(packed):
            lane, outgoing = flow_of(each)
            flows.append(BatchFlow(index, lane, each.attributes, outgoing))
        summaries: dict[Lane, LaneSummary] = {}
        skip = frozenset(record.seq for record in records if record.seq in known)
        for record in records:
            if record.seq in skip:
                continue
            known.add(record.seq)
            flow = flows[record.flow]
            summary = summaries.get(flow.lane) or summaries.setdefault(flow.lane, LaneSummary(record.seq))
            ttl = flow.incoming.ttl
            summary.add(record.seq, len(record.payload or b""), created_ms(record.id) + ttl if ttl else 0)
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
        """Take out what was sent up to ``until_s``, which has arrived, by lane."""
        if any(current.sent_s <= until_s for current in self._opened()):
            self.close(now_s)
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and self._batches[0].sent_s <= until_s:
            self._settle(self._batches.popleft(), found)
        return found

    def take_confirmed(self, now_s: float, absent_s: float) -> list[tuple[Lane, LaneSummary]]:
        """Take out what counts as delivered now because of the time that has passed, by lane. Called by the clock's tick."""
        if any(current.made_s + _OPEN_S <= now_s for current in self._opened()):  # the journal is busy, and closes none
            self.close(now_s)
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and self._batches[0].made_s + self.unconfirmed_s <= now_s:
            self._settle(self._batches.popleft(), found)
        while self._aside and self._aside[0][0] + absent_s <= now_s:
            self._settle(self._aside.popleft()[1], found)
        return found

    def take_evicted(self) -> list[tuple[Lane, LaneSummary]]:
        """Take out the oldest messages, as far as there are too many for the memory, by lane."""
        found: list[tuple[Lane, LaneSummary]] = []
        while self._batches and not self.blocks_when_full and self._unconfirmed_bytes > self.max_bytes:
            self._settle(self._batches.popleft(), found)
        return found

    def extend_waits(self, for_s: float) -> None:
        """The process did not run for so long. Of what was lost meanwhile it hears only now, so that time does not count."""
        for batch in self._batches:
            batch.made_s += for_s
        for current in self._opened():
            current.made_s += for_s
        self._aside = deque((lost_s + for_s, batch) for lost_s, batch in self._aside)

    def _settle(self, batch: UnconfirmedBatch, found: list[tuple[Lane, LaneSummary]]) -> None:
        for lane in [lane for lane, summary in batch.lanes.items() if not summary.to_redeliver]:
            found.append((lane, self._take_out(batch, lane)))

    def _take_out(self, batch: UnconfirmedBatch, lane: Lane) -> LaneSummary:
        """Take a lane's messages, which are not to be sent again, out of a batch. The caller settles them."""
        summary = batch.lanes.pop(lane)
        self._unconfirmed_bytes -= summary.bytes
        _let_go(lane, summary.count)
        if not batch.lanes:
            received, batch.received = batch.received, []
            self._gone(batch)
            for each in received:  # all of it is settled before it was stored
                self._seen.release(each)
        return summary

    # -- answers

    def request_answered(self, response: Attributes) -> Delivery | None:
        """Note that a Request has arrived. If it waits in its lane to be sent again, return it: the caller settles it."""
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
        """Return the unconfirmed messages of a lane to its head, packed: nobody listens to its flow any more.

        ``has_listener``: somebody does, but may have been lost for a moment. What has returned often enough stays then;
        else it is taken out and returned, and ends as unconfirmed.
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
        """A node was lost, and may have missed everything that is unconfirmed."""
        self.close(now_s)
        self._aside.extend((now_s, batch) for batch in self._batches if batch.returns < MAX_RETURNS)
        self._batches = deque(batch for batch in self._batches if batch.returns >= MAX_RETURNS)

    def node_came(self) -> None:
        """A node has come: what was set aside is redelivered, before anything younger of the same flow."""
        aside, self._aside = self._aside, deque()
        for _, batch in aside:
            for lane, summary in batch.lanes.items():
                self._mark_for_redelivery(lane, summary, batch, is_return=True)

    def give_back(self, now_s: float) -> None:
        """The link was given up: everything that is unconfirmed is redelivered."""
        self.close(now_s)
        for batch in [*(batch for _, batch in self._aside), *self._batches]:
            for lane, summary in batch.lanes.items():
                self._mark_for_redelivery(lane, summary, batch)
        self._aside.clear()
        self._batches.clear()

    @property
    def may_confirm(self) -> bool:
        """Whether anything may still be confirmed by waiting."""
        return self._unconfirmed_bytes > 0

    def take_all(self, now_s: float) -> list[tuple[Lane, LaneSummary]]:
        """Nothing more can be found out: take out what is unconfirmed, and not to be redelivered, by lane."""
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

    def lanes_in_need(self, now_ms: int) -> list[Lane]:
        """Lanes whose next message is packed, and either may leave or has expired."""
        return [
            lane
            for lane in self._redelivering
            if lane.wants_redelivery and (not lane.hold or lane.redeliveries[0][1].lanes[lane].is_due(now_ms))
        ]

    def refill(self, lane: Lane, whole: bool = False) -> list[LaneSummary]:
        """Unpack what is next in a lane, some hundred messages at most, or all. What could not be read is returned.

        Raises `JournalError` if the journal cannot be read now; then everything is as it was.
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
            received.is_acknowledged = True  # its source has been told, or will be with the batch
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
