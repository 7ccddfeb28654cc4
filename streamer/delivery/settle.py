"""Settling: the only way out. Outcome → counters, trace record, dead letter, RPC error response, source acknowledgement.

Every delivery comes through here exactly once.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from streamer.clock import Clock
from streamer.delivery.custody import Custody
from streamer.delivery.dedup import SeenIds, key_of
from streamer.delivery.lane import Delivery, Hold, Lane
from streamer.delivery.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.delivery.tracer import Tracer
from streamer.delivery.unconfirmed_batch import LaneShare, queue_of
from streamer.journal.entries import JournalError
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState, Received
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import created_ms

if TYPE_CHECKING:
    from streamer.delivery.egress import Egress
    from streamer.delivery.unconfirmed import UnconfirmedStore

logger = logging.getLogger("ustreamer.settle")

NO_ROUTE = "none"
"""The name of the account of messages that came onto no route."""

_COPY = Failure(Outcome.DUPLICATE, UCode.OK, "seen before")
_LEFT_OUT = Failure(Outcome.SAMPLED_OUT, UCode.OK, "sooner after the last one than anybody asked for")
UNREADABLE = Failure(Outcome.DEAD_LETTERED, UCode.DATA_LOSS, "its payload could not be read from the journal")

Report = Callable[[Received, str, Failure, RouteQueue | None, Delivery | None], None]
"""Tells a failure to whom it concerns: what came in, through which endpoint, why, and how far it had come."""


class Settler:
    """Settles deliveries, and received messages that never became one."""

    def __init__(self, clock: Clock, seen: SeenIds, custody: Custody) -> None:
        self._clock = clock
        self._seen = seen
        self._custody = custody
        custody.release = self._release
        custody.fail = self.fail
        self.tracer: Tracer | None = None
        self.report: Report = lambda received, ingress, failure, queue, delivery: None
        self.after_settling: Callable[[Egress], None] = lambda egress: None

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """The destination has confirmed these."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        if self.tracer is not None:
            self.tracer.delivered(deliveries, now_s)
        for delivery in deliveries:
            queue = queue_of(delivery.lane)
            queue.leave(delivery)
            stats = queue.stats
            stats.count(Outcome.DELIVERED)
            stats.in_daemon.observe(now_s - delivery.entered_s)
            stats.end_to_end.observe(max(0.0, (now_ms - created_ms(delivery.message.id)) / 1000))
            if delivery.journaled:
                self._custody.settled(delivery)
            self._release(delivery.received)
            delivery.forget()

    def unconfirmed(self, deliveries: Sequence[Delivery], store: "UnconfirmedStore") -> None:
        """These have left and nobody confirms them: packed away until they are certain. Latencies are counted now."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        store.add(deliveries, now_s)
        for delivery in deliveries:
            queue = queue_of(delivery.lane)
            queue.pack_away(delivery)
            stats = queue.stats
            stats.in_daemon.observe(now_s - delivery.entered_s)
            stats.end_to_end.observe(max(0.0, (now_ms - created_ms(delivery.message.id)) / 1000))
            if delivery.journaled:
                self._custody.settled(delivery)
            delivery.forget()

    def confirmed(self, lane: Lane, held: LaneShare) -> None:
        """Messages of a lane that were packed away have arrived."""
        queue_of(lane).stats.count(Outcome.DELIVERED, number=held.count)
        if self.tracer is not None:
            self.tracer.confirmed(lane, held.traces, self._clock.monotonic_s())

    def lost(self, lane: Lane, held: LaneShare) -> None:
        """Messages of a lane that were packed away cannot be read any more."""
        queue_of(lane).stats.count(UNREADABLE.outcome, UNREADABLE.code, held.count)
        if self.tracer is not None:
            now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
            self.tracer.lost(lane, held.traces, held.count, UNREADABLE, now_s, now_ms)

    def unheard(self, delivery: Delivery) -> None:
        """Nobody listens to a Publish: it is delivered to everyone who wants it."""
        self.fail(delivery, Failure(Outcome.UNHEARD, UCode.OK, "nobody listens"))

    def expire(self, delivery: Delivery, egress: "Egress") -> None:
        """The TTL passed while the message waited.

        If the receiver was not there, or was not to be sent to, the reason is UNAVAILABLE, else it is time itself.
        """
        if delivery.lane.hold & Hold.PAUSED:
            failure = Failure(Outcome.EXPIRED, UCode.UNAVAILABLE, "its TTL passed while it was paused")
        elif egress.transport.state is not LinkState.UP:
            failure = Failure(Outcome.EXPIRED, UCode.UNAVAILABLE, f"its TTL passed while {egress.name} was not connected")
        elif delivery.lane.hold & Hold.ABSENT:
            failure = Failure(Outcome.EXPIRED, UCode.UNAVAILABLE, "its TTL passed while nobody listened")
        else:
            failure = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed before it could be sent")
        self.fail(delivery, failure)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """A message that was accepted will not be delivered."""
        queue = queue_of(delivery.lane)
        if delivery.spilled and failure.is_reported:
            failure = self._with_payload(delivery, failure)
        queue.leave(delivery)
        queue.stats.count(failure.outcome, failure.code)
        if self.tracer is not None:
            self.tracer.failed(delivery, failure, self._clock.monotonic_s())
        if delivery.journaled:
            self._custody.settled(delivery)
        if queue.source and failure.is_reported:
            self.report(delivery.received, queue.source, failure, queue, delivery)
        self._release(delivery.received)
        delivery.forget()

    def _with_payload(self, delivery: Delivery, failure: Failure) -> Failure:
        """Fetch the payload that is to be reported. If the journal cannot be read now, the report goes without it."""
        try:
            return failure if self._custody.load(delivery) else UNREADABLE
        except JournalError as exc:
            logger.error("payload_not_reported route=%s error=%s", queue_of(delivery.lane).name, exc)
            return failure

    def turn_away(self, received: Received, ingress: str, stats: RouteStats, failure: Failure) -> None:
        """A message that came in through ``ingress`` is not accepted on the account ``stats``."""
        stats.accepted += 1
        stats.count(failure.outcome, failure.code)
        self._trace(received, (NO_ROUTE, ingress, ""), failure)
        if failure.is_reported:
            self.report(received, ingress, failure, None, None)
        self._release(received)

    def set_aside(self, copy: Received, ingress: str, stats: RouteStats, queue: RouteQueue | None = None) -> None:
        """A message came whose id was seen before, on the account ``stats``. Who calls sees to its receipt."""
        stats.accepted += 1
        stats.count(_COPY.outcome)
        self._trace(copy, (NO_ROUTE, ingress, "") if queue is None else (queue.name, ingress, queue.target), _COPY)

    def leave_out(self, received: Received, queue: RouteQueue) -> None:
        """A route carries a topic, but not as often as it is published: those who asked want less."""
        queue.stats.accepted += 1
        queue.stats.count(_LEFT_OUT.outcome)
        self._trace(received, (queue.name, queue.source, queue.target), _LEFT_OUT)
        self._release(received)

    def refuse(self, received: Received, queue: RouteQueue, failure: Failure) -> None:
        """A route has no room for a message that it should carry."""
        queue.stats.accepted += 1
        queue.stats.count(failure.outcome, failure.code)
        self._trace(received, (queue.name, queue.source, queue.target), failure)
        self.report(received, queue.source, failure, queue, None)
        self._release(received)

    def evict_for(self, queue: RouteQueue, size: int, priority_class: int, failure: Failure) -> bool:
        """Make room for a newcomer by giving up what is less important; False if the newcomer itself has to go."""
        victims = queue.victims(size, priority_class)
        for victim in victims or ():
            victim.lane.drop(victim)
            self.fail(victim, failure)
        return victims is not None

    def _trace(self, received: Received, names: tuple[str, str, str], failure: Failure) -> None:
        if self.tracer is not None:
            now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
            self.tracer.turned_away(received.message, names, failure, now_s, now_ms)

    def _release(self, received: Received) -> None:
        if received.holders == 1:
            message = received.message
            self._seen.settled(message.id if message.attributes.sink is None else key_of(message))
        received.release()
