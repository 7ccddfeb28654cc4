"""A route's egress queue: its lanes, its bounds in messages and bytes, and what happens at the bound.

Every message that the route has accepted and not settled counts towards the bounds, also in flight; stalled and unconfirmed
messages do not. No event loop, no clock and no logger in here.
"""

import itertools
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from streamer.config.models import QueuePolicy
from streamer.delivery.lanes.deadlines import Deadlines
from streamer.delivery.lanes.lane import CLASSES, QUEUED, SETTLED, Delivery, Hold, Lane, LaneOwner
from streamer.delivery.lanes.quotas import Quotas
from streamer.delivery.stats import RouteAccount, RouteStats
from streamer.routing.table import FlowKey
from streamer.transports.base import Received
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

_MAX_LANES = 4096
FEW_LANES: Final = 128
"""How many lanes of a queue stay however long they are idle."""
IDLE_S: Final = 60.0
"""How long a lane may be idle if there are more than `FEW_LANES`."""
_RETIRED_LANES_PER_S = 64  # the transport forgets the flow of each, which may take some time
_RETIRES_EVERY_S = 1.0
# How many lanes are examined in each tick, on average, while there are too many and none of them is idle.
_LOOKED_AT_PER_TICK = 200
# What a flow costs in addition to its messages: its lane, and what was decided for it.
_LANE_BYTES = 5000


class Room(Enum):
    """Whether a queue takes another message."""

    YES = "yes"
    AFTER_EVICTION = "after_eviction"
    NO = "no"


@dataclass(slots=True)
class Tally:
    """A number of messages and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class RouteQueue:
    """The lanes of one route, from endpoint ``source`` to endpoint ``target``.

    ``source`` is empty for messages that the streamer makes itself. ``owner`` sends the messages that wait here; ``number``
    gives each delivery its ``seq``; ``has_journal``: a journal has the messages, so stalled ones need not count.
    ``unconfirmed`` counts sent messages that the destination has not confirmed: they have no outcome yet, and do not count
    towards the bounds. ``held`` and ``paused`` count messages in lanes that are held for any reason, and in paused lanes.
    ``named``: see `Quotas`.
    """

    def __init__(
        self,
        name: str,
        source: str,
        target: str,
        policy: QueuePolicy,
        stats: RouteStats,
        owner: LaneOwner,
        number: Callable[[], int] | None = None,
        has_journal: bool = False,
        named: Container[str] | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.target = target
        self._take_bounds(policy)
        self.stats = stats
        self.messages = 0
        self.bytes = 0
        self.unconfirmed = 0
        self.may_retire = True  # idle lanes are retired when there are many
        self.stalled = Tally()  # see `judge_stalled`
        self.held = Tally()
        self.paused = Tally()
        self.owner = owner
        self._has_journal = has_journal
        self.lanes: dict[FlowKey, Lane] = {}
        self.quotas = Quotas(policy, stats, named)
        self._number = number or itertools.count(1).__next__
        self._evictable = policy.queue.on_full == "evict"
        self._retire_at = _MAX_LANES
        self._retires_s = 0.0
        self._ticks_to_pass = 0
        self._by_age: list[deque[Delivery]] = [deque() for _ in range(CLASSES)]
        self.deadlines = Deadlines()

    def rename(self, name: str) -> None:
        """Set another name. The account begins anew, with the messages that are here."""
        if name != self.name:
            self.name = name
            self.stats = self.quotas.stats = RouteStats()
            self.stats.accepted = self.messages + self.unconfirmed

    def use(self, policy: QueuePolicy, named: Container[str] | None = None) -> None:
        """Use another policy and other listed authorities; waiting messages stay. Then call `Egress.apply_policies`."""
        self._take_bounds(policy)
        if not self.applies_backpressure:
            self.stalled = Tally()
        counted = self.quotas.counts_usage
        self.quotas.use(policy, named)
        if self.quotas.counts_usage and not counted:
            self._count_usage()
        if self._evictable != (policy.queue.on_full == "evict"):
            self._evictable = not self._evictable
            self._by_age = [deque() for _ in range(CLASSES)]
            if self._evictable:
                for delivery in sorted(self.waiting(), key=lambda waiting: waiting.seq):
                    self._by_age[delivery.message.attributes.priority_class].append(delivery)
        for lane in self.lanes.values():
            lane.use(policy)

    def _take_bounds(self, policy: QueuePolicy) -> None:
        """Set the bounds. ``applies_backpressure``: a message that does not fit waits in the backlog, not rejected."""
        self.policy = policy
        bounds = policy.queue
        self.applies_backpressure: bool = bounds.on_full == "backpressure"
        self._most: int = bounds.messages  # read for every message
        self._most_bytes: int = bounds.bytes

    def lane(self, key: FlowKey) -> Lane:
        """Return the lane of a flow, created if there is none."""
        lane = self.lanes.get(key)
        if lane is None:
            if len(self.lanes) >= self._retire_at and self.may_retire:
                self._retire_idle_lanes()
                self._retire_at = max(_MAX_LANES, 2 * len(self.lanes))
            group = self.quotas.group(key[0].authority)
            group.lanes += 1
            lane = self.lanes[key] = Lane(key, self, group)
            self.owner.lane_added(lane)
        return lane

    def exceeds_quota(self, authority: str, size: int, copies: int = 1) -> bool:
        """Whether a message would exceed the quota of its source authority. An empty queue takes any message."""
        if not self.messages:
            return False
        stalled = self.stalled
        return self.quotas.are_exceeded_by(
            authority, copies, size, self.messages - stalled.messages, self.bytes - stalled.bytes, stalled.messages
        )

    def fits(self, size: int, copies: int = 1) -> bool:
        """Whether ``copies`` more messages, ``size`` bytes in total, stay within the bounds."""
        return (
            self.messages - self.stalled.messages + copies <= self._most
            and self.bytes - self.stalled.bytes + size <= self._most_bytes
        )

    def fits_instead(self, outdated: Sequence[Delivery], size: int, copies: int = 1) -> bool:
        """Whether ``copies`` more messages, ``size`` bytes in total, stay within the bounds once ``outdated`` are gone.

        Also if they need no more room than those, however much is queued.
        """
        if not outdated:
            return False
        more, more_bytes = copies - len(outdated), size - sum([each.size for each in outdated])
        return (more <= 0 and more_bytes <= 0) or self.fits(more_bytes, more)

    def count_held(self, hold: Hold, messages: int, size: int) -> None:
        """Count messages that wait in a lane held for these reasons; negative numbers count those that no longer wait."""
        self.held.add(messages, size)
        if hold & Hold.PAUSED:
            self.paused.add(messages, size)

    def tick(self, now_s: float, is_endpoint_up: bool) -> None:
        """Judge what is stalled, and retire lanes beyond `FEW_LANES` that were idle for `IDLE_S`; called regularly."""
        self.judge_stalled(is_endpoint_up)
        if len(self.lanes) > FEW_LANES and self.may_retire and now_s >= self._retires_s:
            self._retires_s = now_s + _RETIRES_EVERY_S
            self._retire_old(now_s)

    def judge_stalled(self, is_endpoint_up: bool) -> None:
        """Set how many messages are stalled: they cannot be sent, the journal has them, and they do not count as queued.

        That is at most ``stalled_factor`` times the bounds, and not more than before once there are as many flows as the
        bytes have room for, because a flow takes more memory than a message. Once the messages can be sent, the extra room
        shrinks with the queue.
        """
        bounds = self.policy.queue
        if not (self._has_journal and self.applies_backpressure):
            return
        half, half_bytes = bounds.messages // 2, bounds.bytes // 2
        still = Tally()
        most = max(_MAX_LANES, bounds.bytes // _LANE_BYTES)
        if len(self.lanes) > most and self.may_retire and self.messages < len(self.lanes) // 2:
            self._retire_some()
        has_many_flows = len(self.lanes) > most
        if not has_many_flows and (self.messages > half or self.bytes > half_bytes):
            still = self.held if is_endpoint_up else Tally(self.messages, self.bytes)
        left = max(0, min(self.stalled.messages, self.messages - half))
        left_bytes = max(0, min(self.stalled.bytes, self.bytes - half_bytes))
        self.stalled = Tally(
            min(max(still.messages, left), bounds.messages * bounds.stalled_factor),
            min(max(still.bytes, left_bytes), bounds.bytes * bounds.stalled_factor),
        )

    def room_for(self, size: int, copies: int = 1) -> Room:
        """Whether ``copies`` of a message fit, ``size`` bytes in total. An empty queue takes any message."""
        if self.fits(size, copies) or not self.messages:
            return Room.YES
        return Room.AFTER_EVICTION if self._evictable else Room.NO

    def push(self, received: Received, message: UMessage, lane: Lane, entered_s: float, entered_ms: int) -> Delivery:
        """Accept a message and append it to a lane, whatever the bounds say: ask `room_for` first."""
        size = message.size
        delivery = Delivery(received, message, lane, self._number(), size, entered_s, entered_ms)
        self.messages += 1
        self.bytes += size
        if self.quotas.counts_usage:
            lane.group.add(1, size)
        self.stats.accept(received)
        lane.push(delivery)
        attributes = message.attributes
        if attributes.ttl:
            self.deadlines.fresh.append(delivery)
        if self._evictable:
            self._by_age[attributes.priority_class].append(delivery)
        return delivery

    def put_back_all(self, lane: Lane, deliveries: list[Delivery]) -> None:
        """Put deliveries from a batch, in the order of their ``seq``, back into their lane."""
        lane.put_back_all(deliveries)
        self._count_all(lane, deliveries)
        for delivery in reversed(deliveries):
            self.requeued(delivery)

    def restore_all(self, lane: Lane, deliveries: list[Delivery]) -> None:
        """Accept deliveries of an earlier process, in the order of their ``seq``. Call `restored` after the last ones."""
        self.stats.accepted += len(deliveries)
        lane.restore_all(deliveries)
        self._count_all(lane, deliveries)
        if self._evictable:
            for delivery in deliveries:
                self._by_age[delivery.message.attributes.priority_class].append(delivery)

    def restored(self) -> None:
        """End the restoring of an earlier process's deliveries: idle lanes may be retired again."""
        self.may_retire = True
        for level, by_age in enumerate(self._by_age):  # newer messages may be before restored ones
            self._by_age[level] = deque(sorted(by_age, key=lambda delivery: delivery.seq))

    def _count_all(self, lane: Lane, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.messages += 1
            self.bytes += delivery.size
            if self.quotas.counts_usage:
                lane.group.add(1, delivery.size)
            if delivery.message.attributes.ttl:
                self.deadlines.fresh.append(delivery)

    def pack_away(self, delivery: Delivery) -> None:
        """Count a delivery as unconfirmed: it was sent, and no longer counts towards the bounds."""
        self.leave(delivery)
        self.unconfirmed += 1
        delivery.lane.unconfirmed += 1

    def victims(self, size: int, priority_class: int) -> list[Delivery] | None:
        """Return the deliveries to evict for a new message, lowest class first, oldest first.

        Messages of a higher class than the new one, or in flight, are not evicted. None: that is not enough; the caller
        rejects the new message.
        """
        bounds = self.policy.queue
        messages, size_left = self.messages, self.bytes
        chosen: dict[Delivery, None] = {}  # may be ten thousand, for one large message
        for delivery in self._waiting_up_to(priority_class):
            if messages < bounds.messages and size_left + size <= bounds.bytes:
                break
            if delivery in chosen:  # listed twice: it was in flight and came back
                continue
            chosen[delivery] = None
            messages -= 1
            size_left -= delivery.size
        fits = messages < bounds.messages and (size_left + size <= bounds.bytes or not messages)
        return list(chosen) if fits else None

    def least(self, priority_class: int) -> Delivery | None:
        """Return the delivery to evict first for a new message of that class: lowest class, then oldest; None: none."""
        return next(self._waiting_up_to(priority_class), None)

    def _waiting_up_to(self, priority_class: int) -> Iterator[Delivery]:
        for level in range(priority_class + 1):
            by_age = self._by_age[level]
            while by_age and by_age[0].state is not QUEUED:
                by_age.popleft()  # one in flight is added again by `requeued`
            yield from (delivery for delivery in by_age if delivery.state is QUEUED)

    def requeued(self, delivery: Delivery) -> None:
        """Record that a delivery waits again after it was in flight."""
        if self._evictable:
            self._by_age[delivery.message.attributes.priority_class].appendleft(delivery)

    def leave(self, delivery: Delivery) -> None:
        """Stop counting a delivery, which is settled."""
        delivery.state = SETTLED
        self.messages -= 1
        self.bytes -= delivery.size
        if self.quotas.counts_usage:
            delivery.lane.group.add(-1, -delivery.size)

    def _count_usage(self) -> None:
        """Have groups begin to count. Deliveries in flight count with 0 bytes until the group has none left."""
        for group in self.quotas.groups.values():
            group.messages = group.bytes = 0
        for lane in self.lanes.values():
            lane.group.messages += lane.queued_messages + lane.in_flight
            lane.group.bytes += lane.bytes

    def take_expired(self, now_ms: int, now_s: float) -> list[Delivery]:
        """Take out and return deliveries that have expired while they waited: the caller settles them. Called regularly."""
        expired = self.deadlines.take(now_ms, now_s, self.messages)
        if self._evictable:
            self._sweep_ages()
        return expired

    @property
    def may_pause(self) -> bool:
        """Whether its lanes can be paused. Those of the streamer's services cannot, because these resume flows."""
        return bool(self.source) and LOCAL_ENDPOINT not in (self.source, self.target)

    def paused_lanes(self) -> list[Lane]:
        """Return the paused lanes."""
        return [lane for lane in self.lanes.values() if lane.hold & Hold.PAUSED]

    def has_room_for_paused(self, size: int) -> bool:
        """Whether one more message may wait in a paused lane.

        Paused flows may use half of the bounds, and the extra room for stalled messages: otherwise a flow that is paused for
        long would fill the queue, and finally block its whole source. With ``on_full: evict`` there is no such limit.
        """
        bounds = self.policy.queue
        beside = bounds.stalled_factor if self._has_journal and self.applies_backpressure else 0
        most, most_bytes = (bound // 2 + bound * beside for bound in (bounds.messages, bounds.bytes))
        return self._evictable or (self.paused.messages < most and self.paused.bytes + size <= most_bytes)

    @property
    def paused_messages(self) -> int:
        """How many messages wait in paused lanes, including those packed in batches, without those in flight."""
        return sum(lane.waiting_messages for lane in self.paused_lanes())

    def waiting(self) -> Iterator[Delivery]:
        """Yield every delivery that waits in a lane."""
        for lane in self.lanes.values():
            for delivery in lane.items:
                if delivery.state is QUEUED:
                    yield delivery

    def oldest_entered_s(self) -> float | None:
        """Return when the message that has waited longest arrived (monotonic seconds), or None."""
        heads = (next((item for item in lane.items if item.state is QUEUED), None) for lane in self.lanes.values())
        return min((head.entered_s for head in heads if head is not None), default=None)

    def account(self, now_s: float) -> RouteAccount:
        """Return the account of the route at a time on the monotonic clock."""
        oldest_s = self.oldest_entered_s()
        return RouteAccount(
            self.name,
            self.source,
            self.target,
            self.stats,
            self.messages + self.unconfirmed,
            self.bytes,
            0.0 if oldest_s is None else now_s - oldest_s,
            self.unconfirmed,
            len(self.paused_lanes()) if self.may_pause else None,
            self.paused_messages,
        )

    def _retire_old(self, now_s: float) -> None:
        old = (lane for lane in self.lanes.values() if now_s - lane.entered_s >= IDLE_S and lane.is_idle)
        for lane in list(islice(old, min(len(self.lanes) - FEW_LANES, _RETIRED_LANES_PER_S))):
            self._retire(lane)

    def _sweep_ages(self) -> None:
        for level, by_age in enumerate(self._by_age):
            if len(by_age) > self.messages + 1000:
                self._by_age[level] = deque(item for item in by_age if item.state is not SETTLED)

    def _retire_some(self) -> None:
        """Retire idle lanes, but not at every tick: all lanes may have unconfirmed messages, so that none is idle."""
        self._ticks_to_pass -= 1
        if self._ticks_to_pass < 0:
            self._retire_idle_lanes()
            self._ticks_to_pass = len(self.lanes) // _LOOKED_AT_PER_TICK

    def _retire_idle_lanes(self) -> None:
        """Retire idle lanes until half are left, first those of the group with the most lanes."""
        most = max(self.quotas.groups.values(), key=lambda group: group.lanes)
        before = len(self.lanes)
        idle = [lane for lane in self.lanes.values() if lane.is_idle]
        for only in (most, None):
            for lane in idle:
                if not lane.retired and only in (None, lane.group):
                    self._retire(lane)
            if len(self.lanes) <= before // 2:
                break

    def _retire(self, lane: Lane) -> None:
        lane.retired = True
        del self.lanes[lane.key]
        lane.group.lanes -= 1
        if not lane.group.lanes:
            del self.quotas.groups[lane.key[0].authority]
        self.owner.lane_retired(lane)
