"""The way out through one endpoint: serves ready lanes by priority class, keeps the window, handles the transport's results.

Every outcome goes to the settler. Nothing here depends on the content of messages.

What keeps a message from being sent, from its lane outward:
- the lane: a reason in `Hold`, its window, or messages in flight that are to be sent again first (`Lane.is_ready`);
- its source group: the rate of the group or of the route is used up (`ReadyLanes`);
- the endpoint: its window, bounded by configuration, transport and round trip (`InFlight`); no room for unconfirmed messages
  (`UnconfirmedStore.is_full`); the link is down; another transport is awaited (`Sending.SUSPENDED`);
- the router: a gate of a feature is closed, for instance the lease of a pair, or older messages are still being put into the
  lanes (`Pump.is_suspended`).
"""

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from streamer.backoff import wait_s
from streamer.clock import Clock
from streamer.delivery.custody.custody import Custody
from streamer.delivery.custody.unconfirmed import MAX_RETURNS, UnconfirmedStore
from streamer.delivery.lanes.deadlines import expired_in
from streamer.delivery.lanes.lane import (
    EXPIRED_MESSAGES_PER_TICK,
    IN_FLIGHT,
    MAY_HAVE_ARRIVED,
    QUEUED,
    REDELIVERED,
    Delivery,
    Hold,
    Lane,
)
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.lanes.ready_lanes import ReadyLanes
from streamer.delivery.outbound.absent import AbsentLanes
from streamer.delivery.outbound.in_flight import FEW_WAITING_MESSAGES, InFlight
from streamer.delivery.outcomes.flow_log import PAUSED, RELEASED
from streamer.delivery.outcomes.flow_log import UNCONFIRMED as TOO_MUCH_UNCONFIRMED
from streamer.delivery.outcomes.settle import UNREADABLE, Settler
from streamer.delivery.pump import Pump
from streamer.due import Due
from streamer.journal.entries import JournalError
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.pause_rules import PauseRules
from streamer.transports.base import UNCONFIRMED, Unconfirmed, UTransport
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, RefusedError, SendError
from streamer.transports.events import LinkState
from streamer.uprotocol.message import Attributes
from streamer.uprotocol.status import UCode

logger = logging.getLogger("ustreamer.egress")

_UNCONFIRMED: Final = UNCONFIRMED
_QUANTUM: Final = 64  # messages of one lane in a row: enough for batches, and few enough that many flows share a window
_REFILLS = 64  # lanes that are refilled from batches per tick, in addition to those that are refilled as they send
_SUPERSEDED = Failure(Outcome.SUPERSEDED, UCode.OK, "a newer message of its topic replaced it")
_LAST_TRY_S = 2.0  # before messages that have returned often are sent for the last time
_FULL_S = 1.0  # without room for unconfirmed messages, before that is reported
_READ_RETRY_S = 1.0  # after the journal could not be read


class Sending(Enum):
    """Whether an egress sends."""

    IDLE = "idle"  # with the next pump
    PUMPING = "pumping"  # now
    DEFERRED = "deferred"  # from the next tick on: very many messages have expired in this one
    SUSPENDED = "suspended"  # once there is another transport


_IDLE: Final = Sending.IDLE  # an enumeration looks its members up slowly
_PUMPING: Final = Sending.PUMPING
_DEFERRED: Final = Sending.DEFERRED
_SUSPENDED: Final = Sending.SUSPENDED


class Egress:
    """All lanes that lead to one endpoint, and the window of messages in flight. It owns the lanes of its queues."""

    def __init__(
        self,
        name: str,
        transport: UTransport,
        settler: Settler,
        custody: Custody,
        clock: Clock,
        random: Callable[[], float],
        pump: Pump,
        store: UnconfirmedStore | None = None,
        pause_rules: PauseRules | None = None,
    ) -> None:
        """``pause_rules`` are those of all egresses: call `apply_pause_rules` after a change."""
        self.name = name
        self._clock = clock
        self.transport = transport
        self.window = self.in_flight = 0
        self.sent_payload_bytes = 0  # of messages that were sent, whatever became of them
        self.queues: list[RouteQueue] = []
        self.store = store
        self.pause_rules = PauseRules() if pause_rules is None else pause_rules
        self._paused_below = 0
        self._settler = settler
        self._custody = custody
        self._random = random
        self._ready = ReadyLanes()
        self._has_topics = False
        self._backing_off: Due[Lane] = Due()
        self._waited: dict[Lane, int] = {}  # up to which message a lane has waited before its last try
        self._absent = AbsentLanes(transport, settler, store, clock, self)
        self.sending: Sending = _IDLE
        self.flight = InFlight()
        self.is_window_full = False  # ready lanes wait for room in it
        self.results = 0  # how often the transport has reported some
        self._has_transport_failed = False  # in the middle of a batch
        self._over_quota: set[Lane] = set()
        self._full_since_s: float | None = None  # when the room for unconfirmed messages was used up
        self._is_full_reported = False
        self._pump = pump
        pump.add_egress(self)

    def problems(self) -> list[str]:
        """Return what keeps messages from being sent although the link is up, one sentence each."""
        store = self.store
        if store is None or self._full_since_s is None or self._clock.monotonic_s() - self._full_since_s < _FULL_S:
            return []
        return [
            f"messages wait because {store.unconfirmed_bytes} bytes are sent and unconfirmed, and journal.max_bytes leaves "
            f"room for {store.max_bytes}"
        ]

    def unsettled(self) -> int:
        """Return how many deliveries have no outcome yet."""
        return sum(queue.messages + queue.unconfirmed for queue in self.queues)

    @property
    def waiting_for_window(self) -> int:
        """How many messages wait because the window is full; 0 if none is sent, or if they have several priority classes."""
        goes_on = self.is_window_full and self.sending is not _SUSPENDED and self.transport.state is LinkState.UP
        if not goes_on or self.flight.is_contested(self._clock.monotonic_s()):
            return 0
        return sum([queue.messages - queue.held.messages for queue in self.queues]) - self.in_flight

    def add_queue(self, queue: RouteQueue) -> None:
        """Serve the lanes of one more route."""
        self.queues.append(queue)
        self.apply_policies()

    def remove_queue(self, queue: RouteQueue) -> None:
        """Stop serving a route. Its queue must be empty."""
        self.queues.remove(queue)
        for lane in queue.lanes.values():
            self._waited.pop(lane, None)
            self._absent.forget(lane)
        self.apply_policies()

    # -- as the owner of lanes (`LaneOwner`)

    def lane_added(self, lane: Lane) -> None:
        """Watch a lane that a queue has created, and hold it if it is paused."""
        if lane.queue.may_pause:
            self._judge_pause(lane)
        self._absent.watch(lane)

    def lane_retired(self, lane: Lane) -> None:
        """Forget a lane that a queue has removed because it was idle."""
        self._over_quota.discard(lane)
        self._waited.pop(lane, None)
        self._absent.forget(lane)

    def queued(self, lane: Lane) -> None:
        """Have the pump send a delivery that was put into a lane."""
        self.mark_ready(lane)
        self._pump.mark(self)

    def evict(self, delivery: Delivery, failure: Failure) -> None:
        """Settle a delivery that waits in a lane and cannot be kept.

        If it may have arrived, its dead letter says so. On a network that confirms nothing, it then has none.
        """
        delivery.lane.drop(delivery)
        if self.store is not None and self.store.unconfirmed_s:
            self._settler.give_up(delivery, failure)
        elif delivery.history & MAY_HAVE_ARRIVED:
            self._settler.fail(delivery, failure._replace(text=f"{failure.text}; it may have arrived"))
        else:
            self._settler.fail(delivery, failure)

    def supersede(self, outdated: Sequence[Delivery]) -> None:
        """Settle deliveries that wait in a lane, as far as they still do, because a newer message replaces them."""
        for delivery in outdated:
            if delivery.state is QUEUED:
                delivery.lane.drop(delivery)
                self._settler.fail(delivery, _SUPERSEDED)

    # -- holding lanes

    def apply_pause_rules(self) -> None:
        """Hold the lanes that are paused now, and release the others."""
        goes_on = False
        for lane in [lane for queue in self.queues if queue.may_pause for lane in queue.lanes.values()]:
            if self._judge_pause(lane):
                self.refill(lane)
                self.mark_ready(lane)
                goes_on = True
        if goes_on:
            self.pump(self._clock.wall_ms())

    def pause_below(self, priority_class: int) -> None:
        """Pause every lane while all of its messages are below a priority class; 0: none is paused for that."""
        self._paused_below = priority_class
        self.apply_pause_rules()

    def _judge_pause(self, lane: Lane) -> bool:
        """Pause a lane, or end its pause; return whether it was paused until now."""
        if 0 <= lane.highest_class < self._paused_below or self.pause_rules.rule_for(*lane.key):
            self.hold(lane, Hold.PAUSED)
        elif lane.hold & Hold.PAUSED:
            lane.set_hold(lane.hold & ~Hold.PAUSED)
            self._settler.log.held(lane, PAUSED, RELEASED)
            return True
        return False

    def apply_policies(self) -> None:
        """Apply the policies again: use the smallest window of the routes, and their largest quota of lower classes.

        Where a route has policies for topics, a lane sends fewer messages in a row the more lanes wait: so no present value
        waits for many messages of other topics.
        """
        self.window = min((queue.policy.window for queue in self.queues), default=0)
        self._has_topics = any(queue.policy.topics for queue in self.queues)
        self._ready = ReadyLanes(max((queue.policy.lower_share for queue in self.queues), default=0.0))
        for queue in self.queues:
            queue.quotas.regroup()
            for lane in queue.lanes.values():
                lane.ready_class, lane.listed_classes = -1, 0
                self.mark_ready(lane)

    def mark_ready(self, lane: Lane) -> None:
        """Have a lane served, if it has a message that may be sent; settle its messages if nobody listens to them."""
        if self._paused_below and lane.queue.may_pause:
            self._judge_pause(lane)
        if not self._ready.mark_ready(lane) and lane.is_for_nobody:
            self._absent.unheard(lane)

    def hold(self, lane: Lane, why: Hold) -> None:
        """Hold a lane for one more reason."""
        if why is Hold.PAUSED and not lane.hold & Hold.PAUSED:
            self._settler.log.held(lane, PAUSED)
        lane.set_hold(lane.hold | why)

    def release_hold(self, lane: Lane, why: Hold) -> None:
        """Remove one reason to hold a lane. Without any, it may send."""
        lane.set_hold(lane.hold & ~why)
        self.mark_ready(lane)

    # -- redelivery

    def node_changed(self, is_there: bool) -> None:
        """Redeliver the messages that a lost node may have missed, once a node has joined (``is_there``)."""
        if self.store is not None and is_there:
            self.store.node_came()
            self._refill_some(self._clock.wall_ms())
            self.pump(self._clock.wall_ms())
        elif self.store is not None:
            self.confirm_arrived()  # the lost node's link still proves what arrived
            self.store.node_lost(self._clock.monotonic_s())

    def refill(self, lane: Lane) -> None:
        """Unpack a lane's next messages from their batch, if they are in one. If it cannot be read now, it waits."""
        if lane.redeliveries:
            try:
                self.unpack(lane)
            except JournalError as exc:
                logger.error("batch_not_read endpoint=%s error=%s", self.name, exc)
                self._back_off(lane, _READ_RETRY_S)

    def unpack(self, lane: Lane, whole: bool = False) -> None:
        """Unpack a lane's next messages from their batch, or all of them (``whole``).

        Raises `JournalError` if the batch cannot be read now: call again later.
        """
        store = self.store
        assert store is not None
        for summary in store.refill(lane, whole):
            self._settler.lost(lane, summary)
        if store.answered:
            for delivery in [each for each in lane.items if each.state is QUEUED and store.answered.pop(each.seq, False)]:
                self._settle_answered(delivery)

    def wait_before_last_try(self, lane: Lane, is_lost: bool = False) -> None:
        """Hold a lane for `_LAST_TRY_S` if its returned messages can be sent only once more.

        One loss can have several signs, one after the other, and messages that are sent in between are lost as well.
        ``is_lost``: the flow's last listener was gone. Else a message waits only once, however many signs follow.
        """
        oldest = lane.oldest()
        if self.store is None or not self.store.unconfirmed_s or oldest is None or oldest.returns < MAX_RETURNS:
            return
        if is_lost or oldest.seq > self._waited.get(lane, -1):
            self._waited[lane] = max(delivery.seq for delivery in lane.items if delivery.returns >= MAX_RETURNS)
            self._back_off(lane, _LAST_TRY_S)

    def request_answered(self, response: Attributes) -> None:
        """Settle a Request to this endpoint as delivered, because a Response to it has come from here."""
        if self.store is not None and (delivery := self.store.request_answered(response)) is not None:
            self._settle_answered(delivery)

    def _settle_answered(self, delivery: Delivery) -> None:
        delivery.lane.drop(delivery)
        self._settler.delivered((delivery,))
        self._pump.go_on(self, self.sending is _PUMPING)

    def _refill_some(self, now_ms: int) -> list[Lane]:
        """Refill lanes whose next messages are packed, `_REFILLS` at most, and return them."""
        lanes = [] if self.store is None else self.store.lanes_in_need(now_ms, self._clock.monotonic_s())[:_REFILLS]
        for lane in lanes:
            self.refill(lane)
            self.mark_ready(lane)
        return lanes

    # -- sending

    def pump(self, now_ms: int) -> None:
        """Send the messages that may be sent now."""
        if self.sending is not _IDLE or self._pump.is_held or self.transport.state is not LinkState.UP:
            return
        self.sending = _PUMPING
        try:
            if self._absent.settle_unheard():
                self._pump.go_on(self)
            while self._send_some(now_ms):
                pass
        finally:
            if self.sending is _PUMPING:
                self.sending = _IDLE

    def suspend(self) -> None:
        """Send nothing before `use_transport`."""
        self.sending = _SUSPENDED

    def use_transport(self, transport: UTransport, store: UnconfirmedStore | None) -> None:
        """Go on with another transport, which is not started yet, and redeliver all unconfirmed messages.

        If there was a store, ``store`` has to be the same: its messages must not be lost.
        """
        if self.store is not None:
            self.store.give_back(self._clock.monotonic_s())
            self.store.unconfirmed_s = transport.unconfirmed_s
        self.store = store
        self.transport = transport
        self.flight.forget_times()
        self._has_transport_failed = False
        self.sending = _IDLE
        self._absent.use(transport, self.store)

    def _send_some(self, now_ms: int) -> bool:
        """Send as much as the windows allow; return whether to go on: messages were taken, and few of them had expired."""
        if self._ready.is_empty:
            self.is_window_full = False
            return False
        now_s = self._clock.monotonic_s()
        out, expired = self._collect(now_ms, now_s)
        taken = len(out) + len(expired)
        has_expired_many = len(expired) >= EXPIRED_MESSAGES_PER_TICK and not self._ready.is_empty
        for delivery in expired:
            self._expire(delivery)
        if self._custody.payloads.spilled:
            out = self._loaded(out)
        if len(out) < taken:
            self._pump.go_on(self)
        if out:
            self._submit(out, now_s)
        if has_expired_many:
            self.sending = _DEFERRED
        return taken > 0 and not has_expired_many

    def _collect(self, now_ms: int, now_s: float) -> tuple[list[Delivery], list[Delivery]]:
        most = min(self.window, self.transport.capacity)
        if self.store is not None and self.store.is_full:
            room = 0
        elif self.transport.confirms_in_order:
            room = self.flight.room(self.in_flight, most, now_s)
        else:
            room = most - self.in_flight
        out: list[Delivery] = []
        expired: list[Delivery] = []
        ready = self._ready
        floor = ready.floor()
        while room > 0 and len(expired) < EXPIRED_MESSAGES_PER_TICK and (lane := ready.next(floor, now_s)) is not None:
            size, has_rates = lane.bytes, lane.group.quotas.has_rates
            quantum = 1 if has_rates or ready.is_below else _QUANTUM
            if self._has_topics and quantum > 1:
                quantum = max(1, _QUANTUM // (1 + ready.beside(lane)))
            moved = lane.take(min(min(room, quantum), lane.window - lane.in_flight), now_ms, now_s, out, expired)
            room -= moved
            if ready.is_contested:
                ready.sent(size - lane.bytes)
                self.flight.contested(now_s)
            if moved and has_rates:
                lane.group.quotas.spend(lane.group, out[-1].size, now_s)
            if lane.redeliveries:
                self.refill(lane)
            if lane.queued_messages:
                self.mark_ready(lane)
            if lane.highest_class > floor and lane.is_opening:
                floor = lane.highest_class
        self.in_flight += len(out)
        self.is_window_full = room <= 0 and self.in_flight > 0 and not ready.is_empty
        return out, expired

    def _loaded(self, out: list[Delivery]) -> list[Delivery]:
        """Load payloads that are only in the journal; return the deliveries that can be sent.

        A delivery whose payload is damaged fails; one that cannot be read *now* returns to its lane, which backs off.
        """
        loaded, lost, later = self._custody.payloads.load_all(out)
        self.in_flight -= len(lost) + len(later)
        for delivery in lost:
            delivery.lane.returned()
            self._settler.fail(delivery, UNREADABLE)
            self.mark_ready(delivery.lane)
        self._take_back(later)
        for lane in {delivery.lane for delivery in later}:
            self._back_off(lane, _READ_RETRY_S)
        return loaded

    def _expire(self, delivery: Delivery) -> None:
        self._settler.give_up(delivery, expired_in(delivery.lane, self.name, self.transport.state))

    def _submit(self, out: list[Delivery], now_s: float) -> None:
        for delivery in out:
            delivery.sent_s = now_s
        try:
            self.transport.submit(out, self.on_done)
        except Exception as exc:  # a bug in a plugin costs its messages an attempt, and must not end the daemon
            logger.exception("submit_failed endpoint=%s messages=%d", self.name, len(out))
            self._has_transport_failed = True
            self.on_done(out, RefusedError(UCode.UNKNOWN, f"transport failed: {type(exc).__name__}"))

    def on_done(self, deliveries: Sequence[Delivery], error: SendError | Unconfirmed | None) -> None:
        """Handle the transport's result for submitted deliveries, the same for all deliveries of one call."""
        if self._has_transport_failed:  # it may report again what it took before it failed
            deliveries = [delivery for delivery in deliveries if delivery.state is IN_FLIGHT]
        self._count_sent(deliveries, error is None or error is _UNCONFIRMED)
        if deliveries and error is None and self.transport.confirms_in_order:
            now_s = self._clock.monotonic_s()
            self.flight.confirmed_after(now_s - deliveries[-1].sent_s, len(deliveries), self.in_flight, now_s)
        self.in_flight -= len(deliveries)
        self.results += 1
        if error is _UNCONFIRMED and self.store is not None:
            self._unconfirmed(deliveries, self.store)
        elif error is None or error is _UNCONFIRMED:
            for delivery in deliveries:
                lane = delivery.lane
                lane.succeeded()
                if lane.queued_messages and lane.ready_class < 0:
                    self.mark_ready(lane)
            self._settler.delivered(deliveries)
        elif isinstance(error, LinkLostError):
            self._lost(deliveries, isinstance(error, MayHaveArrivedError))
        else:
            for delivery in deliveries:
                self._refused(delivery, error)
        self._pump.go_on(self, self.sending is _PUMPING)
        if self.flight.has_waiters and self.waiting_for_window <= FEW_WAITING_MESSAGES:
            self.flight.call_waiters()

    def _count_sent(self, deliveries: Sequence[Delivery], were_sent: bool) -> None:
        """Count the bytes of messages that were sent. ``were_sent``: all of them, also if the transport counts no bytes."""
        size = 0
        for delivery in deliveries:
            if were_sent or delivery.wire_bytes:
                stats, payload = delivery.lane.queue.stats, delivery.message.payload_bytes
                stats.sent_payload_bytes += payload
                stats.sent_wire_bytes += delivery.wire_bytes
                size += payload
                delivery.wire_bytes = 0
        self.sent_payload_bytes += size

    def _unconfirmed(self, deliveries: Sequence[Delivery], store: UnconfirmedStore) -> None:
        """Pack deliveries that were sent and will not be confirmed.

        Those sent before the last receiver was lost return to their lane, `MAX_RETURNS` times at most.
        """
        left: list[Delivery] = []
        for delivery in deliveries:
            lane = delivery.lane
            is_unconfirmed = lane.unconfirmed_in_flight > 0
            lane.succeeded()
            if is_unconfirmed and delivery.returns < MAX_RETURNS:
                delivery.history |= REDELIVERED | MAY_HAVE_ARRIVED
                delivery.returns += 1
                lane.put_back(delivery)
                lane.queue.requeued(delivery)
                self.wait_before_last_try(lane)
            else:
                left.append(delivery)
            if lane.queued_messages and lane.ready_class < 0:
                self.mark_ready(lane)
        self._settler.pack_unconfirmed(left, store)

    def _lost(self, deliveries: Sequence[Delivery], may_have_arrived: bool) -> None:
        """Return deliveries to their lanes after the link was lost.

        A message that may have arrived returns `MAX_RETURNS` times at most, any other without a limit.
        """
        if may_have_arrived and self.store is not None and self.store.unconfirmed_s:
            self._unconfirmed([each for each in deliveries if each.returns >= MAX_RETURNS], self.store)
            deliveries = [each for each in deliveries if each.returns < MAX_RETURNS]
        for delivery in deliveries:
            delivery.history |= REDELIVERED | MAY_HAVE_ARRIVED if may_have_arrived else REDELIVERED
            delivery.returns += may_have_arrived
        self._take_back(deliveries)

    def _take_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries in flight to their places in their lanes, without counting an attempt."""
        for delivery in reversed(deliveries):
            lane = delivery.lane
            lane.returned()
            lane.put_back(delivery)
            lane.queue.requeued(delivery)
            self.mark_ready(lane)

    def _refused(self, delivery: Delivery, error: SendError) -> None:
        lane = delivery.lane
        lane.refused()
        delivery.attempts += 1
        queue = lane.queue
        retry = queue.policy.retry
        if isinstance(error, PermanentError) or delivery.attempts >= retry.attempts:
            self._settler.fail(delivery, Failure(Outcome.DEAD_LETTERED, error.code, error.message))
            self.mark_ready(lane)
            return
        queue.stats.retries += 1
        lane.put_back(delivery)
        queue.requeued(delivery)
        self._back_off(lane, wait_s(retry, delivery.attempts, self._random()))

    def _back_off(self, lane: Lane, for_s: float) -> None:
        if not lane.hold & Hold.BACKOFF:
            lane.set_hold(lane.hold | Hold.BACKOFF)
            self._backing_off.set(lane, self._clock.monotonic_s() + for_s)

    def tick(self, now_s: float, now_ms: int) -> None:
        """End back-offs and waits for rates, settle expired and confirmed messages, then send; called regularly."""
        if self.sending is _DEFERRED:
            self.sending = _IDLE
        self._ready.wake(now_s)
        for lane in self._backing_off.take(now_s):
            lane.set_hold(lane.hold & ~Hold.BACKOFF)
            self.refill(lane)
            self.mark_ready(lane)
        for queue in self.queues:
            for delivery in queue.take_expired(now_ms, now_s):
                self._expire(delivery)
            queue.tick(now_s, self.transport.state is LinkState.UP)
        self._absent.tick(now_s)
        if self.store is not None:
            self.confirm_arrived()
            absent_s = max((queue.policy.absent_s for queue in self.queues), default=0.0)
            for lane, summary in self.store.take_confirmed(now_s, absent_s):
                self._settler.count_as_delivered(lane, summary)
            for lane, summary in self.store.take_evicted():
                self._settler.end_unconfirmed(lane, summary)
            self._apply_quotas(self.store, now_s)
            self._refill_some(now_ms)
        self._pump.go_on(self)
        self.pump(now_ms)

    def _apply_quotas(self, store: UnconfirmedStore, now_s: float) -> None:
        """Hold the lanes that have used up their quota of unconfirmed bytes, and report if there is no room at all."""
        before, self._over_quota = self._over_quota, store.over_quota()
        for lane in self._over_quota - before:
            self._settler.log.held(lane, TOO_MUCH_UNCONFIRMED)
            self.hold(lane, Hold.UNCONFIRMED)
        for lane in before - self._over_quota:
            self._settler.log.held(lane, TOO_MUCH_UNCONFIRMED, RELEASED)
            self.release_hold(lane, Hold.UNCONFIRMED)
        if not store.is_full:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        if (is_full := bool(self.problems())) is not self._is_full_reported:
            self._is_full_reported = is_full
            state = (f"room for unconfirmed messages {self.name}", is_full)
            if is_full:
                text = "unconfirmed_full endpoint=%s bytes=%d max_bytes=%d"
                logger.warning(text, self.name, store.unconfirmed_bytes, store.max_bytes, extra={"state": state})
            else:
                logger.info("unconfirmed_has_room endpoint=%s", self.name, extra={"state": state})

    def confirm_arrived(self) -> None:
        """Settle unconfirmed messages that have arrived, by the evidence that the network has now."""
        if self.store is not None:
            now_s = self._clock.monotonic_s()
            for lane, summary in self.store.take_arrived(now_s, self.transport.arrived_until_s(now_s)):
                self._settler.count_as_delivered(lane, summary)
