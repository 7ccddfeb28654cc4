"""Finds the queued messages whose TTL has passed, and names what they waited for. No event loop, no clock.

A TTL counts from the creation time in the id, by the wall clock, also if the sender's clock is some hours ahead. If the id
is more than a day ahead of the arrival, the message would not expire for a long time, perhaps thousands of years. So such a
message waits at most for its TTL by the monotonic clock (`UMessage.expires_ms`). That is right whichever of the two wall
clocks is wrong: the message is at least as old as it has waited here. If our own clock is set back, the arrivals of all
waiting messages were earlier than it said then, so all deadlines are set anew.

A sender can have the TTLs of all waiting messages pass at the same moment. So one tick settles only as many as take some
hundredths of a second; the others follow in the next ticks.
"""

from math import inf, nextafter

from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, IN_FLIGHT, QUEUED, SETTLED, Delivery, Hold, Lane
from streamer.due import Due
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import created_ms


class Deadlines:
    """The deadlines of a queue's deliveries. Append deliveries with a TTL to ``fresh``; the next `take` sorts them in."""

    def __init__(self) -> None:
        self.fresh: list[Delivery] = []
        self._by_wall: Due[Delivery] = Due()  # Unix milliseconds
        self._by_wait: Due[Delivery] = Due()  # monotonic seconds

    def __len__(self) -> int:
        return len(self.fresh) + len(self._by_wall) + len(self._by_wait)

    def clock_set_back(self) -> None:
        """Set all deadlines anew at the next `take`."""
        self.fresh += self._by_wall
        self._by_wall.clear()
        self._by_wait.clear()

    def take(self, now_ms: int, now_s: float, waiting: int) -> list[Delivery]:
        """Take deliveries whose TTL has passed out of their lanes, `EXPIRED_MESSAGES_PER_TICK` at most, and return them.

        The caller settles them. ``waiting`` is the number of messages in the queue.
        """
        for delivery in self.fresh:
            if delivery.state is not SETTLED:
                self._add(delivery, now_ms, now_s)
        self.fresh.clear()
        expired: list[Delivery] = []
        for due, now in ((self._by_wall, float(now_ms)), (self._by_wait, now_s)):
            for delivery in self._take(due, now, expired):
                self._add(delivery, now_ms, now_s)  # it may return to the lane: look again at the next tick
        for due in (self._by_wall, self._by_wait):
            if len(due) > 2 * waiting + 1000:
                for delivery in [each for each in due if each.state is SETTLED]:
                    due.set(delivery, None)
        return expired

    def _add(self, delivery: Delivery, now_ms: int, now_s: float) -> None:
        message = delivery.message
        ttl = message.attributes.ttl
        if ttl:
            by_id_ms = created_ms(message.id) + ttl
            self._by_wall.set(delivery, by_id_ms)
            if message.expires_ms(now_ms, now_s - delivery.since_s) != by_id_ms:
                self._by_wait.set(delivery, delivery.since_s + ttl / 1000)

    def _take(self, due: Due[Delivery], now: float, expired: list[Delivery]) -> list[Delivery]:
        """Take expired deliveries out of their lanes and append them to ``expired``; return those in flight."""
        in_flight: list[Delivery] = []
        if len(expired) == EXPIRED_MESSAGES_PER_TICK:
            return in_flight
        for delivery in due.take(nextafter(now, -inf)):
            if delivery.state is QUEUED:
                delivery.lane.drop(delivery)
                expired.append(delivery)
                if len(expired) == EXPIRED_MESSAGES_PER_TICK:
                    break
            elif delivery.state is IN_FLIGHT:
                in_flight.append(delivery)
        return in_flight


def expired_in(lane: Lane, endpoint: str, link: LinkState) -> Failure:
    """Return the failure of a message whose TTL passed in a lane, given the name and link state of its target endpoint.

    The code is always DEADLINE_EXCEEDED; the text says what the message waited for.
    """
    if lane.hold & Hold.PAUSED:
        why = "while it was paused"
    elif link is LinkState.DOWN:
        why = f"while the link to {endpoint} was down"
    elif link is LinkState.ALONE or lane.hold & Hold.ABSENT:
        why = "while nobody listened"
    else:
        why = "before it could be sent"
    return Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, f"its TTL passed {why}")
