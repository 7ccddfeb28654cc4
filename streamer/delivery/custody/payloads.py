"""Keeps payloads of journaled messages in memory up to a bound; beyond it a payload is only in the journal (*spilled*)."""

import logging
from collections.abc import Sequence

from streamer.delivery.lanes.lane import QUEUED, Delivery, Lane
from streamer.journal import codec
from streamer.journal.entries import CorruptEntryError, JournalError
from streamer.journal.journal import Journal
from streamer.uprotocol.message import UMessage

logger = logging.getLogger("ustreamer.custody")


class Payloads:
    """Payloads of journaled messages. ``in_memory`` is their bytes in memory, bounded by ``most_bytes``.

    ``spilled`` counts those that are only in the journal.
    """

    def __init__(self, journal: Journal | None, most_bytes: int) -> None:
        self._journal = journal
        self._most_bytes = most_bytes
        self.in_memory = 0
        self.spilled = 0

    def add(self, delivery: Delivery) -> None:
        """Count a message that the journal has, or will have with the next commit."""
        self.in_memory += delivery.size

    def remove(self, delivery: Delivery) -> None:
        """Stop counting a message that leaves the journal."""
        if delivery.spilled:
            self.spilled -= 1
        else:
            self.in_memory -= delivery.size

    def spill_beyond(self, delivery: Delivery) -> None:
        """If memory has too many payloads, drop that of a waiting message, which is on disk."""
        if self.in_memory <= self._most_bytes:
            return
        received = delivery.received
        if delivery.state is not QUEUED or received.holders != 1 or not received.message.payload:
            return
        _use(delivery, None)
        delivery.spilled = True
        self.in_memory -= delivery.size
        self.spilled += 1

    def load_all(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery], list[Delivery]]:
        """Load spilled payloads; return the deliveries that have theirs, those whose payload is lost, and the others.

        The others are of lanes in which a payload cannot be read *now*.
        """
        loaded: list[Delivery] = []
        lost: list[Delivery] = []
        later: list[Delivery] = []
        waiting: set[Lane] = set()
        for delivery in deliveries:
            lane = delivery.lane
            if lane in waiting:
                later.append(delivery)
                continue
            try:
                has_payload = not delivery.spilled or self.load(delivery)
            except JournalError as exc:
                logger.error("payload_unreadable endpoint=%s error=%s", lane.queue.target, exc)
                waiting.add(lane)
                later.append(delivery)
                continue
            (loaded if has_payload else lost).append(delivery)
        return loaded, lost, later

    def load(self, delivery: Delivery) -> bool:
        """Load a spilled payload; return False if it is lost. Raises `JournalError` if the journal cannot be read now."""
        assert self._journal is not None
        try:
            payload = codec.unpack(self._journal.row_body(delivery.seq)).payload
        except (CorruptEntryError, codec.UnreadableError) as exc:
            logger.error("payload_lost file=%s seq=%d error=%s", self._journal.path, delivery.seq, exc)
            return False
        _use(delivery, payload)
        delivery.spilled = False
        self.spilled -= 1
        self.in_memory += delivery.size
        return True


def _use(delivery: Delivery, payload: bytes | None) -> None:
    """Set the payload of a delivery. If its received and sent message are one object, they stay one, to save memory."""
    came, left = delivery.received.message, delivery.message
    delivery.received.message = UMessage(came.id, came.attributes, payload)
    delivery.message = delivery.received.message if left is came else UMessage(left.id, left.attributes, payload)
