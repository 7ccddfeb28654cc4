"""Finds the queued messages whose TTL has passed, and says what they had waited for. No event loop, no clock.

A TTL counts from the creation time in the id, by the wall clock, also if the sender's clock is some hours ahead. If the id
is more than a day ahead, the message would not expire for long, perhaps for thousands of years. So such a message waits at
most for its TTL by the monotonic clock. That is right whichever of the two wall clocks is wrong: the message is at least as
old as it has waited here.

The TTLs of all waiting messages can pass at the same moment, if their sender wants that. So only so many are settled at once
as take some hundredths of a second; the others follow in the next ticks.
"""

import heapq

from streamer.delivery.lane import EXPIRED_MESSAGES_PER_TICK, IN_FLIGHT, QUEUED, SETTLED, Delivery, Hold, Lane
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.base import LinkState
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import created_ms, made_ms

_Heap = list[tuple[float, int, Delivery]]


class Deadlines:
    """Append to ``fresh`` what has a TTL; nothing is done for what is settled before the next `take`."""

    def __init__(self) -> None:
        self.fresh: list[Delivery] = []
        self._by_wall: _Heap = []  # Unix milliseconds
        self._by_wait: _Heap = []  # monotonic seconds
        self._sequence = 0  # deliveries themselves cannot be compared, and one may be listed twice

    def __len__(self) -> int:
        return len(self.fresh) + len(self._by_wall) + len(self._by_wait)

    def take(self, now_ms: int, now_s: float, waiting: int) -> list[Delivery]:
        """Take out of their lanes, and return, those whose TTL has passed, `EXPIRED_MESSAGES_PER_TICK` at most.

        ``waiting``: how many there are in the queue.
        """
        for delivery in self.fresh:
            if delivery.state is not SETTLED:
                self._add(delivery)
        self.fresh.clear()
        expired: list[Delivery] = []
        for heap, now in ((self._by_wall, now_ms), (self._by_wait, now_s)):
            _take(heap, now, expired)
        for heap in (self._by_wall, self._by_wait):
            if len(heap) > 2 * waiting + 1000:
                heap[:] = [entry for entry in heap if entry[2].state is not SETTLED]
                heapq.heapify(heap)
        return expired

    def _add(self, delivery: Delivery) -> None:
        message = delivery.message
        ttl, created = message.attributes.ttl, created_ms(message.id)
        if ttl:
            self._sequence += 1
            heapq.heappush(self._by_wall, (created + ttl, self._sequence, delivery))
            if made_ms(message.id, delivery.entered_ms) != created:
                heapq.heappush(self._by_wait, (delivery.entered_s + ttl / 1000, self._sequence, delivery))


def expired_in(lane: Lane, endpoint: str, link: LinkState) -> Failure:
    """The failure of a message whose TTL passed while it waited in a lane for an endpoint, whose link is in that state.

    The code is DEADLINE_EXCEEDED, whatever it waited for; the text says what that was.
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


def _take(heap: _Heap, now: float, expired: list[Delivery]) -> None:
    in_flight: _Heap = []
    while heap and heap[0][0] < now and len(expired) < EXPIRED_MESSAGES_PER_TICK:
        entry = heapq.heappop(heap)
        delivery = entry[2]
        if delivery.state is QUEUED:
            delivery.lane.drop(delivery)
            expired.append(delivery)
        elif delivery.state is IN_FLIGHT:
            in_flight.append(entry)  # it may come back to the lane: looked at again at the next tick
    for entry in in_flight:
        heapq.heappush(heap, entry)
