"""Lanes: one FIFO of deliveries per flow (same source, same sink, same route).

The law of this file:
- A lane sends its deliveries in the order in which they arrived, and puts those that were not delivered back into their
  places. Priority decides between lanes, never inside one.
- A lane is *ready* if it has a delivery, is not held, its own window has room, and nothing in flight is to be sent again
  first. It is held as long as there is one of the reasons in `Hold`. An idle lane may be removed while it is held, except
  for a back-off: the other reasons apply to a new lane of the flow as well.
- The window grows by one with each message that was confirmed, or that a network took which confirms nothing, and falls to
  one with each refusal: after a refusal the flow goes on one message at a time, so that nothing overtakes a message that is
  refused again. Messages that were sent before the refusal do not widen the window.
- A lane of Publishes may be configured otherwise (`TopicPolicy`). One that keeps the latest has at most one delivery that
  was never sent: a newer one replaces it.
- A delivery that was settled while it waited (expired, evicted) stays in the lane and is skipped.
- Unconfirmed messages that are to be redelivered may still be packed in batches (`redeliveries`). No newer message is sent
  before them.

No event loop, no clock, no logger in here.
"""

from collections import deque
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Any, Final, Protocol

from streamer.config.models import QueuePolicy
from streamer.delivery.lanes.quotas import SourceGroup
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Failure
from streamer.routing.table import FlowKey
from streamer.transports.base import Presence, Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import ANY_RESOURCE

CLASSES = 7
EXPIRED_MESSAGES_PER_TICK: Final = 500  # of a queue, an endpoint or a backlog: all TTLs may pass at one moment
_ABSENT: Final = Presence.ABSENT


class DeliveryState(IntEnum):
    """Where a delivery is."""

    QUEUED = 0
    IN_FLIGHT = 1
    SETTLED = 2  # or packed into a batch of unconfirmed messages


QUEUED: Final = DeliveryState.QUEUED  # an enumeration looks its members up slowly
IN_FLIGHT: Final = DeliveryState.IN_FLIGHT
SETTLED: Final = DeliveryState.SETTLED


class Hold(IntFlag):
    """Why a lane may not send."""

    NONE = 0
    BACKOFF = 1  # its first message was refused, or cannot be read from the journal now
    ABSENT = 2  # nobody listens, or it is not known yet whether anybody does
    PAUSED = 4  # a pause rule matches the flow (`PauseRules`)
    UNCONFIRMED = 8  # its flow or source authority has used up its quota of unconfirmed bytes (`UnconfirmedStore`)


REDELIVERED: Final = 1
"""A delivery whose message may have been sent before."""

RESTORED: Final = 2
"""A delivery from a batch or the journal, so that ``entered_s`` is not the time when it arrived."""

REDRIVEN: Final = 4
"""A delivery whose message was a dead letter."""

MAY_HAVE_ARRIVED: Final = 8
"""A delivery that was sent while somebody listened, so that it is not reported as failed when its time is over."""


HOLDS: Final = tuple(hold for hold in Hold if hold)
"""Every reason why a lane may not send that is kept at the lane."""

RATE: Final = "rate"
WINDOW: Final = "window"
WAITS_FOR: Final = (*(str(hold.name).lower() for hold in HOLDS), RATE, WINDOW)
"""Every reason why the messages of a lane may not be sent now, in the words of the API."""


class Delivery:
    """One message on its way over one route.

    ``received`` is the received message, released when this delivery is settled; ``message`` is what is sent. Times of
    arrival: ``entered_s`` (monotonic), ``entered_ms`` (Unix); ``sent_s``: of the last send (0: never).
    ``seq`` orders the lane and is the number in the journal, if ``journaled``. ``spilled``: the payload is only there.
    ``history``: bits of `REDELIVERED`, `RESTORED`, `REDRIVEN` and `MAY_HAVE_ARRIVED`. ``returns`` counts the returns to the
    lane because a receiver or a node was lost; `UnconfirmedStore` bounds them. ``wire_bytes``: what the transport has sent
    of it, until it is counted.
    """

    __deletable__ = ("message", "received")
    __slots__ = (
        "attempts",
        "entered_ms",
        "entered_s",
        "history",
        "journaled",
        "lane",
        "message",
        "received",
        "returns",
        "sent_s",
        "seq",
        "size",
        "spilled",
        "state",
        "wire_bytes",
    )

    def __init__(
        self, received: Received, message: UMessage, lane: "Lane", seq: int, size: int, entered_s: float, entered_ms: int
    ) -> None:
        self.received = received
        self.message = message
        self.lane = lane
        self.seq = seq
        self.size = size
        self.entered_s = entered_s
        self.entered_ms = entered_ms
        self.sent_s = 0.0
        self.attempts = 0
        self.history = 0
        self.returns = 0
        self.state = QUEUED
        self.journaled = False
        self.spilled = False
        self.wire_bytes = 0

    @property
    def since_s(self) -> float:
        """When the message arrived (monotonic), also if it waited outside of the queue first."""
        return self.received.since_s or self.entered_s

    def forget(self) -> None:
        """Drop the message: a settled delivery may stay in lists for a while, and must not keep its payload in memory."""
        del self.message, self.received


class LaneOwner(Protocol):
    """The interface of an egress that lanes and queues use."""

    def lane_added(self, lane: "Lane") -> None:
        """Watch a new lane of a queue."""
        ...

    def lane_retired(self, lane: "Lane") -> None:
        """Forget an idle lane that a queue has removed."""
        ...

    def queued(self, lane: "Lane") -> None:
        """Send a delivery that was put into a lane soon."""
        ...

    def evict(self, delivery: "Delivery", failure: Failure) -> None:
        """Settle a message that waits in a lane and cannot be kept."""
        ...

    @property
    def is_window_full(self) -> bool:
        """Whether messages wait because as many as the endpoint may have in flight are unconfirmed."""
        ...


class LaneQueue(Protocol):
    """The interface of a route's queue that lanes and their users need."""

    name: str
    source: str
    target: str
    policy: QueuePolicy
    stats: RouteStats
    unconfirmed: int

    @property
    def owner(self) -> LaneOwner: ...
    @property
    def applies_backpressure(self) -> bool: ...
    @property
    def may_pause(self) -> bool: ...
    def count_held(self, hold: "Hold", messages: int, size: int) -> None: ...
    def least(self, priority_class: int) -> "Delivery | None": ...
    def put_back_all(self, lane: "Lane", deliveries: "list[Delivery]") -> None: ...
    def restore_all(self, lane: "Lane", deliveries: "list[Delivery]") -> None: ...
    def requeued(self, delivery: "Delivery") -> None: ...
    def pack_away(self, delivery: "Delivery") -> None: ...
    def leave(self, delivery: "Delivery") -> None: ...


class Lane:
    """The FIFO of one flow, which belongs to a ``group``.

    ``queued_messages`` counts the deliveries that wait here, not those packed in batches. ``ready_class`` is the priority
    class under which the egress serves the lane, or -1 if it is not ready; ``listed_classes`` has a bit for each class in
    whose list it is, also where that entry is stale. ``unconfirmed`` counts sent messages that are packed in
    batches until they are confirmed; ``redeliveries`` are the batches to be sent again, each with its lowest ``seq``.
    ``unconfirmed_in_flight`` counts messages that were in flight when the last receiver was lost: the lane waits for their
    results and sends them again, before younger ones. ``lost_receiver``: the flow had a receiver and has none now, so
    messages wait for one. ``keeps_latest``: see `TopicPolicy`.
    """

    __slots__ = (
        "absent_since_s",
        "by_class",
        "bytes",
        "entered_s",
        "group",
        "highest_class",
        "hold",
        "in_flight",
        "items",
        "keeps_latest",
        "key",
        "listed_classes",
        "lost_receiver",
        "max_window",
        "presence",
        "queue",
        "queued_messages",
        "ready_class",
        "redeliveries",
        "retired",
        "sent_before_refusal",
        "unconfirmed",
        "unconfirmed_in_flight",
        "window",
    )

    def __init__(self, key: FlowKey, queue: LaneQueue, group: SourceGroup) -> None:
        self.key = key
        self.queue = queue
        self.group = group
        self.items: deque[Delivery] = deque()
        self.queued_messages = 0
        self.bytes = 0
        self.entered_s = 0.0  # of the newest message
        self.in_flight = 0
        self.window = 1
        self.max_window = 1
        self.sent_before_refusal = 0  # sent before the last refusal and not answered yet
        self.hold = Hold.NONE
        self.ready_class = -1
        self.listed_classes = 0
        self.retired = False
        self.by_class = [0] * CLASSES
        self.highest_class = -1
        self.presence = Presence.PRESENT
        self.absent_since_s: float | None = None
        self.unconfirmed = 0
        self.unconfirmed_in_flight = 0
        self.lost_receiver = False
        self.keeps_latest = False
        self.redeliveries: list[tuple[int, Any]] = []  # few, and an empty deque takes 700 bytes
        self.use(queue.policy)

    @property
    def is_ready(self) -> bool:
        """Whether a message of this lane may be sent now."""
        return self.queued_messages > 0 and not self.hold and not self.unconfirmed_in_flight and self.in_flight < self.window

    @property
    def is_opening(self) -> bool:
        """Whether more could be sent if the lane's window, which is still growing, were larger."""
        is_full = self.window <= self.in_flight < self.max_window
        return is_full and self.queued_messages > 0 and not self.hold and not self.unconfirmed_in_flight

    def waits_for(self) -> list[str]:
        """Return why its messages may not be sent now, of `WAITS_FOR`; empty if they only wait for the turn of others."""
        found = [str(hold.name).lower() for hold in HOLDS if self.hold & hold]
        if not self.waiting_messages:
            return found
        group = self.group
        if group.parked or (group.parent is not None and group.parent.parked):
            found.append(RATE)
        if self.unconfirmed_in_flight or self.in_flight >= self.window or self.queue.owner.is_window_full:
            found.append(WINDOW)
        return found

    @property
    def is_idle(self) -> bool:
        """Whether the lane could be removed, and a new one made later, without any difference."""
        return self.queued_messages == 0 and self.in_flight == 0 and self.unconfirmed == 0 and not self.hold & Hold.BACKOFF

    @property
    def wants_redelivery(self) -> bool:
        """Whether the next message to send is packed in a batch."""
        if not self.redeliveries:
            return False
        oldest = self.oldest()
        return oldest is None or oldest.seq > self.redeliveries[0][0]

    def oldest(self) -> Delivery | None:
        """Return the first delivery that waits here, not counting those packed in batches, or None."""
        items = self.items
        while items and items[0].state is not QUEUED:
            items.popleft()
        return items[0] if items else None

    def push(self, delivery: Delivery) -> None:
        """Append the newest delivery."""
        self.items.append(delivery)
        self.entered_s = delivery.entered_s
        self._count(delivery)

    def replaceable(self) -> list[Delivery]:
        """Return the deliveries that a newer one replaces: if only the latest is kept, those that were never sent."""
        if not self.keeps_latest or self.oldest() is None:
            return []
        found = []
        for each in reversed(self.items):
            if each.state is not QUEUED:
                continue
            if each.history & RESTORED:  # so is everything before it, which may be much
                break
            if not each.history & (REDELIVERED | MAY_HAVE_ARRIVED):
                found.append(each)
        return found[::-1]

    def put_back(self, delivery: Delivery) -> None:
        """Put a delivery back into its place."""
        delivery.state = QUEUED
        items = self.items
        at = 0
        while at < len(items) and items[at].seq < delivery.seq:
            at += 1
        items.insert(at, delivery)
        self._count(delivery)

    def put_back_all(self, deliveries: Sequence[Delivery]) -> None:
        """Put deliveries, which are in order, back into their places."""
        items = self.items
        if not items or items[0].seq > deliveries[-1].seq:
            items.extendleft(reversed(deliveries))
            for delivery in deliveries:
                delivery.state = QUEUED
                self._count(delivery)
        else:
            for delivery in reversed(deliveries):
                self.put_back(delivery)

    def restore_all(self, deliveries: Sequence[Delivery]) -> None:
        """Insert deliveries of an earlier process, which are in order, behind older ones and before those received since."""
        items = self.items
        together = list(deliveries)
        while items and items[-1].seq > deliveries[0].seq:
            together.append(items.pop())
        if len(together) > len(deliveries):
            together.sort(key=lambda delivery: delivery.seq)
        items.extend(together)
        for delivery in deliveries:
            self._count(delivery)

    def take(self, count: int, now_ms: int, now_s: float, out: list[Delivery], expired: list[Delivery]) -> int:
        """Move up to ``count`` deliveries, the oldest first, to ``out``; return the number moved.

        Those that have expired by now (wall clock and monotonic) go to ``expired`` instead and are not counted: the caller
        settles them. Ends early once ``expired`` has `EXPIRED_MESSAGES_PER_TICK` of them.
        """
        items = self.items
        moved = 0
        redelivery_seq = self.redeliveries[0][0] if self.redeliveries else None
        while moved < count and items:
            delivery = items.popleft()
            if delivery.state is not QUEUED:
                continue
            if redelivery_seq is not None and delivery.seq > redelivery_seq:
                items.appendleft(delivery)
                break
            self._discount(delivery)
            message = delivery.message
            ttl = message.attributes.ttl
            if ttl:
                ahead_ms = int.from_bytes(message.id[:6], "big") - now_ms
                if ahead_ms + ttl < 0 or (ahead_ms > 0 and message.is_expired(now_ms, now_s - delivery.since_s)):
                    expired.append(delivery)
                    if len(expired) >= EXPIRED_MESSAGES_PER_TICK:
                        break
                    continue
            delivery.state = IN_FLIGHT
            out.append(delivery)
            moved += 1
        self.in_flight += moved
        return moved

    def drop(self, delivery: Delivery) -> None:
        """Take out a waiting delivery, which the caller settles. Settled entries are removed when there are many."""
        self._discount(delivery)
        delivery.state = SETTLED
        if len(self.items) > 2 * self.queued_messages + 64:
            self.items = deque(item for item in self.items if item.state is QUEUED)

    def succeeded(self) -> None:
        """Count a delivery that was confirmed, or that a network took which confirms nothing, and widen the window."""
        if not self.sent_before_refusal and self.window < self.max_window:
            self.window += 1
        self.returned()

    def refused(self) -> None:
        """Count the refusal of a delivery, and narrow the window to one."""
        self.returned()
        self.sent_before_refusal = self.in_flight
        self.window = 1

    def returned(self) -> None:
        """Count a delivery that is no longer in flight."""
        self.in_flight -= 1
        if self.unconfirmed_in_flight:
            self.unconfirmed_in_flight -= 1
        if self.sent_before_refusal:
            self.sent_before_refusal -= 1

    def waiting(self) -> list[Delivery]:
        """Return the deliveries that wait here, in order, without those packed in batches."""
        return [delivery for delivery in self.items if delivery.state is QUEUED]

    @property
    def waiting_messages(self) -> int:
        """How many messages wait here, including those packed in batches."""
        packed: int = sum(batch.lanes[self].count for _, batch in self.redeliveries)
        return self.queued_messages + packed

    @property
    def is_publish(self) -> bool:
        """Whether this is a flow of Publishes, which may have any number of receivers, or none."""
        sink = self.key[1]
        return sink is None or sink.resource == ANY_RESOURCE

    @property
    def is_for_nobody(self) -> bool:
        """Whether Publishes wait here that nobody listens to, or listened to before. False while the lane is paused."""
        is_unheard = self.presence is _ABSENT and self.queued_messages > 0 and self.is_publish and not self.lost_receiver
        return is_unheard and not self.hold & Hold.PAUSED

    def use(self, policy: QueuePolicy) -> None:
        """Use another policy from now on."""
        self.max_window = policy.flow_window
        self.window = min(self.window, policy.flow_window)
        if policy.topics and self.is_publish:
            of_topic = policy.of_topic(self.key[0])
            self.keeps_latest = of_topic.keep == "latest"
        else:
            self.keeps_latest = False

    def set_hold(self, hold: Hold) -> None:
        """Hold the lane for these reasons from now on, and for no others."""
        if self.hold:
            self.queue.count_held(self.hold, -self.queued_messages, -self.bytes)
        self.hold = hold
        if hold:
            self.queue.count_held(hold, self.queued_messages, self.bytes)

    def _count(self, delivery: Delivery) -> None:
        self.queued_messages += 1
        self.bytes += delivery.size
        if self.hold:
            self.queue.count_held(self.hold, 1, delivery.size)
        level = delivery.message.attributes.priority_class
        self.by_class[level] += 1
        if level > self.highest_class:
            self.highest_class = level

    def _discount(self, delivery: Delivery) -> None:
        self.queued_messages -= 1
        self.bytes -= delivery.size
        if self.hold:
            self.queue.count_held(self.hold, -1, -delivery.size)
        level = delivery.message.attributes.priority_class
        self.by_class[level] -= 1
        if level == self.highest_class and not self.by_class[level]:
            while level >= 0 and not self.by_class[level]:
                level -= 1
            self.highest_class = level
