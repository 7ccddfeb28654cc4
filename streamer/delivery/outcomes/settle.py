"""Settling ends every delivery. Outcome → counters, observers, log line, failure notices, source acknowledgement.

Every delivery is settled exactly once. One that was sent and will not be confirmed is packed first (`unconfirmed`); it gets
its outcome with the others of its batch.
"""

import logging
from collections.abc import Sequence

from streamer.clock import Clock
from streamer.delivery.custody.custody import Custody
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.custody.unconfirmed_batch import LaneSummary
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, REDRIVEN, Delivery, Lane
from streamer.delivery.lanes.queue import Room, RouteQueue
from streamer.delivery.observers import OutcomeObserver
from streamer.delivery.outcomes.failure_notices import FailureNotices
from streamer.delivery.outcomes.flow_log import DEAD_LETTERED, GIVEN_UP, FlowLog
from streamer.delivery.seen import SeenIds, key_of
from streamer.delivery.stats import RouteStats
from streamer.journal.entries import JournalError
from streamer.routing.outcome import NOWHERE, Failure, Outcome, Where
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import age_s

logger = logging.getLogger("ustreamer.settle")

NO_ROUTE = "none"
"""The name of the account of messages that no route takes."""

_UNCONFIRMED = Failure(Outcome.UNCONFIRMED, UCode.OK, "it was sent, and nothing has confirmed that it arrived")
_UNHEARD = Failure(Outcome.UNHEARD, UCode.OK, "nobody listens")
_UNHEARD_AGAIN = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "nobody listens, and it was to be sent again")
_COPY = Failure(Outcome.DUPLICATE, UCode.OK, "seen before")
_SAMPLED_OUT = Failure(Outcome.SAMPLED_OUT, UCode.OK, "it arrived before the sample period of its subscribers was over")
UNREADABLE = Failure(Outcome.DEAD_LETTERED, UCode.DATA_LOSS, "its payload could not be read from the journal")

_NOTICE_EVICTED = Failure(Outcome.DEAD_LETTERED, UCode.RESOURCE_EXHAUSTED, "evicted from the full queue for failure notices")
_NOTICE_REJECTED = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the queue for failure notices is full")


class Settler:
    """Settles deliveries, and received messages that never became one."""

    def __init__(
        self,
        clock: Clock,
        seen: SeenIds,
        custody: Custody,
        notices: FailureNotices,
        observers: Sequence[OutcomeObserver] = (),
    ) -> None:
        """Every outcome is reported to ``observers``, to which the caller may add others later."""
        self._clock = clock
        self._seen = seen
        self._custody = custody
        self._notices = notices
        self._observers = observers
        self.log = FlowLog(clock)

    def tick(self, now_s: float) -> None:
        """Write suppressed log lines, and acknowledge sources that have waited for a dead letter; called regularly."""
        self.log.tick()
        self._custody.sources.tick(now_s)

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries that the destination has confirmed."""
        if not deliveries:
            return
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        for observer in self._observers:
            observer.delivered(deliveries, now_s, now_ms)
        run, stats = 0, deliveries[0].lane.queue.stats  # consecutive deliveries on the same account
        for delivery in deliveries:
            queue = delivery.lane.queue
            queue.leave(delivery)
            if queue.stats is not stats:
                stats.count(Outcome.DELIVERED, number=run)
                run, stats = 0, queue.stats
            run += 1
            stats.in_daemon.observe(now_s - delivery.entered_s)
            stats.end_to_end.observe(age_s(delivery.message.id, now_ms))
            self._custody.end(delivery)
            self._seen.release(delivery.received)
            delivery.forget()
        stats.count(Outcome.DELIVERED, number=run)

    def pack_unconfirmed(self, deliveries: Sequence[Delivery], store: UnconfirmedStore) -> None:
        """Pack deliveries that a network has taken and does not confirm into a batch. Their latencies are counted now."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        store.add(deliveries, now_s, now_ms, self._observers)
        for delivery in deliveries:
            queue = delivery.lane.queue
            queue.pack_away(delivery)
            stats = queue.stats
            stats.in_daemon.observe(now_s - delivery.entered_s)
            stats.end_to_end.observe(age_s(delivery.message.id, now_ms))
            self._custody.end(delivery)
            delivery.forget()

    def count_as_delivered(self, lane: Lane, summary: LaneSummary) -> None:
        """Settle unconfirmed messages of a lane as delivered."""
        lane.queue.stats.count(Outcome.DELIVERED, number=summary.count)
        for observer in self._observers:
            observer.confirmed(lane, summary.records, summary.count, self._clock.monotonic_s())

    def end_unconfirmed(self, lane: Lane, summary: LaneSummary) -> None:
        """Settle unconfirmed messages of a lane that nothing can confirm any more."""
        self._end(lane, summary, _UNCONFIRMED)

    def lost(self, lane: Lane, summary: LaneSummary) -> None:
        """Settle unconfirmed messages of a lane that cannot be read any more. The caller has logged that."""
        self._end(lane, summary, UNREADABLE)

    def _end(self, lane: Lane, summary: LaneSummary, failure: Failure) -> None:
        lane.queue.stats.count(failure.outcome, failure.code, summary.count)
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        for observer in self._observers:
            observer.never_confirmed(lane, summary.records, summary.count, failure, now_s, now_ms)

    def unheard(self, delivery: Delivery) -> None:
        """Settle a Publish that nobody listens to as unheard. A redriven one becomes a dead letter again."""
        self.give_up(delivery, _UNHEARD_AGAIN if delivery.history & REDRIVEN else _UNHEARD)

    def give_up(self, delivery: Delivery, failure: Failure) -> None:
        """Settle a delivery for which there is no more time or room. If it may have arrived, that is not a failure."""
        self.fail(delivery, _UNCONFIRMED if delivery.history & MAY_HAVE_ARRIVED else failure)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """Settle a delivery that has failed."""
        queue = delivery.lane.queue
        if delivery.spilled and failure.is_reported:
            failure = self._with_payload(delivery, failure)
        queue.leave(delivery)
        queue.stats.count(failure.outcome, failure.code)
        if failure.is_reported:
            names = (queue.name, queue.source, queue.target)
            is_told = bool(queue.source) and not self._notices.is_only_counted(delivery.received.message)
            event = DEAD_LETTERED if is_told else GIVEN_UP
            self.log.failed(delivery.message, failure, names, delivery.attempts, event)
        for observer in self._observers:
            observer.failed(delivery, failure, self._clock.monotonic_s(), self._clock.wall_ms())
        self._custody.end(delivery)
        if queue.source and failure.is_reported:
            where = Where(queue.name, queue.target, delivery.message.attributes.sink)
            self._notify(delivery.received, queue.source, queue.stats, failure, where, delivery)
        self._seen.release(delivery.received)
        delivery.forget()

    def _with_payload(self, delivery: Delivery, failure: Failure) -> Failure:
        """Load the payload for the failure notices. If the journal cannot be read now, they are sent without it."""
        try:
            return failure if self._custody.payloads.load(delivery) else UNREADABLE
        except JournalError as exc:
            logger.error("payload_not_reported route=%s error=%s", delivery.lane.queue.name, exc)
            return failure

    def fail_unrouted(
        self, received: Received, ingress: str, stats: RouteStats, failure: Failure, where: Where = NOWHERE
    ) -> None:
        """Settle a message from ``ingress`` that no route takes, on the account ``stats``.

        ``where``: an earlier process accepted it, for an endpoint that no longer exists.
        """
        stats.accept(received)
        stats.count(failure.outcome, failure.code)
        names = (NO_ROUTE, ingress, "")
        self._report(received, names, failure)
        if failure.is_reported:
            self.log.failed(received.message, failure, names)
            self._notify(received, ingress, stats, failure, where)
        self._seen.release(received)

    def duplicate(self, copy: Received, ingress: str, stats: RouteStats, queue: RouteQueue | None = None) -> None:
        """Count a message whose id was seen before, on the account ``stats``. The caller releases it."""
        stats.accept(copy)
        stats.count(_COPY.outcome)
        self._report(copy, (NO_ROUTE, ingress, "") if queue is None else (queue.name, ingress, queue.target), _COPY)

    def sample_out(self, received: Received, queue: RouteQueue) -> None:
        """Settle a message that arrived before the sample period of the route's subscribers was over."""
        queue.stats.accept(received)
        queue.stats.count(_SAMPLED_OUT.outcome)
        self._report(received, (queue.name, queue.source, queue.target), _SAMPLED_OUT)
        self._seen.release(received)

    def reject(self, received: Received, queue: RouteQueue, failure: Failure, sink: UUri | None = None) -> None:
        """Settle a message for which a route has no room, or its copy for ``sink``."""
        queue.stats.accept(received)
        queue.stats.count(failure.outcome, failure.code)
        names = (queue.name, queue.source, queue.target)
        self._report(received, names, failure)
        self.log.failed(received.message, failure, names)
        if queue.source:  # failure notices cause none
            self._notify(received, queue.source, queue.stats, failure, Where(queue.name, queue.target, sink))
        self._seen.release(received)

    def evict_for(self, queue: RouteQueue, size: int, priority_class: int, failure: Failure) -> bool:
        """Make room for a new message by evicting less important ones; return False if that is not possible."""
        victims = queue.victims(size, priority_class)
        for victim in victims or ():
            queue.owner.evict(victim, failure)
        return victims is not None

    def _report(self, received: Received, names: tuple[str, str, str], failure: Failure) -> None:
        for observer in self._observers:
            observer.never_queued(received.message, names, failure, self._clock.monotonic_s(), self._clock.wall_ms())

    def _notify(
        self,
        received: Received,
        ingress: str,
        stats: RouteStats,
        failure: Failure,
        where: Where,
        delivery: Delivery | None = None,
    ) -> None:
        """Send the dead letters and the error Response of a failure, and count it on the account ``stats``."""
        for notice_queue, message in self._notices.of(received, ingress, stats, failure, where, delivery):
            self._send_notice(notice_queue, message)

    def _send_notice(self, queue: RouteQueue, message: UMessage) -> None:
        size = message.size
        received = Received(message)
        self._seen.young[key_of(message)] = None  # if the network echoes it, it is a duplicate
        level = message.attributes.priority_class
        if queue.room_for(size) is not Room.YES and not self.evict_for(queue, size, level, _NOTICE_EVICTED):
            self.reject(received, queue, _NOTICE_REJECTED)
            return
        lane = queue.lane((message.attributes.source, message.attributes.sink))
        self._custody.watch(queue.push(received, message, lane, self._clock.monotonic_s(), self._clock.wall_ms()))
        queue.owner.queued(lane)
