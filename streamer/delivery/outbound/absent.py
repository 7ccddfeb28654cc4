"""Holds lanes whose flow nobody listens to, on networks that can tell (Zenoh).

- A lane is held (`Hold.ABSENT`) while nobody listens to its flow, or while it is not known whether anybody does.
- When the last listener of a flow leaves, the flow's unconfirmed messages return to its lane. They also return, but only a
  few times, when one of its listeners may have been away for a moment (`UnconfirmedStore.redeliver`).
- A Publish that nobody listens to is settled at once. Exception: if its lane has just lost its last listener while messages
  were unconfirmed, or had returned and were not sent again yet, it waits for a listener like other messages. The same holds
  if a node was lost before it was known whether anybody listens.
- Messages that have waited for ``absent_s`` are given up, unless they are paused. Once a lane has no more Publishes that its
  lost listener may have missed, younger ones are settled at once.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice, takewhile
from typing import Protocol

from streamer.clock import Clock
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, QUEUED, REDELIVERED, Hold, Lane
from streamer.delivery.outcomes.flow_log import NOBODY_LISTENS, RELEASED
from streamer.delivery.outcomes.settle import Settler
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState, Presence, UTransport
from streamer.uprotocol.status import UCode

_UNHEARD_MESSAGES_PER_PUMP = 2000  # more than one read from a network brings


class LaneHolder(Protocol):
    """The interface of an egress, which holds, releases and sends the lanes."""

    def mark_ready(self, lane: Lane) -> None: ...
    def hold(self, lane: Lane, why: Hold) -> None: ...
    def release_hold(self, lane: Lane, why: Hold) -> None: ...
    def refill(self, lane: Lane) -> None: ...
    def wait_before_last_try(self, lane: Lane, is_lost: bool = False) -> None: ...
    def confirm_arrived(self) -> None: ...
    def pump(self, now_ms: int) -> None: ...


class AbsentLanes:
    """The lanes of one egress that nobody listens to."""

    def __init__(
        self, transport: UTransport, settler: Settler, store: UnconfirmedStore | None, clock: Clock, egress: LaneHolder
    ) -> None:
        self._transport = transport
        self._settler = settler
        self._store = store
        self._clock = clock
        self._egress = egress
        self._watched: dict[Lane, Callable[[Presence], None]] = {}
        self._absent: dict[Lane, None] = {}
        self._logged: set[Lane] = set()  # those of them that the log reports as held
        self._unheard: dict[Lane, None] = {}  # those of them whose messages are to be settled as unheard
        self._interrupted: set[Lane] = set()  # whose listener may have been away for a moment, until it is known to be there

    def watch(self, lane: Lane) -> None:
        """Watch whether anybody listens to the flow of a new lane."""
        on_presence = self._watched[lane] = partial(self._presence_changed, lane)
        presence = self._transport.receivers.watch(*lane.key, on_presence)
        if presence is not Presence.PRESENT:
            self._presence_changed(lane, presence)

    def use(self, transport: UTransport, store: UnconfirmedStore | None) -> None:
        """Ask another transport about every lane from now on."""
        before, self._transport, self._store = self._transport, transport, store
        for lane, on_presence in list(self._watched.items()):
            before.receivers.forget(*lane.key, on_presence)
            self._presence_changed(lane, transport.receivers.watch(*lane.key, on_presence))

    def forget(self, lane: Lane) -> None:
        """Stop watching a lane that is removed."""
        on_presence = self._watched.pop(lane, None)
        if on_presence is not None:
            self._transport.receivers.forget(*lane.key, on_presence)
        self._absent.pop(lane, None)
        self._interrupted.discard(lane)
        self._logged.discard(lane)
        self._unheard.pop(lane, None)

    def _presence_changed(self, lane: Lane, presence: Presence) -> None:
        if lane.presence is Presence.PRESENT and _may_have_lost(lane):
            lane.lost_receiver = True
        lane.presence = presence
        if presence is Presence.PRESENT:
            was_lost, lane.absent_since_s = lane.absent_since_s is not None, None
            lane.lost_receiver = False
            self._absent.pop(lane, None)
            self._unheard.pop(lane, None)
            if lane in self._logged:
                self._logged.remove(lane)
                self._settler.log.held(lane, NOBODY_LISTENS, RELEASED)
            self._egress.refill(lane)
            if was_lost or lane in self._interrupted:
                self._interrupted.discard(lane)
                self._egress.wait_before_last_try(lane, was_lost)
            self._egress.release_hold(lane, Hold.ABSENT)
            self._egress.pump(self._clock.wall_ms())
            return
        self._egress.hold(lane, Hold.ABSENT)
        if presence is Presence.ABSENT:
            self._nobody(lane, self._clock.monotonic_s())
        elif presence is Presence.INTERRUPTED:
            self._interrupted.add(lane)
            lane.lost_receiver |= lane.queued_messages > 0  # a listener may have been there when they arrived
            self._redeliver(lane, self._clock.monotonic_s(), has_listener=True)

    def _nobody(self, lane: Lane, now_s: float) -> None:
        if lane.absent_since_s is None:
            lane.absent_since_s = now_s
        self._absent[lane] = None
        self._redeliver(lane, now_s, has_listener=False)
        if lane not in self._logged and (lane.lost_receiver or not lane.is_publish):  # others do not wait
            self._logged.add(lane)
            self._settler.log.held(lane, NOBODY_LISTENS)
        self._egress.mark_ready(lane)

    def _redeliver(self, lane: Lane, now_s: float, has_listener: bool) -> None:
        """Return unconfirmed messages to their lane. ``has_listener``: see `UnconfirmedStore.redeliver`."""
        if lane.unconfirmed:
            self._egress.confirm_arrived()  # a listener that leaves in order has taken earlier messages
        if lane.unconfirmed or lane.in_flight:
            lane.lost_receiver = True
            lane.unconfirmed_in_flight = lane.in_flight
            if self._store is not None and lane.unconfirmed:
                for summary in self._store.redeliver(lane, now_s, has_listener):
                    self._settler.end_unconfirmed(lane, summary)

    def unheard(self, lane: Lane) -> None:
        """Have the messages of a lane settled with the next pump, because nobody listens to them."""
        self._unheard[lane] = None

    def settle_unheard(self) -> bool:
        """Settle messages that nobody listens to, `_UNHEARD_MESSAGES_PER_PUMP` at most.

        Return whether there were any and none is left.
        """
        if not self._unheard:
            return False
        left = _UNHEARD_MESSAGES_PER_PUMP
        for lane in list(self._unheard):
            while left and lane.is_for_nobody and (delivery := lane.oldest()) is not None:
                lane.drop(delivery)
                self._settler.unheard(delivery)
                left -= 1
            if not left:
                return False  # the next pump goes on
            self._unheard.pop(lane, None)
        return True

    def tick(self, now_s: float) -> None:
        """Give up messages that have waited too long for a listener, but none while the link is down; called regularly."""
        if self._transport.state is LinkState.DOWN:
            return
        left = EXPIRED_MESSAGES_PER_TICK
        for lane in list(self._absent):
            absent_s = lane.queue.policy.absent_s
            if lane.hold & Hold.PAUSED or not left:
                continue
            if lane.absent_since_s is not None and now_s - lane.absent_since_s > absent_s:
                left -= self._give_up(lane, now_s, absent_s, left)

    def _give_up(self, lane: Lane, now_s: float, absent_s: float, most: int) -> int:
        """Give up messages of a lane that have waited for ``absent_s``, ``most`` at most; return their number."""
        if lane.wants_redelivery:
            self._egress.refill(lane)
        waiting = (delivery for delivery in lane.items if delivery.state is QUEUED)
        given_up = list(takewhile(lambda delivery: now_s - delivery.entered_s > absent_s, islice(waiting, most)))
        for delivery in given_up:
            lane.drop(delivery)
            if lane.is_publish:
                self._settler.unheard(delivery)
            else:
                text = f"nobody listened for {absent_s:g} s"
                self._settler.give_up(delivery, Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, text))
        if lane.lost_receiver and not (lane.redeliveries or _may_have_lost(lane)):
            lane.lost_receiver = False
            self._egress.mark_ready(lane)
        return len(given_up)


def _may_have_lost(lane: Lane) -> bool:
    """Whether the lane has sent messages that are unconfirmed, or have returned and wait to be sent again."""
    oldest = lane.oldest()
    return lane.in_flight > 0 or lane.unconfirmed > 0 or (oldest is not None and oldest.history & REDELIVERED > 0)
