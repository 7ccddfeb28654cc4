"""An observer that records the ids of the messages reported to it."""

from collections.abc import Sequence

from streamer.delivery.lanes.lane import Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage

_ID_BYTES = 16


class FakeObserver(OutcomeObserver):
    """``records``: outcome and id of each message, in the order in which they were reported. A packed record is its id."""

    def __init__(self) -> None:
        self.records: list[tuple[Outcome, bytes]] = []
        self.never_queued_at: list[tuple[str, str, str]] = []  # route, ingress and egress

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        self.records += [(Outcome.DELIVERED, delivery.message.id) for delivery in deliveries]

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        self.records.append((failure.outcome, delivery.message.id))

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self.records.append((failure.outcome, message.id))
        self.never_queued_at.append(names)

    def sent(self, delivery: Delivery, now_s: float, now_ms: int) -> bytes:
        return delivery.message.id

    def confirmed(self, lane: Lane, records: bytes | bytearray, count: int, now_s: float) -> None:
        self.records += [(Outcome.DELIVERED, uuid) for uuid in ids_in(records)]

    def never_confirmed(
        self, lane: Lane, records: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self.records += [(failure.outcome, uuid) for uuid in ids_in(records)]


def ids_in(packed: bytes | bytearray) -> list[bytes]:
    """The messages of packed records, in order."""
    return [bytes(packed[at : at + _ID_BYTES]) for at in range(0, len(packed), _ID_BYTES)]
