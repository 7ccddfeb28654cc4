"""The journal's rows: which deliveries are due for one, which are written together, and the form of a row. Pure."""

from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, SETTLED, Delivery
from streamer.journal import codec
from streamer.journal.entries import Row
from streamer.transports.base import Received

TIMERS_S: Final = 0.002
"""How early a timer may fire."""


def to_write(deliveries: Iterable[Delivery]) -> list[list[Delivery]]:
    """Return the deliveries that need a row, in order; those in one list must be written together or not at all.

    These are all deliveries of a message that its source retransmits. If only some had a row, the message would be a
    duplicate when the source sends it again after a crash, and the others would be lost.
    """
    waiting = [each for each in deliveries if each.state is not SETTLED and not each.journaled]
    return [list(together) for _, together in groupby(waiting, _whole)]


def _whole(delivery: Delivery) -> Received | Delivery:
    return delivery.received if delivery.received.source_retransmits else delivery


def row_of(delivery: Delivery, body: bytes) -> Row:
    """Return the row of a delivery whose packed message is ``body`` (`codec.pack`)."""
    queue = delivery.lane.queue
    marked = codec.sink_change(delivery.received.message.attributes, delivery.message.attributes)
    may_have_arrived = delivery.history & MAY_HAVE_ARRIVED
    attempts = ~delivery.attempts if may_have_arrived else delivery.attempts
    return Row(delivery.seq, queue.name, queue.source, queue.target, delivery.entered_ms, attempts, marked, body)


def take_older(waiting: deque[Delivery], than_s: float, into: list[Delivery]) -> None:
    """Move deliveries that entered before ``than_s`` to ``into``, oldest first, and drop settled ones."""
    while waiting:
        oldest = waiting[0]
        if oldest.state is not SETTLED:
            if oldest.entered_s > than_s + TIMERS_S:
                return
            into.append(oldest)
        waiting.popleft()
