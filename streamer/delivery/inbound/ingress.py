"""The way in through one endpoint: checks received messages and puts them into lanes.

Per batch it reads the clocks and lets the egresses send; per flow it asks `resolve` for the decision; the rest is done per
message.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from streamer.clock import Clock
from streamer.delivery.custody.custody import Custody
from streamer.delivery.inbound import refusals
from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.inbound.misrouted import MisroutedCopies
from streamer.delivery.inbound.receiving import Receiving
from streamer.delivery.inbound.resolve import Leg, Resolved, Resolver
from streamer.delivery.inbound.source_clocks import SourceClocks
from streamer.delivery.inbound.step import Inlet, MakeStep
from streamer.delivery.inbound.tokens import Tokens
from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, REDELIVERED, REDRIVEN, Delivery, Hold
from streamer.delivery.lanes.queue import Room, RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.outcomes.settle import Settler
from streamer.delivery.pump import Pump
from streamer.delivery.seen import SeenIds, key_of, scope
from streamer.delivery.stats import EndpointStats, RouteStats
from streamer.routing.interest import Interest
from streamer.routing.outcome import Failure
from streamer.routing.table import RoutingTable
from streamer.transports.base import Received, Refused, UListener, UTransport
from streamer.transports.errors import Unwanted
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

# Beyond this backlog messages are rejected. Only messages without a source's window (MQTT QoS 0) get that far.
_MAX_BACKLOG_MESSAGES = 65_536
_MAX_BACKLOG_BYTES = 64 * 1024 * 1024
# A tick settles expired messages only every 50 ms. The step makes most messages of a flow have the same attributes, which
# are looked up; each one's own would be resolved and encoded anew.
_ARRIVAL_STEP_MS: Final = 50
_CLOCK_MESSAGES = 64  # messages of a batch whose ids are compared with our clock
_NONE: Final[list[Delivery]] = []
_MANY = 16  # messages of a batch that may come from a source faster than its destination


class IngressState(Enum):
    """The ways in which an ingress handles messages that arrive."""

    OPEN = "open"
    REST = "rest"  # takes the last ones, without pausing the transport
    REST_BEYOND_BOUNDS = "rest_beyond_bounds"  # the same, but none waits in the backlog: the journal has room
    CLOSED = "closed"  # accepts none


_OPEN: Final = IngressState.OPEN  # an enumeration looks its members up slowly
_BEYOND_BOUNDS: Final = IngressState.REST_BEYOND_BOUNDS
_CLOSED: Final = IngressState.CLOSED


class Ingress(UListener):
    """Takes the messages that one endpoint receives. ``unrouted`` is the account of those that no route takes."""

    def __init__(
        self,
        name: str,
        flows: Flows,
        receiving: Receiving,
        settler: Settler,
        seen: SeenIds,
        clock: Clock,
        custody: Custody,
        pump: Pump,
        interest: Interest | None = None,
        tokens: Tokens | None = None,
        request_answered: Callable[[Attributes], None] = lambda response: None,
        steps: Iterable[MakeStep] = (),
    ) -> None:
        """``request_answered`` is called with every Response, before it is known whether there is room for it.

        Each batch passes the ``steps`` in their order, before anything else is done with it.
        """
        self.name = name
        self.stats = EndpointStats()
        self.unrouted = RouteStats()
        self.backlog = Backlog()
        self._receiving = receiving
        self._settler = settler
        self._seen = seen
        self._scope = scope("endpoint", name)
        self.misrouted = MisroutedCopies(seen, self._count_duplicate, self._fail_unrouted)
        self._clock = clock
        self.custody = custody
        self._resolver = Resolver(name, flows, interest or Interest(), clock, tokens or Tokens())
        self._pump = pump
        self.state: IngressState = _OPEN
        self._has_table = False  # a reload adds an endpoint before it uses the new table
        self._egress: Egress | None = None  # where the last message went
        self._request_answered = request_answered
        self._expired = 0  # in the backlog, since the last tick
        self.counts_ttl_from_arrival = False
        self._counted: Cache[tuple[Attributes, int], Attributes] = Cache()
        self.source_clocks = SourceClocks()
        self._looks_at_clocks = True  # once per tick
        made = [make(Inlet(name, self.stats)) for make in steps]
        self._steps = tuple(step for step in made if step is not None)
        self._noting = tuple(step for step in self._steps if step.notes_accepted)

    @property
    def flows(self) -> Flows:
        """The flows that this endpoint receives."""
        return self._resolver.flows

    def use(self, table: RoutingTable, queues: dict[str, tuple[RouteQueue, Egress]]) -> None:
        """Use a new routing table, with the queue and egress of each route by name, and decide on the backlog again."""
        self._resolver.use(table, queues)
        self._has_table = True
        self._egress = None  # it may be gone
        self._decide_anew(self.backlog.take_all())

    def interest_changed(self, topics: Iterable[UUri]) -> None:
        """Decide again on messages of topics in which the interest has changed.

        Backlogged messages whose queue is still one of their targets go on waiting.
        """
        self._resolver.forget(topics := set(topics))
        sources = None if any(topic.has_wildcard for topic in topics) else topics
        self._decide_anew(self.backlog.take_if(sources, self._resolver.leads_elsewhere))

    def _decide_anew(self, waiting: list[Received]) -> None:
        """Decide again on messages from the backlog, before newer ones enter the queues that they belong into now."""
        if waiting:
            self._take(waiting, is_backlog=True)
            self._receiving.backlog_changed(self.backlog)

    def on_receive(self, received: Received) -> None:
        self.on_receive_batch((received,))

    def close(self) -> None:
        """Accept and acknowledge nothing that arrives from now on. The backlog may still enter.

        Messages whose source does not retransmit are rejected; the streamer's services send theirs again after a restart.
        """
        self.state = _CLOSED
        self._receiving.close()
        self.misrouted.give_up()

    def reopen(self, transport: UTransport) -> None:
        """Receive normally from another transport, after `close` or `take_rest`."""
        self._resolver.flows = transport.context.flows
        self._receiving.open(transport)
        self.state = _OPEN

    def take_rest(self, beyond_bounds: bool) -> None:
        """Take everything that still arrives, without pausing the transport.

        ``beyond_bounds``: messages whose source does not retransmit enter their queues at once: the journal has room.
        """
        if self.state is not _CLOSED:
            self.state = _BEYOND_BOUNDS if beyond_bounds else IngressState.REST
        self._receiving.stop_pausing()
        if beyond_bounds:
            self.admit_all()

    def give_up(self, failure: Failure) -> int:
        """Reject the backlogged messages whose source does not retransmit; return their number."""
        lost = self.backlog.remove(lambda received: not received.source_retransmits)
        for received, _ in lost:
            self._reject(received, self._resolver.resolve(received.message.attributes), failure)
        return len(lost)

    def _reject(self, received: Received, resolved: Resolved, failure: Failure) -> None:
        """Reject a message on each of its routes."""
        if resolved.failure is not None:  # its route was removed meanwhile
            self._settler.fail_unrouted(received, self.name, self.unrouted, resolved.failure)
            return
        received.holders += len(resolved.legs) - 1
        for leg in resolved.legs:
            self._settler.reject(received, leg.queue, failure, leg.attributes.sink)

    def admit_all(self) -> None:
        """Put backlogged messages whose source does not retransmit into lanes, whatever the bounds say.

        For a stop with a journal, which has room for them.
        """
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        for received, _ in self.backlog.remove(lambda received: not received.source_retransmits):
            resolved = self._resolver.resolve(received.message.attributes)
            if resolved.failure is not None:  # its route was removed meanwhile
                self._settler.fail_unrouted(received, self.name, self.unrouted, resolved.failure)
                continue
            self._seen.remember_pending(key_of(received.message), received)
            self._enter(received, resolved, now_s, now_ms)

    def redrive(
        self, message: UMessage, waited_s: float, route: str, target: str, sink: str
    ) -> refusals.Admission | Failure:
        """Take the message of a dead letter as if it arrived now, even if its id was seen.

        ``waited_s``: see `UMessage.expires_ms`. It goes only where it failed: over ``route`` or else to the endpoint
        ``target``, and there to ``sink``, if it would go there today. Return a `Failure` if it cannot be sent.
        """
        copied_to = "" if sink == str(message.attributes.sink or "") else sink
        return self._take_again(
            message, waited_s, REDELIVERED | REDRIVEN, lambda resolved: resolved.where_it_failed(route, target, copied_to)
        )

    def send_again(
        self, message: UMessage, waited_s: float, authorities: Container[str], endpoints: Container[str]
    ) -> refusals.Admission | Failure:
        """Take a Publish as if it arrived now, even if its id was seen, and send it only to some of those who get it.

        ``waited_s``: see `UMessage.expires_ms`. Those who get it are the ``authorities`` that get a copy of their own, and
        all who share a message at ``endpoints``. Return a `Failure` if it cannot be sent.
        """
        return self._take_again(message, waited_s, REDELIVERED, lambda resolved: resolved.only_to(authorities, endpoints))

    def _take_again(
        self, message: UMessage, waited_s: float, history: int, choose: Callable[[Resolved], Resolved | None]
    ) -> refusals.Admission | Failure:
        """Take a message on the legs that are chosen of those that it would have today. ``history``: see `Delivery`."""
        if not self._has_table:
            return refusals.Admission.LATER
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        resolved = self._resolver.resolve(message.attributes)
        if resolved.failure is not None:
            return resolved.failure
        if problems := message.attributes.carried_problems:
            return refusals.invalid(problems)
        if message.is_expired(now_ms, waited_s):
            return refusals.EXPIRED_SINCE
        chosen = choose(resolved)
        if chosen is None:
            return refusals.NOT_COPIED
        if not chosen.has_room(message):
            return refusals.Admission.LATER
        received = Received(message)
        received.since_s = now_s - max(0.0, waited_s)
        received.is_acknowledged = True  # it was acknowledged long ago
        self._seen.remember_pending(key_of(message), received)
        self._enter(received, chosen, now_s, now_ms, history)
        return refusals.Admission.TAKEN

    def on_receive_batch(self, batch: Sequence[Received]) -> None:
        for step in self._steps:
            batch = step.take(batch)
            if not batch:
                return
        if self.state is _CLOSED:
            self._reject_late(batch)
            return
        self._count(batch)
        if self._looks_at_clocks:
            self._look_at_clocks(batch)
        if self.counts_ttl_from_arrival:
            self._count_from_arrival(batch)
        self._take(batch)
        if self.backlog:
            if self.state is _OPEN:
                self._receiving.backlog_changed(self.backlog)
            elif self.state is _BEYOND_BOUNDS:
                self.admit_all()
        self._pump.send()
        if len(batch) >= _MANY and self._egress is not None:
            self._receiving.pace(self._egress)

    def _count(self, batch: Sequence[Received]) -> None:
        size = 0
        for received in batch:
            size += received.message.payload_bytes
        self.stats.received += len(batch)
        self.stats.received_payload_bytes += size

    def _count_from_arrival(self, batch: Sequence[Received]) -> None:
        """Have the TTLs of messages end as if they had been created now, to within `_ARRIVAL_STEP_MS`."""
        now_ms = self._clock.wall_ms()
        for received in batch:
            message = received.message
            attributes = message.attributes
            if attributes.ttl:
                created = created_ms(message.id)
                arrived_ms = created - (created - now_ms) // _ARRIVAL_STEP_MS * _ARRIVAL_STEP_MS
                ttl = message.ttl_until(arrived_ms + attributes.ttl, now_ms)
                key = attributes.shared, ttl
                try:
                    counted = self._counted[key]
                except KeyError:
                    counted = replace(attributes.shared, ttl=ttl)
                    self._counted.remember(key, counted)
                received.message = UMessage(message.id, counted.carrying_as(attributes), message.payload)

    def _look_at_clocks(self, batch: Sequence[Received]) -> None:
        """Compare the ids of the last messages with our clock, as far as routes take them, on their first arrival."""
        self._looks_at_clocks = False
        now_ms = self._clock.wall_ms()
        ages: list[tuple[tuple[str, int], int]] = []
        for received in batch[-_CLOCK_MESSAGES:]:
            message = received.message
            if not received.redelivered and self._resolver.decided(message.attributes).failure is None:
                source = message.attributes.source
                ages.append(((source.authority, source.ue_id), now_ms - created_ms(message.id)))
        self.source_clocks.observe(ages, self._clock.monotonic_s())

    def refuse(self, batch: Sequence[Refused]) -> None:
        """Settle messages that the transport cannot hand over, and report them to their senders."""
        for step in self._steps:
            batch = step.refuse(batch)
            if not batch:
                return
        if self.state is _CLOSED:
            self._reject_late([each.received for each in batch])
            return
        self._count([each.received for each in batch])
        now_s = self._clock.monotonic_s()
        self._seen.rotate(now_s)
        for refused in batch:
            received = refused.received
            resolved = self._resolver.resolve(received.message.attributes)
            failure = refusals.by_transport(refused, resolved.failure)
            if resolved.is_misrouted:
                self.misrouted.take(received, failure, now_s)
            else:
                self._fail_unrouted(received, failure)
        self._pump.send()

    def _reject_late(self, batch: Sequence[Received]) -> None:
        for received in batch:
            if received.source_retransmits or self.name == LOCAL_ENDPOINT:
                self.stats.count_unwanted(Unwanted.STOPPED)
            else:
                self._count((received,))
                self._fail_unrouted(received, refusals.STOPPING)
        self._pump.send()

    @property
    def has_backlog(self) -> bool:
        """Whether messages wait outside full queues."""
        return len(self.backlog) > 0

    def admit_backlog(self) -> None:
        """Put backlogged messages into queues that have room now, in order.

        Ends early once `EXPIRED_MESSAGES_PER_TICK` of them have expired since the last tick.
        """
        for queue in self.backlog.queues():
            if self._expired < EXPIRED_MESSAGES_PER_TICK:
                self._take(self.backlog.take(queue), is_backlog=True)
        self._receiving.backlog_changed(self.backlog)

    def expire_backlog(self) -> bool:
        """Settle expired messages of the backlog; return whether there may be more of them."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        expired = self.backlog.remove(
            lambda received: received.message.is_expired(now_ms, now_s - received.since_s), EXPIRED_MESSAGES_PER_TICK
        )
        for received, _ in expired:
            self._fail_unrouted(received, refusals.EXPIRED_OUTSIDE)
        self._receiving.backlog_changed(self.backlog)
        return len(expired) >= EXPIRED_MESSAGES_PER_TICK

    def tick(self, now_s: float) -> None:
        """Judge misrouted copies whose time is over, and forget old ids; called regularly."""
        self._expired = 0
        self._looks_at_clocks = True
        self._seen.rotate(now_s)
        self.misrouted.expire(now_s)

    def _take(self, batch: Iterable[Received], is_backlog: bool = False) -> None:
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        seen, resolver = self._seen, self._resolver
        seen.rotate(now_s)
        for received in batch:
            message = received.message
            attributes = message.attributes
            resolved = resolver.decided(attributes)
            if not is_backlog:
                resolved.messages += 1
            if resolved.failure is not None:
                if resolved.is_misrouted and not is_backlog:  # in the backlog, it came from where its source lived then
                    self.misrouted.take(received, resolved.failure, now_s)
                else:
                    self._fail_unrouted(received, resolved.failure)
                continue
            if attributes.reqid is not None:
                self._request_answered(attributes)
            key = message.id + attributes.origin if attributes.sink is None else key_of(message)
            if key in seen.young or key in seen.old or (attributes.sink is not None and seen.is_copy(message)):
                self._seen_before(key, received)
            elif attributes.ttl and now_ms > int.from_bytes(message.id[:6], "big") + attributes.ttl:
                age_ms = now_ms - created_ms(message.id)
                late_ms = age_ms - attributes.ttl
                if not (is_backlog or received.redelivered):  # its clock may be wrong, so none of these is left out
                    self.source_clocks.observe((((attributes.source.authority, attributes.source.ue_id), age_ms),), now_s)
                expired = refusals.EXPIRED_OUTSIDE if is_backlog else refusals.expired_by(late_ms, received.redelivered)
                self._fail_unrouted(received, expired)
                self._expired += is_backlog
            elif resolved.paces is not None and not is_backlog and not refusals.keeps_pace(resolved.paces, message, now_s):
                self._fail_unrouted(received, refusals.TOO_FAST)
            elif resolved.wants_token and (refused := resolver.refusal_of_token(resolved.wants_token, attributes)):
                self._fail_unrouted(received, refused)
            elif self._has_room(received, resolved, key):
                seen.remember_pending(key, received)
                self._enter(received, resolved, now_s, now_ms)

    def _fail_unrouted(self, received: Received, failure: Failure) -> None:
        """Settle a message that no route takes. It is reported once per endpoint, and its id does not count as seen."""
        seen, message, key = self._seen, received.message, key_of(received.message)
        if failure.is_reported:
            if key in seen or seen.is_copy(message):
                self._seen_before(key, received)
                return
            if key + self._scope in seen:
                self._seen_before(key + self._scope, received)
                return
            seen.remember_pending(key + self._scope, received)
            if failure.code is not UCode.UNAUTHENTICATED:
                seen.remember_arrival(message)
        elif seen.young.get(key) or seen.old.get(key):  # a copy of it has no outcome yet
            self._seen_before(key, received)
            return
        self._settler.fail_unrouted(received, self.name, self.unrouted, failure)

    def _count_duplicate(self, received: Received) -> None:
        self._settler.duplicate(received, self.name, self.unrouted)
        received.release()

    def _seen_before(self, key: bytes, received: Received) -> None:
        """Settle a second copy as a duplicate. It is acknowledged together with the first one."""
        first = self._seen.young.get(key) or self._seen.old.get(key)
        self._settler.duplicate(received, self.name, self.unrouted)
        if first is None:
            received.release()
        else:
            first.attach(received)

    def _has_room(self, received: Received, resolved: Resolved, key: bytes) -> bool:
        """Return whether all queues of the legs have room; if not, put the message into the backlog, or reject it."""
        size, backlog = received.message.size, self.backlog
        for queue, copies in resolved.copies.items():
            is_behind = bool(backlog) and backlog.is_behind(key, queue)
            is_full = queue.applies_backpressure and queue.messages and not queue.fits(size * copies, copies)
            if is_behind or is_full:
                source = received.message.attributes.source
                if not backlog.has_any_of(source) and queue.fits_instead(resolved.replaceable(queue), size * copies, copies):
                    continue  # it needs no room, and nothing older of its topic waits
                if queue.quotas.has_quotas and queue.exceeds_quota(source.authority, size * copies, copies):
                    continue  # rejected when it enters the others
                self._add_to_backlog(key, received, resolved, queue)
                return False
        return True

    def _add_to_backlog(self, key: bytes, received: Received, resolved: Resolved, queue: RouteQueue) -> None:
        backlog = self.backlog
        first = backlog.get(key)
        if first is not None and not received.source_retransmits:
            self._settler.duplicate(received, self.name, self.unrouted)
            first.attach(received)
            return
        if first is None and not backlog.is_entering(key) and self._is_overrun(received):
            self._reject(received, resolved, refusals.FULL)
            return
        if first is not None:
            received.since_s = first.since_s
        elif not received.since_s:
            received.since_s = self._clock.monotonic_s()
        earlier = backlog.add(key, received, queue)
        self._pump.add_backlog_of(self)
        if earlier is None:
            self._seen.remember_arrival(received.message)
        else:  # the source sent it again after a reconnect: the first copy can no longer be acknowledged
            self._count_duplicate(earlier)

    def _is_overrun(self, received: Received) -> bool:
        """Whether the backlog is full. Its bound in bytes only counts for sources that were paused and do not retransmit."""
        if len(self.backlog) >= _MAX_BACKLOG_MESSAGES:
            return True
        is_large = self.backlog.bytes >= _MAX_BACKLOG_BYTES
        return is_large and self._receiving.is_paused_by_backlog and not received.source_retransmits

    def _enter(self, received: Received, resolved: Resolved, now_s: float, now_ms: int, history: int = 0) -> None:
        """Put a message into its lanes. With a ``history``, also on routes that a copy of it has taken before."""
        legs = resolved.legs
        received.holders += len(legs) - 1
        if not history:
            for step in self._noting:
                step.accepted(received.message, now_ms, now_s)
        entered = [leg for leg in legs if self._enter_leg(leg, received, now_s, now_ms, history) and leg.is_copy]
        if resolved.addressees:
            to, is_shared = resolved.addressees_of(entered)
            self._seen.remember_copies(received.key, to, is_shared)

    def _enter_leg(self, leg: Leg, received: Received, now_s: float, now_ms: int, history: int) -> bool:
        """Put a message into the lane of one leg, or settle its delivery there; return whether it is in the lane."""
        queue, message, seen, attributes = leg.queue, received.message, self._seen, leg.attributes
        once = None if leg.once is None else message.id + leg.once
        if once is not None and not history and (once in seen.young or once in seen.old):
            self._count_there(received, queue)
            return False
        if leg.sampler is not None and not history and not leg.sampler.lets_pass(message.id, now_ms):
            self._settler.sample_out(received, queue)
            return False
        lane = leg.lane
        if lane.retired:
            lane = leg.lane = queue.lane(leg.key)
        outdated = lane.replaceable() if lane.keeps_latest and not history else _NONE
        if outdated is _NONE or not queue.fits_instead(outdated, message.size):
            refusal = self._make_room(leg, message.size, outdated)
            if refusal is not None:
                self._settler.reject(received, queue, refusal, attributes.sink)
                return False
        outgoing = message
        if leg.is_changed:
            outgoing = UMessage(message.id, attributes.carrying_as(message.attributes), message.payload)
            if not leg.is_copy:  # if the network echoes it, it is a duplicate
                seen.young.setdefault(message.id + leg.tail, None)
                if once is not None:
                    seen.young[once] = None
        if outdated:
            leg.egress.supersede(outdated)
        delivery = queue.push(received, outgoing, lane, now_s, now_ms)
        delivery.history = history
        if history & REDRIVEN or (outdated and self.custody.journal is not None):
            self.custody.redelivered((delivery,))  # in the transaction that deletes its letter, or what it replaces
        else:
            self.custody.watch(delivery)
        if leg.egress is not self._egress:
            self._egress = leg.egress
            self._receiving.disable_pacing(now_s)
        if lane.ready_class < lane.highest_class:
            leg.egress.queued(lane)
        return True

    def _make_room(self, leg: Leg, size: int, outdated: Sequence[Delivery]) -> Failure | None:
        """Make room for a message in the queue of a leg whose ``outdated`` messages are too small, or return the refusal."""
        queue, attributes = leg.queue, leg.attributes
        if queue.quotas.has_quotas and queue.exceeds_quota(attributes.source.authority, size):
            return refusals.OVER_QUOTA
        if not queue.applies_backpressure:
            level, room = attributes.priority_class, queue.room_for(size)
            if outdated and room is Room.AFTER_EVICTION and queue.victims(size, level) is not None:
                leg.egress.supersede(outdated)  # else they would be evicted, because they are old
            if room is Room.NO or (
                room is Room.AFTER_EVICTION and not self._settler.evict_for(queue, size, level, refusals.EVICTED)
            ):
                return refusals.FULL
        is_paused = bool(leg.lane.hold & Hold.PAUSED)
        return refusals.PAUSED if is_paused and not queue.has_room_for_paused(size) else None

    def _count_there(self, received: Received, queue: RouteQueue) -> None:
        """Count a Publish as a duplicate on a route that its copy for another authority has taken; release it at once."""
        self._settler.duplicate(received, self.name, queue.stats, queue)
        self._seen.release(received)
